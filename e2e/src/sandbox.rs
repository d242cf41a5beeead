//! A sandbox for one test: directory, network, environment variables, `muster` commands, projects with an environment and
//! releases, and barriers for their runs. Its processes are killed at the end.

use std::fmt::Write as _;
use std::fs;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use muster_marked::Process;
use muster_release::key::{SigningKey, read_public, write_public};
use muster_testkit::release::{ScriptRelease, write_file};
use muster_testkit::wait::{TIMEOUT, eventually};
use muster_testkit::{Mark, ProcessDir, TestNetwork};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;

use crate::process::{ChildProcess, ExitResult};
use crate::server::ENV;

/// `muster` passes its HOME on to agents, and agents to what they run: every process that a test causes has the HOME of its
/// directory.
const MARK: Mark = Mark { prefix: "muster-e2e-", variable: "HOME", subdirectory: Some("home") };

/// Token of the servers of all tests.
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A directory, a network and environment variables of one test.
#[derive(Debug)]
pub struct Sandbox {
    dir: ProcessDir,
    network: TestNetwork,
}

impl Sandbox {
    #[expect(clippy::new_without_default, reason = "it is no value: it makes a directory and takes a network")]
    pub fn new() -> Self {
        let sandbox = Self { dir: ProcessDir::new(MARK), network: TestNetwork::for_fleet() };
        for name in ["home", "run", "tmp", "elsewhere"] {
            fs::create_dir(sandbox.path(name)).unwrap();
        }
        let key = SigningKey::generate("a test").unwrap();
        key.write_new(&sandbox.release_key()).unwrap();
        write_public(key.public(), &sandbox.release_key().with_extension("pub")).unwrap();
        fs::write(sandbox.token_file(), TOKEN).unwrap();
        fs::set_permissions(sandbox.token_file(), fs::Permissions::from_mode(0o600)).unwrap();
        sandbox
    }

    /// The key that servers of this stage sign releases with.
    pub fn release_key(&self) -> PathBuf {
        self.path("release.key")
    }

    /// Its public key, for agents.
    pub fn trusted_key(&self) -> String {
        read_public(&self.release_key().with_extension("pub")).unwrap().to_string()
    }

    /// The file with [`TOKEN`], for servers, agents and commands.
    pub fn token_file(&self) -> PathBuf {
        self.path("token")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The argument of `muster up --network`.
    pub fn network(&self) -> String {
        self.network.cidr()
    }

    /// An address of the sandbox's network.
    pub fn address(&self, last: u8) -> Ipv4Addr {
        self.network.address(last)
    }

    /// Address of the sandbox's server. No other test uses it, so that it is free when the server has ended.
    pub fn listen(&self) -> String {
        format!("{}:7300", self.address(250))
    }

    /// A command with only the variables of this sandbox.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env(MARK.variable, self.path("home"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("TMPDIR", self.path("tmp"))
            .env("LANG", "C.UTF-8")
            .env("MUSTER_TOKEN_FILE", self.token_file())
            .current_dir(self.dir.path())
            .stdin(std::process::Stdio::null());
        command
    }

    pub fn muster(&self, args: &[&str]) -> Command {
        let mut command = self.command(muster());
        command.args(args);
        command
    }

    /// The processes of this stage that run.
    pub fn processes(&self) -> Vec<Process> {
        self.dir.processes()
    }

    /// Panics unless every process of the sandbox ends within some seconds.
    pub fn assert_no_processes(&self) {
        eventually("every process of the sandbox has ended", Duration::from_secs(20), || {
            let left: Vec<_> = self.processes().iter().map(describe).collect();
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        });
    }
}

/// Pid and command line of a process.
pub fn describe(process: &Process) -> String {
    let arguments = process.arguments().unwrap_or_default();
    let line: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    format!("{} {}", process.pid(), line.join(" "))
}

impl Sandbox {
    /// Runs a `muster` command in the directory of the sandbox.
    pub fn run_muster(&self, args: &[&str]) -> ExitResult {
        self.run_muster_in(".", args)
    }

