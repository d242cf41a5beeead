//! An agent as a real process, with its own directories and releases.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use jiff::Timestamp;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{NodeName, Role};
use muster_core::node::agent::PROTOCOL;
use muster_core::report::Interfaces;
use muster_core::txn::Generation;
use muster_core::txn::Revision;
use muster_release::key::SigningKey;
use muster_testkit::release::{ScriptRelease, SignedBundle, write_script};
use muster_testkit::wait::within;
use muster_wire::sync::{DesiredState, SyncEvent};

use crate::bundles;

pub(crate) struct AgentFixture {
    directory: tempfile::TempDir,
    servers: Vec<SocketAddr>,
    state: PathBuf,
    /// Key that signs the releases; the agent trusts it.
    key: SigningKey,
    binary: PathBuf,
}

/// A running agent; it is killed with the test.
pub(crate) struct AgentProcess {
    pub(crate) child: Child,
}

impl AgentFixture {
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self::with_servers(&[server])
    }

    pub(crate) fn with_servers(servers: &[SocketAddr]) -> Self {
        let directory = tempfile::Builder::new().prefix("muster-agent-").tempdir().unwrap();
        let state = directory.path().join("state");
        for server in servers {
            bundles::serve(*server, directory.path().join("bundles"));
        }
        let binary = env!("CARGO_BIN_EXE_muster-agent").into();
        Self { directory, servers: servers.to_vec(), state, key: SigningKey::generate("test").unwrap(), binary }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// Adds another server with the same releases.
    pub(crate) fn with_server(mut self, server: SocketAddr) -> Self {
        bundles::serve(server, self.path().join("bundles"));
        self.servers = vec![server];
        self
    }

    /// Sets the agent's state directory, for example on a small disk.
    pub(crate) fn with_state(mut self, state: PathBuf) -> Self {
        self.state = state;
        self
    }

    /// Writes a release whose applier is a shell script; `spec` is added to its release.yaml.
    pub(crate) fn release(&self, version: &str, script: &str, spec: &str) -> DesiredState {
        ScriptRelease::new(script).spec(spec).write(&self.path().join("releases").join(version));
        self.desired(version, 1)
    }

    /// Adds an executable to a release.
    pub(crate) fn executable(&self, version: &str, name: &str, script: &str) {
        write_script(&self.path().join("releases").join(version).join(name), script);
    }

    /// Packs and signs a release with this serial, and stores it for the servers.
    pub(crate) fn desired(&self, version: &str, number: u64) -> DesiredState {
        self.desired_until(version, number, None)
    }

    /// The same, with an expiry time.
    pub(crate) fn desired_until(&self, version: &str, number: u64, expires: Option<Timestamp>) -> DesiredState {
        let dir = self.path().join("releases").join(version);
        let built = SignedBundle::build(&dir, version, number, expires, std::slice::from_ref(&self.key));
        let digest = &built.manifest.digest;
        bundles::put(&self.path().join("bundles"), &built.manifest.version, digest, &built.bundle);
        DesiredState {
            generation: Generation { epoch: 1, number },
            digest: digest.to_string(),
            version: built.manifest.version,
            serial: number,
            allow_older: false,
            confirm_within: None,
            manifest: built.signed,
        }
    }

    pub(crate) fn key(&self) -> &SigningKey {
        &self.key
    }

    pub(crate) fn write_config(&self) -> PathBuf {
        let path = self.path().join("agent.toml");
        let servers: Vec<_> = self.servers.iter().map(|server| format!("http://{server}")).collect();
        let text = format!(
            "env = \"test\"\nnode = \"web1\"\nserver = {:?}\nstate_dir = {:?}\nroot = {:?}\ntrusted_keys = [{:?}]\n\
             interfaces = {{ eth0 = \"127.0.0.1\" }}\nretry = {{ first = \"100ms\", cap = \"200ms\" }}\n",
            servers,
            self.state,
            self.path().join("root"),
            self.key.public().to_string(),
        );
        fs::write(&path, text).unwrap();
        path
    }

    /// Starts agents from a copy of the binary, which a run may replace.
    pub(crate) fn copy_binary(&mut self) -> PathBuf {
        let copy = self.path().join("muster-agent");
        fs::copy(&self.binary, &copy).unwrap();
        self.binary.clone_from(&copy);
        copy
    }

    /// Starts an agent whose pid is in this file.
    pub(crate) fn start_with_pid_file(&self, pid_file: &Path) -> AgentProcess {
        let agent = self.start();
        fs::write(pid_file, agent.child.id().unwrap().to_string()).unwrap();
        agent
    }

    pub(crate) fn start(&self) -> AgentProcess {
        AgentProcess { child: self.command().spawn().unwrap() }
    }

    /// Runs `once`, as cron does.
    pub(crate) fn start_once(&self) -> AgentProcess {
        AgentProcess { child: self.verb("once").spawn().unwrap() }
    }

    /// The same, with the agent's log in a file.
    pub(crate) fn start_with_log(&self, log: &Path) -> AgentProcess {
        let log = fs::File::create(log).unwrap();
        AgentProcess { child: self.command().stderr(log).spawn().unwrap() }
    }

    fn command(&self) -> Command {
        self.verb("run")
    }

    fn verb(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .arg(verb)
            .arg("--config")
            .arg(self.write_config())
            .env("RUST_LOG", "debug,hyper=info,reqwest=info")
            .kill_on_drop(true);
        command
    }
}

impl AgentProcess {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end of the agent. Returns its exit code.
    pub(crate) async fn ended(mut self) -> Option<i32> {
        within("the agent has ended", self.child.wait()).await.unwrap().code()
    }

    /// `kill -9`.
    pub(crate) async fn killed(self) {
        self.signal(Signal::KILL);
        assert_eq!(self.ended().await, None);
    }
}

/// First events of a stream: hello, desired state and snapshot.
pub(crate) fn first_events(desired: &DesiredState, snapshot: Snapshot) -> Vec<SyncEvent> {
    // The fake server sets the incarnation.
    let hello = SyncEvent::Hello {
        incarnation: 0,
        role: Role::new("web").unwrap(),
        host_name: None,
        now: Timestamp::UNIX_EPOCH,
        protocol: Some(PROTOCOL),
    };
    vec![hello, SyncEvent::Desired(desired.clone()), news(snapshot)]
}

pub(crate) fn news(snapshot: Snapshot) -> SyncEvent {
    SyncEvent::Snapshot { changed: Vec::new(), snapshot }
}

/// A fleet in which these nodes of role `db` are active.
pub(crate) fn with_dbs(revision: u64, nodes: &[&str]) -> Snapshot {
    let mut snapshot = Snapshot { revision: Revision(revision), ..Snapshot::default() };
    let interfaces = |node: &str| Interfaces::from([("eth0".to_owned(), format!("address-of-{node}"))]);
    let dbs = nodes.iter().map(|node| (NodeName::new(*node).unwrap(), interfaces(node))).collect();
    snapshot.active_roles.insert(Role::new("db").unwrap(), dbs);
    snapshot.active_roles.insert(Role::new("web").unwrap(), Default::default());
    snapshot
}
