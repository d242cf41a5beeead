//! A process with a log in a file: twenty agents say more than anybody wants to have in memory, or on the screen.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};

/// A program that runs, or was killed. It is killed when this is dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    log: PathBuf,
    /// Where in the log this process begins: the log is that of all that had the name.
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

    /// All that this process has said.
    pub fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap();
        String::from_utf8_lossy(&text[self.begin.min(text.len())..]).into_owned()
    }

    /// Waits until it has said something; fails when it ends before.
    pub fn says(&mut self, text: &str, deadline: Duration) {
        let name = self.name.clone();
        eventually(&format!("{name} says {text:?}"), deadline, || {
            let said = self.said();
            if said.contains(text) {
                return Ok(());
            }
            assert!(self.child.try_wait().unwrap().is_none(), "{name} has ended; it said:\n{said}");
            Err(said)
        });
    }

    /// `kill -9`. It has ended when this returns.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// `SIGSTOP`: its connections stay, and nothing comes over them.
    pub fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    /// `SIGCONT`.
    pub fn cont(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    /// Whether it has ended, by itself or not.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
