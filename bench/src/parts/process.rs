//! A process of a benchmark, and the memory and processor time of processes, from /proc.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_wire::token::TOKEN_FILE_VARIABLE;
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::bench::{Bench, MARK};
use crate::report;

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
    command.env(TOKEN_FILE_VARIABLE, bench.token_file());
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

    /// The end of its log, for an error message.
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

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// All resident pages, including shared ones.
    pub(crate) rss: u64,
    /// The same, with each shared page divided by the number of those who share it.
    pub(crate) pss: u64,
    /// Private pages that it has written.
    pub(crate) anonymous: u64,
}

pub(crate) fn read_memory(pid: u32) -> anyhow::Result<Memory> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    parse(&text).with_context(|| format!("{path} is not understood"))
}

fn parse(text: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some(Memory { rss: bytes("Rss")?, pss: bytes("Pss")?, anonymous: bytes("Anonymous")? })
}

/// The most that a process has had in memory since it started, or since [`reset_peak`].
pub(crate) fn peak(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path} is not understood"))? * 1024)
}

/// Resets the peak.
pub(crate) fn reset_peak(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

/// Processor time of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cpu {
    pub(crate) own: Duration,
    /// That of the processes that it has started and that have ended.
    pub(crate) children: Duration,
}

impl Cpu {
    pub(crate) fn less(self, before: &Self) -> Self {
        let less = |after: Duration, before| after.saturating_sub(before);
        Self { own: less(self.own, before.own), children: less(self.children, before.children) }
    }
}

pub(crate) fn cpu(pid: u32) -> anyhow::Result<Cpu> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name of the program is in brackets and may hold anything.
    let after = text.rsplit_once(')').map(|(_, after)| after);
    let ticks = after.and_then(|after| {
        let mut fields = after.split_whitespace().skip(11).map(str::parse::<u64>);
        let mut both = || Some(fields.next()?.ok()? + fields.next()?.ok()?);
        Some((both()?, both()?))
    });
    let (own, children) = ticks.with_context(|| format!("{path} is not understood"))?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let time = |ticks| Duration::from_millis(ticks * 1000 / per_second);
    Ok(Cpu { own: time(own), children: time(children) })
}

/// Processor time of each thread of a process, in nanoseconds: [`cpu`] counts in ticks of 10 ms.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadTimes(BTreeMap<String, u64>);

impl ThreadTimes {
    pub(crate) fn read(pid: u32) -> anyhow::Result<Self> {
        let dir = format!("/proc/{pid}/task");
        let mut times = BTreeMap::new();
        for thread in fs::read_dir(&dir).with_context(|| format!("cannot read {dir}"))? {
            let thread = thread?;
            // A thread may end meanwhile.
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            if let Some(nanos) = text.split(' ').next().and_then(|nanos| nanos.parse().ok()) {
                times.insert(thread.file_name().to_string_lossy().into_owned(), nanos);
            }
        }
        Ok(Self(times))
    }

    /// Processor time since an earlier reading. Threads that have ended since then are not in it.
    pub(crate) fn since(&self, before: &Self) -> Duration {
        let grown =
            |(thread, nanos): (&String, &u64)| nanos.saturating_sub(before.0.get(thread).copied().unwrap_or_default());
        Duration::from_nanos(self.0.iter().map(grown).sum())
    }
}

/// Processor time of this thread.
pub(crate) fn own_thread_cpu() -> anyhow::Result<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").context("cannot read /proc/thread-self/schedstat")?;
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Ok(Duration::from_nanos(nanos.context("/proc/thread-self/schedstat is not understood")?))
}

/// Processor time of all ended commands that this process has started.
pub(crate) fn commands_cpu() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the resource usage")?;
    let micros = |value: nix::sys::time::TimeVal| value.tv_sec() * 1_000_000 + value.tv_usec();
    Ok(Duration::from_micros(u64::try_from(micros(usage.user_time()) + micros(usage.system_time()))?))
}

/// Resource usage of a command.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct ResourceUsage {
    /// From before its process is created until it has ended.
    pub(crate) seconds: f64,
    /// Processor time of all threads.
    pub(crate) processor: f64,
    /// The most memory that was resident at any time, in bytes.
    pub(crate) peak: f64,
}

/// Runs a command in a process that does nothing else. It must succeed.
pub(crate) async fn run_measured(bench: &Bench, dir: &Path, words: &[OsString]) -> anyhow::Result<ResourceUsage> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let mut watcher = command(bench, &own, dir);
    watcher.arg("--watch").args(words).stdin(Stdio::null());
    let output = watcher.output().await.context("cannot start this program once more")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{}", said.trim_end());
    serde_json::from_slice(&output.stdout).context("what it has taken is not understood")
}

/// The other side: runs the command, and prints its resource usage.
pub(crate) fn watch_usage(words: &[OsString]) -> anyhow::Result<()> {
    let (program, args) = words.split_first().context("--watch needs a command")?;
    let mut child = std::process::Command::new(program);
    child.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    let begin = Instant::now();
    let output = child.spawn().and_then(std::process::Child::wait_with_output);
    let seconds = begin.elapsed().as_secs_f64();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    anyhow::ensure!(output.status.success(), "{} ended with {}: {said}", program.display(), output.status);
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the resource usage")?;
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let time = |value: nix::sys::time::TimeVal| value.tv_sec() as f64 + value.tv_usec() as f64 / 1e6;
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let peak = usage.max_rss() as f64 * 1024.0;
    let processor = time(usage.user_time()) + time(usage.system_time());
    report::answer(&ResourceUsage { seconds, processor, peak })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_parsed() {
        let text = "55d0-7ffe ---p 00000000 00:00 0    [rollup]\nRss:    8420 kB\nPss:    4211 kB\nPss_Dirty: 9 kB\nAnonymous:   1024 kB\n";
        let memory = Memory { rss: 8420 * 1024, pss: 4211 * 1024, anonymous: 1024 * 1024 };
        assert_eq!(parse(text), Some(memory));
        assert!(read_memory(std::process::id()).unwrap().rss > 0);
        assert!(cpu(std::process::id()).is_ok());
        let threads = ThreadTimes::read(std::process::id()).unwrap();
        assert!(threads.since(&threads).is_zero() && !threads.0.is_empty());
        assert!(own_thread_cpu().is_ok() && commands_cpu().is_ok());
        reset_peak(std::process::id()).unwrap();
        assert!(peak(std::process::id()).unwrap() > 0);
    }
}
