//! A temporary directory with the processes that belong to it, and a loopback network for one test.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use muster_marked::{Process, Signal, find};
use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

/// The environment variable by which processes of a directory are found.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Prefix of the directory's name. Each kind of test has its own.
    pub prefix: &'static str,
    pub variable: &'static str,
    /// The variable's value is this subdirectory; the directory itself if there is none.
    pub subdirectory: Option<&'static str>,
}

/// A temporary directory for one test. When it is dropped, the processes that carry its mark are killed and it is removed.
///
/// A test that is killed (by its time limit, by Ctrl-C) drops nothing. The directory's name has the pid of the test, so the
/// next test can find it, kill its processes and remove it.
#[derive(Debug)]
pub struct ProcessDir {
    mark: Mark,
    dir: TempDir,
}

impl ProcessDir {
    pub fn new(mark: Mark) -> Self {
        clean_up_killed_tests(mark);
        let prefix = format!("{}{}-", mark.prefix, std::process::id());
        Self { mark, dir: tempfile::Builder::new().prefix(&prefix).tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The variable that processes of this directory have to carry, and its value.
    pub fn variable(&self) -> (&'static str, PathBuf) {
        (self.mark.variable, self.mark.value(self.path()))
    }

    /// Running processes of this directory.
    pub fn processes(&self) -> Vec<Process> {
        find(self.mark.variable, self.mark.value(self.path())).unwrap()
    }
}

impl Drop for ProcessDir {
    fn drop(&mut self) {
        self.mark.kill_all(self.dir.path());
    }
}

impl Mark {
    fn value(self, dir: &Path) -> PathBuf {
        self.subdirectory.map_or_else(|| dir.to_owned(), |name| dir.join(name))
    }

    /// Kills until no process is found: a process may fork while it is being killed.
    fn kill_all(self, dir: &Path) {
        for _ in 0..100 {
            let found = find(self.variable, self.value(dir)).unwrap_or_default();
            if found.is_empty() {
                return;
            }
            for process in &found {
                let _ = process.signal(Signal::KILL);
            }
        }
    }
}

fn clean_up_killed_tests(mark: Mark) {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(mark.prefix));
        let pid = rest.and_then(|rest| rest.split('-').next()).and_then(|pid| pid.parse().ok());
        if pid.and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid).is_err()) {
            mark.kill_all(&entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A loopback network `127.a.b.0/24`. While it is held, no other test gets the same one.
///
/// A network and not a free port of 127.0.0.1: another process could get the port of a process that was killed before it
/// is started again.
#[derive(Debug)]
pub struct TestNetwork {
    a: u8,
    b: u8,
    _lock: TcpListener,
}

impl TestNetwork {
    /// Networks of end-to-end tests. 127.0 is in general use, 127.77 is the default of `muster up`.
    pub fn for_fleet() -> Self {
        Self::claim(1, 70, 7299)
    }

    /// Networks of etcd clusters.
    pub fn for_etcd() -> Self {
        Self::claim(80, 40, 2378)
    }

    /// Claims a network from 127.`first` on. A listener on `lock_port` of its address 253 is the lock. The search starts at
    /// the number of this process, because that network is free most of the time.
    fn claim(first: u8, count: u8, lock_port: u16) -> Self {
        let start = std::process::id();
        for number in start..start + u32::from(count) * 256 {
            let [_, _, a, b] = number.to_be_bytes();
            let a = first + a % count;
            if let Ok(lock) = TcpListener::bind((Ipv4Addr::new(127, a, b, 253), lock_port)) {
                return Self { a, b, _lock: lock };
            }
        }
        panic!("no loopback network is free (a listener on port {lock_port} of 127.a.b.253 marks one in use)");
    }

    /// An address of this network.
    pub fn address(&self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.a, self.b, last)
    }

    /// The network in CIDR notation.
    pub fn cidr(&self) -> String {
        format!("127.{}.{}.0/24", self.a, self.b)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use crate::wait::{TIMEOUT, eventually};

    use super::*;

    /// Each test has a mark of its own: the tests run side by side.
    const fn mark(prefix: &'static str) -> Mark {
        Mark { prefix, variable: "MUSTER_TESTKIT_DIR", subdirectory: None }
    }

    fn sleeper(dir: &Path) -> Child {
        let child = Command::new("sleep").arg("600").env("MUSTER_TESTKIT_DIR", dir).spawn().unwrap();
        eventually("the process has its mark", TIMEOUT, || {
            let found = find("MUSTER_TESTKIT_DIR", dir).unwrap();
            if found.is_empty() { Err("not found".to_owned()) } else { Ok(()) }
        });
        child
    }

    #[test]
    fn dropping_a_directory_kills_its_processes() {
        let dir = ProcessDir::new(mark("muster-testkit-drop-"));
        let path = dir.path().to_owned();
        let mut child = sleeper(&path);
        drop(dir);
        assert!(!child.wait().unwrap().success());
        assert!(!path.exists());
    }

    #[test]
    fn leftovers_of_a_killed_test_are_cleaned_up() {
        let mark = mark("muster-testkit-killed-");
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let left = std::env::temp_dir().join(format!("{}{}-left", mark.prefix, ended.id()));
        fs::create_dir(&left).unwrap();
        let mut child = sleeper(&left);
        let _dir = ProcessDir::new(mark);
        assert!(!child.wait().unwrap().success());
        assert!(!left.exists());
    }
}
