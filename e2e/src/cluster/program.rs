//! A process whose output goes to a log file: twenty agents write too much for memory or the screen.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};

/// A running or killed process. Dropping it kills it.
#[derive(Debug)]
pub struct Program {
    name: String,
    log: PathBuf,
    /// Offset of this process in the log, which all processes of the name share.
    begin: usize,
    child: Child,
}

impl Program {
    pub fn start(name: &str, command: &mut Command, logs: &Path) -> Self {
        let log = logs.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let begin = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).stdin(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self { name: name.to_owned(), log, begin, child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Output of this process.
    pub fn output(&self) -> String {
        let text = fs::read(&self.log).unwrap();
        String::from_utf8_lossy(&text[self.begin.min(text.len())..]).into_owned()
    }

    /// Waits for a text in the output. Panics if the process ends before.
    pub fn wait_for_output(&mut self, text: &str, deadline: Duration) {
        let name = self.name.clone();
        eventually(&format!("{name} says {text:?}"), deadline, || {
            let said = self.output();
            if said.contains(text) {
                return Ok(());
            }
            assert!(self.child.try_wait().unwrap().is_none(), "{name} has ended; it said:\n{said}");
            Err(said)
        });
    }

    /// `kill -9`. The process has ended when this returns.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// `SIGSTOP`: connections stay open without traffic.
    pub fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    /// `SIGCONT`.
    pub fn cont(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
