//! One member: a process, its disk, its log.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

use crate::binaries;

/// How much of a log is shown when something fails.
const TAIL: usize = 4096;

/// A member of a cluster. It stays the same one through all its restarts.
#[derive(Debug)]
pub struct Member {
    pub(crate) name: String,
    /// `host:port`.
    pub(crate) client: String,
    pub(crate) client_url: String,
    pub(crate) peer_url: String,
    /// Its disk.
    pub(crate) data: PathBuf,
    pub(crate) log: PathBuf,
    /// Variable of the process, by which a leftover is found.
    pub(crate) mark: (&'static str, PathBuf),
    /// All but who else is in the cluster.
    pub(crate) args: Vec<String>,
    /// Who else is in the cluster, and whether that is a new one.
    pub(crate) initial: Mutex<(String, &'static str)>,
    pub(crate) process: Mutex<Process>,
}

/// What a member's process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Running,
    /// `SIGSTOP`: it has its connections, and says nothing.
    Stopped,
    /// It was killed, or ended by itself.
    Ended,
}

#[derive(Debug, Default)]
pub(crate) struct Process {
    child: Option<Child>,
    stopped: bool,
}

impl Member {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where clients find it, as `host:port`.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Where clients find it, as a URL.
    pub fn client_url(&self) -> &str {
        &self.client_url
    }

    /// Of its process, unless it was killed.
    pub fn pid(&self) -> Option<u32> {
        self.process().child.as_ref().map(Child::id)
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    pub fn condition(&self) -> Condition {
        let mut process = self.process();
        let lives = process.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none());
        match (lives, process.stopped) {
            (true, false) => Condition::Running,
            (true, true) => Condition::Stopped,
            (false, _) => Condition::Ended,
        }
    }

    /// `kill -9`. It has ended when this returns.
    pub fn kill(&self) {
        let mut process = self.process();
        if let Some(mut child) = process.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        process.stopped = false;
    }

    /// `SIGSTOP`: its connections stay, and nothing comes over them.
    pub fn stop(&self) {
        self.signal(Signal::STOP, true);
    }

    /// `SIGCONT`.
    pub fn cont(&self) {
        self.signal(Signal::CONT, false);
    }

    /// Starts it, with the disk that it has. It serves some time later: [`crate::Cluster::wait_healthy`].
    pub fn start(&self) {
        let mut process = self.process();
        assert!(process.child.is_none(), "{} runs already", self.name);
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let (everybody, state) = self.initial.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let child = Command::new(binaries::etcd())
            .args(&self.args)
            .args(["--initial-cluster", &everybody, "--initial-cluster-state", state])
            // Only what it is told here: an ETCD_… variable of whoever runs the tests would be another setting.
            .env_clear()
            .env(self.mark.0, &self.mark.1)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        process.child = Some(child.unwrap_or_else(|error| panic!("cannot start {}: {error}", self.name)));
        process.stopped = false;
    }

    /// Empties the disk of a member that was killed. Alone in its cluster, it begins a new life at the same address when
    /// it is started; one of several has to be taken in again by the others ([`crate::Cluster::wipe_and_rejoin`]).
    pub fn wipe(&self) {
        assert!(self.process().child.is_none(), "{} runs", self.name);
        fs::remove_dir_all(&self.data).unwrap();
    }

    /// The end of its log, for whoever has to find out why.
    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL)..]).into_owned();
        format!("the log of {} ends:\n{text}", self.name)
    }

    fn signal(&self, signal: Signal, stopped: bool) {
        let mut process = self.process();
        let child = process.child.as_ref().unwrap_or_else(|| panic!("{} does not run", self.name));
        kill_process(Pid::from_child(child), signal).unwrap();
        process.stopped = stopped;
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}