    /// The same in another directory of the stage.
    pub fn run_muster_in(&self, directory: &str, args: &[&str]) -> ExitResult {
        let mut command = self.muster(args);
        ChildProcess::new(format!("muster {}", args.join(" ")), command.current_dir(self.path(directory)))
            .wait_exit(TIMEOUT * 3)
    }

    /// The same with something to read.
    pub fn run_muster_with_input(&self, args: &[&str], input: &str) -> ExitResult {
        let path = self.path("input");
        std::fs::write(&path, input).unwrap();
        let mut command = self.muster(args);
        command.stdin(Stdio::from(std::fs::File::open(&path).unwrap()));
        ChildProcess::new(format!("muster {}", args.join(" ")), &mut command).wait_exit(TIMEOUT)
    }

    /// Output of a successful command, as JSON.
    pub fn muster_json(&self, args: &[&str]) -> Value {
        let ended = self.run_muster(&[args, &["-o", "json"]].concat());
        assert_eq!(ended.code(), 0, "{ended:?}");
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    }

    /// Waits with `muster verify-hosts` until these nodes have validated a version.
    pub fn wait_validated(&self, version: &str, nodes: &[&str]) {
        let ended = self.run_muster(&[&["verify-hosts", version, "--wait", "--timeout", "90s"], nodes].concat());
        assert_eq!(ended.code(), 0, "{ended:?}\n{}", self.run_muster(&["status"]).stdout);
    }
}

/// The operator's tool.
pub fn muster() -> PathBuf {
    built("muster")
}

/// The agent; `muster up` looks for it beside itself.
pub fn muster_agent() -> PathBuf {
    built("muster-agent")
}

/// Path of a binary of this build. Tests and binaries of one profile are in one directory:
/// `target/debug/deps/fleet-1a2b` → `target/debug/muster`. Panics if it is missing: a test without the tested program
/// must fail.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    match test.parent().and_then(Path::parent).map(|profile| profile.join(name)) {
        Some(path) if path.is_file() => path,
        missing => panic!(
            "the binary `{name}` is not built ({} does not exist): run `make test`, \
             or first `cargo build --workspace --all-targets`",
            missing.unwrap_or_default().display()
        ),
    }
}

/// A project directory.
#[derive(Clone, Debug)]
pub struct TestProject {
    pub dir: PathBuf,
}

impl TestProject {
    /// A project with this many nodes of each role.
    pub fn new(sandbox: &Sandbox, roles: &[(&str, u32)]) -> Self {
        let mut text = "roles:\n".to_owned();
        for (role, cardinality) in roles {
            writeln!(text, "  {role}: {{cardinality: {cardinality}, flavor: local}}").unwrap();
        }
        Self::with_environment(sandbox, &text)
    }

    /// A project with this environment file.
    pub fn with_environment(sandbox: &Sandbox, text: &str) -> Self {
        let project = Self { dir: sandbox.path("project") };
        write_file(&project.dir.join(format!("environments/{ENV}.yaml")), text);
        project
    }

    #[must_use]
    pub fn release(self, version: &str, release: &ScriptRelease) -> Self {
        release.write(&self.dir.join("releases").join(version));
        self
    }

    /// A release with a Puppet manifest only.
    #[must_use]
    pub fn puppet_release(self, version: &str, manifest: &str) -> Self {
        let dir = self.dir.join("releases").join(version);
        write_file(&dir.join("release.yaml"), "applier: puppet\nmanifest: site.pp\n");
        write_file(&dir.join("site.pp"), manifest);
        self
    }
}

/// A barrier in the form of a named pipe. A script that reads a line from [`Barrier::path`] waits for
/// [`Barrier::release`].
#[derive(Debug)]
pub struct Barrier {
    path: PathBuf,
    /// Opened for reading too, so that neither side waits for the other to open it.
    pipe: File,
}

impl Barrier {
    pub fn new(path: PathBuf) -> Self {
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        Self { path, pipe }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Releases this many readers, present or future.
    pub fn release(&self, count: usize) {
        (&self.pipe).write_all("go\n".repeat(count).as_bytes()).unwrap();
    }
}
