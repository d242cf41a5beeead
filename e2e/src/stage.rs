//! A place of its own for each test, and the end of everything that was started there.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use muster_marked::Process;
use muster_release::key::{SigningKey, read_public, write_public};
use muster_testkit::wait::eventually;
use muster_testkit::{LoopbackNetwork, Mark, ProcessDir};

use crate::binaries;

/// `muster` passes its HOME on to agents, and agents to what they run: every process that a test causes has the HOME of its
/// directory.
const MARK: Mark = Mark { prefix: "muster-e2e-", variable: "HOME", subdirectory: Some("home") };

/// A directory, a network and an environment of variables that no other test has.
#[derive(Debug)]
pub struct Stage {
    dir: ProcessDir,
    network: LoopbackNetwork,
}

impl Stage {
    #[expect(clippy::new_without_default, reason = "it is no value: it makes a directory and takes a network")]
    pub fn new() -> Self {
        let stage = Self { dir: ProcessDir::new(MARK), network: LoopbackNetwork::for_fleet() };
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
        self.network.cidr()
    }

    /// An address of the stage's network.
    pub fn address(&self, last: u8) -> Ipv4Addr {
        self.network.address(last)
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
            .env(MARK.variable, self.path("home"))
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
        self.dir.processes()
    }

    /// Fails unless everything that was started here has ended; what is being ended has a moment.
    pub fn is_empty(&self) {
        eventually("every process of the stage has ended", Duration::from_secs(20), || {
            let left: Vec<_> = self.processes().iter().map(describe).collect();
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        });
    }
}

/// A process in words.
pub fn describe(process: &Process) -> String {
    let arguments = process.arguments().unwrap_or_default();
    let line: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    format!("{} {}", process.pid(), line.join(" "))
}
