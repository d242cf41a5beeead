//! A place of its own for each test, and the end of everything that was started there.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use muster_marked::{Process, Signal, find};
use muster_release::key::{SigningKey, read_public, write_public};
use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

use crate::binaries;
use crate::eventually::eventually;

/// Every process that a test causes has the stage's own home: `muster` hands it on to agents, and they to what they run.
/// So this is the mark by which all of them are found.
const MARK: &str = "HOME";
/// Stages are named for the process that made them, so that what a killed test has left can be told from what is in use.
const PREFIX: &str = "muster-e2e-";
/// Nothing listens here but the stage itself: whoever holds it owns the network.
const CLAIM: u16 = 7299;

/// A directory, a network and an environment of variables that no other test has.
#[derive(Debug)]
pub struct Stage {
    dir: TempDir,
    network: Network,
}

/// A loopback network `127.a.b.0/24`.
#[derive(Debug)]
struct Network {
    a: u8,
    b: u8,
    _claim: TcpListener,
}

impl Stage {
    #[expect(clippy::new_without_default, reason = "it is no value: it makes a directory and takes a network")]
    pub fn new() -> Self {
        end_what_killed_tests_left();
        let dir = tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", std::process::id())).tempdir().unwrap();
        let stage = Self { dir, network: Network::claim() };
        for name in ["home", "run", "tmp", "elsewhere"] {
            fs::create_dir(stage.path(name)).unwrap();
        }
        let key = SigningKey::generate("a test").unwrap();
        key.write_new(&stage.release_key()).unwrap();
        write_public(key.public(), &stage.release_key().with_extension("pub")).unwrap();
        stage
    }

    /// The key that servers of this stage sign releases with.
    pub fn release_key(&self) -> PathBuf {
        self.path("release.key")
    }

    /// Its public half, as agents are told.
    pub fn trusted_key(&self) -> String {
        read_public(&self.release_key().with_extension("pub")).unwrap().to_string()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// As `muster up --network` takes it.
    pub fn network(&self) -> String {
        format!("127.{}.{}.0/24", self.network.a, self.network.b)
    }

    /// An address of the stage's network.
    pub fn address(&self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.network.a, self.network.b, last)
    }

    /// Where servers of this stage listen; no other test does, so it is free again when such a server has ended.
    pub fn listen(&self) -> String {
        format!("{}:7300", self.address(250))
    }

    /// A program with the variables of this stage and no others.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env(MARK, self.path("home"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("TMPDIR", self.path("tmp"))
            .env("LANG", "C.UTF-8")
            .current_dir(self.dir.path())
            .stdin(std::process::Stdio::null());
        command
    }

    pub fn muster(&self, args: &[&str]) -> Command {
        let mut command = self.command(binaries::muster());
        command.args(args);
        command
    }

    /// The processes of this stage that run.
    pub fn processes(&self) -> Vec<Process> {
        find(MARK, self.path("home")).unwrap()
    }

    /// Fails unless everything that was started here has ended; what is being ended has a moment.
    pub fn is_empty(&self) {
        eventually("every process of the stage has ended", Duration::from_secs(20), || {
            let left: Vec<_> = self.processes().iter().map(describe).collect();
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        });
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        kill_all(&self.path("home"));
    }
}

impl Network {
    /// Takes a network that nobody has. It begins with a number of this process, so that the first try is mostly right.
    fn claim() -> Self {
        let start = std::process::id();
        for number in start..start + 20_000 {
            let [_, _, a, b] = number.to_be_bytes();
            // 127.0 is everybody's, 127.77 the default of `muster up`, and from 127.128 on other tests have theirs.
            let a = 1 + a % 70;
            if let Ok(claim) = TcpListener::bind((Ipv4Addr::new(127, a, b, 253), CLAIM)) {
                return Self { a, b, _claim: claim };
            }
        }
        panic!("no network 127.x.y.0/24 is free (port {CLAIM} on one stands for a network in use)");
    }
}

/// A process in words.
pub fn describe(process: &Process) -> String {
    let arguments = process.arguments().unwrap_or_default();
    let line: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    format!("{} {}", process.pid(), line.join(" "))
}

/// Kills until nobody is left: one that forks while it is being killed does not get away.
fn kill_all(home: &Path) {
    for _ in 0..100 {
        let found = find(MARK, home).unwrap_or_default();
        if found.is_empty() {
            return;
        }
        for process in &found {
            let _ = process.signal(Signal::KILL);
        }
    }
}

/// A test that is killed (by its time limit, by Ctrl-C) ends nothing. The next one does it.
fn end_what_killed_tests_left() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let pid = rest.and_then(|rest| rest.split('-').next()).and_then(|pid| pid.parse().ok());
        if pid.and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid).is_err()) {
            kill_all(&entry.path().join("home"));
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
