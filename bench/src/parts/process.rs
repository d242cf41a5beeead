//! A process of a benchmark.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::bench::{Bench, MARK};

/// Time that a process has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// A running process. Dropping it kills it; [`BenchProcess::stop`] ends it gracefully.
#[derive(Debug)]
pub(crate) struct BenchProcess {
    child: Child,
    pid: u32,
    log: PathBuf,
}

/// A command with the mark of the benchmark and a clean environment.
pub(crate) fn command(bench: &Bench, program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.env(MARK, bench.mark()).env("XDG_RUNTIME_DIR", dir).current_dir(dir).kill_on_drop(true);
    for variable in ["MUSTER_SERVER", "MUSTER_ENV", "MUSTER_STATE", "RUST_LOG", "TMPDIR"] {
        command.env_remove(variable);
    }
    // Ctrl-C reaches only this program, which ends the others.
    command.process_group(0);
    command
}

impl BenchProcess {
    /// Starts a program whose standard error goes to `<name>.log` in `dir`.
    pub(crate) fn start(mut command: Command, dir: &Path, name: &str) -> anyhow::Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).spawn();
        let child = child.with_context(|| format!("cannot start {name}"))?;
        let pid = child.id().context("it has ended at once")?;
        Ok(Self { child, pid, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The end of what it has logged, for an error message.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// `kill -9`. The process has ended when this returns.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("it cannot be killed")
    }

    /// Sends SIGTERM and waits for the exit.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw).context("no such pid")?;
        // It was not waited for, so the pid is still its own.
        if self.child.try_wait()?.is_none() {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        let ended = timeout(GRACE, self.child.wait()).await;
        let status = ended.with_context(|| format!("it did not end within {GRACE:?}:\n{}", self.log_tail()))??;
        anyhow::ensure!(status.success(), "it ended with {status}:\n{}", self.log_tail());
        Ok(())
    }
}
