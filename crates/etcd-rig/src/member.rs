//! A member of a cluster: its process, disk and log.

use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

/// Bytes of a log that are shown after a failure.
const TAIL: usize = 4096;

/// A member of a cluster. It keeps its identity through restarts.
#[derive(Debug)]
pub struct Member {
    pub(crate) name: String,
    /// `host:port`.
    pub(crate) client: String,
    pub(crate) client_url: String,
    pub(crate) peer_url: String,
    /// The data directory.
    pub(crate) data: PathBuf,
    pub(crate) log: PathBuf,
    /// Environment variable by which leftover processes are found.
    pub(crate) mark: (&'static str, PathBuf),
    /// All arguments except the initial cluster.
    pub(crate) args: Vec<String>,
    /// The initial cluster and its state, `new` or `existing`.
    pub(crate) initial: Mutex<(String, &'static str)>,
    pub(crate) process: Mutex<EtcdProcess>,
}

/// State of a member's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    Running,
    /// `SIGSTOP`: it keeps its connections and does not answer.
    Stopped,
    /// It was killed, or has ended by itself.
    Ended,
}

#[derive(Debug, Default)]
pub(crate) struct EtcdProcess {
    child: Option<Child>,
    stopped: bool,
}

impl Member {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Client address as `host:port`.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Client address as a URL.
    pub fn client_url(&self) -> &str {
        &self.client_url
    }

    /// Pid, unless it was killed.
    pub fn pid(&self) -> Option<u32> {
        self.process().child.as_ref().map(Child::id)
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    pub fn state(&self) -> ProcessState {
        let mut process = self.process();
        let lives = process.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none());
        match (lives, process.stopped) {
            (true, false) => ProcessState::Running,
            (true, true) => ProcessState::Stopped,
            (false, _) => ProcessState::Ended,
        }
    }

    /// `kill -9`. The process has ended when this returns.
    pub fn kill(&self) {
        let mut process = self.process();
        if let Some(mut child) = process.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        process.stopped = false;
    }

    /// `SIGSTOP`: connections stay open without traffic.
    pub fn stop(&self) {
        self.signal(Signal::STOP, true);
    }

    /// `SIGCONT`.
    pub fn cont(&self) {
        self.signal(Signal::CONT, false);
    }

    /// Starts it with its present disk. [`crate::Cluster::wait_healthy`] waits until it answers.
    pub fn start(&self) {
        let mut process = self.process();
        assert!(process.child.is_none(), "{} is already running", self.name);
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let (initial_cluster, state) = self.initial.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let child = Command::new(etcd())
            .args(&self.args)
            .args(["--initial-cluster", &initial_cluster, "--initial-cluster-state", state])
            // An ETCD_… variable of the environment would change its settings.
            .env_clear()
            .env(self.mark.0, &self.mark.1)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        process.child = Some(child.unwrap_or_else(|error| panic!("cannot start {}: {error}", self.name)));
        process.stopped = false;
    }

    /// Removes the disk of a killed member. A single member starts as a new cluster at the same address; one of several
    /// has to join again ([`crate::Cluster::wipe_and_rejoin`]).
    pub fn wipe(&self) {
        assert!(self.process().child.is_none(), "{} is running", self.name);
        fs::remove_dir_all(&self.data).unwrap();
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL)..]).into_owned();
        format!(
            "end of the log of {}:
{text}",
            self.name
        )
    }

    fn signal(&self, signal: Signal, stopped: bool) {
        let mut process = self.process();
        let child = process.child.as_ref().unwrap_or_else(|| panic!("{} is not running", self.name));
        kill_process(Pid::from_child(child), signal).unwrap();
        process.stopped = stopped;
    }

    fn process(&self) -> MutexGuard<'_, EtcdProcess> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Directory of tools that `scripts/setup` has built.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/bin");

pub(crate) fn etcd() -> PathBuf {
    program("etcd")
}

pub(crate) fn etcdctl() -> PathBuf {
    program("etcdctl")
}

/// Panics if the program is missing: a test without the real etcd must fail and say what to do.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push(Path::new(TOOLS).to_owned());
    let found = places.iter().map(|place| place.join(name)).find(|program| program.is_file());
    found.unwrap_or_else(|| panic!("`{name}` is neither on the PATH nor in {TOOLS}: run `make setup`"))
}
