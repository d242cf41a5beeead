//! Three etcd members, two replicas, and as many agents as a test wants, each a process with a log file.

use std::fmt::Write as _;
use std::fs;
use std::fs::{DirBuilder, File};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use muster_etcd_rig::{ChangeRecorder, Cluster, ClusterOptions};
use muster_testkit::release::ScriptRelease;
use muster_testkit::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::cluster::checker::HistoryChecker;
use crate::cluster::load::Load;
use crate::cluster::proxy::AgentProxy;
use crate::cluster::settle::AgentLog;
use crate::sandbox::{Sandbox, TestProject, muster_agent};
use crate::server::{Api, ENV};

/// Role `db` is looked up by nodes of the role `web`.
const ROLES: [(&str, u8); 2] = [("db", 4), ("web", 16)];
pub const VERSIONS: [&str; 2] = ["v1", "v2"];
/// Prefix that the checker reads.
pub const PREFIX: &str = "/muster/";
/// Directory of the programs that gates may run, in the sandbox.
pub const GATES: &str = "gates";
/// The last part of the address of the first replica; the second has the next.
const FIRST_REPLICA: u8 = 240;
/// Addresses of the proxies, which agents use as their servers.
const FIRST_PROXY: u8 = 230;
const REPLICAS: usize = 2;
/// etcd's quota: small enough to fill it in seconds, and larger than the reports of this many minutes.
const fn quota(minutes: u64) -> u64 {
    (64 + 24 * minutes) * 1024 * 1024
}
/// If set, the logs are kept even when the test passes.
const KEEP_LOGS: &str = "MUSTER_KEEP_LOGS";
/// Timeout of the start: twenty-five processes on a machine with two processors.
pub const START: Duration = Duration::from_secs(120);

/// Content of a fleet besides etcd and the replicas.
#[derive(Debug)]
pub struct Setup {
    /// Number of nodes of each role.
    pub roles: Vec<(&'static str, u8)>,
    /// Additional lines of the environment file.
    pub environment: Option<String>,
    /// Additional documents.
    pub documents: String,
    /// The release; all versions have the same content.
    pub release: ScriptRelease,
    pub versions: Vec<&'static str>,
}

impl Setup {
    /// Nodes with lookups between two roles, and two versions to switch between.
    fn plain(journal: &Path) -> Self {
        Self {
            roles: ROLES.to_vec(),
            environment: None,
            documents: String::new(),
            release: release(journal),
            versions: VERSIONS.to_vec(),
        }
    }

    fn project(&self, sandbox: &Sandbox) -> TestProject {
        let mut project = match &self.environment {
            Some(text) => TestProject::with_environment(sandbox, text),
            None => {
                let roles: Vec<(&str, u32)> = self.roles.iter().map(|(role, many)| (*role, u32::from(*many))).collect();
                TestProject::new(sandbox, &roles)
            }
        };
        if !self.documents.is_empty() {
            fs::write(project.dir.join("nodes.yaml"), &self.documents).unwrap();
        }
        for version in &self.versions {
            project = project.release(version, &self.release);
        }
        project
    }

    fn node_names(&self) -> Vec<String> {
        let of_role =
            |(role, many): &(&str, u8)| (1..=*many).map(|number| format!("{role}{number}")).collect::<Vec<_>>();
        self.roles.iter().flat_map(of_role).collect()
    }
}

/// The running fleet. The order of the fields is the order of shutdown: load, agents, replicas, etcd.
#[derive(Debug)]
pub struct ClusterFleet {
    pub load: Load,
    pub agents: Vec<AgentLog>,
    _agents: Vec<LoggedProcess>,
    pub proxies: Vec<AgentProxy>,
    pub replicas: Vec<ServerReplica>,
    pub checker: HistoryChecker,
    pub changes: ChangeRecorder,
    pub etcd: Cluster,
    /// Dropped after everything that uses it.
    pub runtime: Arc<Runtime>,
    pub journal: PathBuf,
    pub sandbox: Sandbox,
    _logs: Logs,
}

/// One replica, through all restarts.
#[derive(Debug)]
pub struct ServerReplica {
    pub name: String,
    pub address: SocketAddr,
    pub api: Api,
    args: Vec<String>,
    pub program: LoggedProcess,
}

/// Directory of the logs. It is kept when the test fails.
#[derive(Debug)]
struct Logs(Option<TempDir>);

impl ClusterFleet {
    /// Starts everything for a run of this many minutes. When this returns every node has validated its first version,
    /// and the load is on.
    pub fn start(minutes: u64) -> Self {
        let sandbox = Sandbox::new();
        let setup = Setup::plain(&sandbox.path("journal"));
        let mut fleet = Self::launch(sandbox, &setup, minutes);
        fleet.settle_for_the_first_time();
        fleet.load.resume();
        fleet
    }

    /// Starts everything without waiting. Appliers write to `journal` in the sandbox.
    pub fn launch(sandbox: Sandbox, setup: &Setup, minutes: u64) -> Self {
        let logs = Logs::new();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let options = ClusterOptions {
            quota_bytes: Some(quota(minutes)),
            logs: Some(logs.path().to_owned()),
            ..ClusterOptions::members(3)
        };
        let (etcd, changes) = runtime.block_on(async {
            let etcd = Cluster::start(options).await;
            let changes = etcd.record_changes(PREFIX, 1);
            (etcd, changes)
        });

        let journal = sandbox.path("journal");
        let project = setup.project(&sandbox);
        let replicas: Vec<ServerReplica> = (0..REPLICAS)
            .map(|index| ServerReplica::start(&sandbox, &etcd.spec(), &project, index, logs.path()))
            .collect();
        let proxies: Vec<AgentProxy> = (FIRST_PROXY..)
            .zip(&replicas)
            .map(|(last, replica)| AgentProxy::start(sandbox.address(last), replica.address))
            .collect();

        let names = setup.node_names();
        let programs: Vec<LoggedProcess> =
            (1..).zip(&names).map(|(number, name)| agent(&sandbox, name, number, &proxies, logs.path())).collect();
        let agents = names
            .iter()
            .zip(&programs)
            .map(|(name, program)| AgentLog::new(name, program.log(), &sandbox.path(&format!("nodes/{name}/agent"))))
            .collect();
        let load = Load::new(replicas.iter().map(|replica| replica.api.clone()).collect());
        let mut checker = HistoryChecker::default();
        checker.agents_started(1);
        Self {
            load,
            agents,
            _agents: programs,
            proxies,
            replicas,
            checker,
            changes,
            etcd,
            runtime: Arc::new(runtime),
            journal,
            sandbox,
            _logs: logs,
        }
    }

    /// Blocks on a future of the rig.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.agents.iter().map(|agent| agent.node.as_str())
    }
}

impl ServerReplica {
    fn start(sandbox: &Sandbox, store: &str, project: &TestProject, index: usize, logs: &Path) -> Self {
        let name = format!("replica{}", index + 1);
        let address: SocketAddr = (sandbox.address(FIRST_REPLICA + u8::try_from(index).unwrap()), 7300).into();
        // Each replica has its own state; all share the blobs.
        let (state, blobs) = (sandbox.path(&name), sandbox.path("blobs"));
        let gates = sandbox.path(GATES);
        fs::create_dir_all(&blobs).unwrap();
        fs::create_dir_all(&gates).unwrap();
        if index > 0 {
            copy_shared_keys(&sandbox.path("replica1"), &state);
        }
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let args = ["serve", "--store", store, "--listen", &address.to_string()].map(str::to_owned).into_iter();
        let args: Vec<String> = args
            .chain(["--blobs".to_owned(), text(&blobs), "--state".to_owned(), text(&state)])
            .chain(["--project".to_owned(), text(&project.dir)])
            .chain(["--gate-commands".to_owned(), text(&gates)])
            .chain(["--release-key".to_owned(), text(&sandbox.release_key())])
            .collect();
        let mut program = launch(sandbox, &name, &args, logs);
        program.wait_for_output("API: http://", START);
        Self { name, address, api: Api::new(address.to_string(), ENV), args, program }
    }

    /// Restarts it with the same arguments.
    pub fn start_again(&mut self, sandbox: &Sandbox) {
        let logs = self.program.log().parent().unwrap().to_owned();
        self.program = launch(sandbox, &self.name, &self.args, &logs);
        self.program.wait_for_output("API: http://", START);
    }
}

/// Copies the certificate authority and the keys of secrets, as an operator does: all servers of a store have the same.
fn copy_shared_keys(from: &Path, to: &Path) {
    DirBuilder::new().recursive(true).mode(0o700).create(to.join("ca")).unwrap();
    for file in ["ca/ca.crt", "ca/ca.key", "secrets.key"] {
        // With its mode.
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
}

fn launch(sandbox: &Sandbox, name: &str, args: &[String], logs: &Path) -> LoggedProcess {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    LoggedProcess::start(name, sandbox.muster(&args).env("RUST_LOG", "warn,muster=debug"), logs)
}

/// Every run appends its node and run to the journal. Nodes of the role `web` look up those of `db`. Run times differ
/// between nodes, so that some node reports at any time.
fn release(journal: &Path) -> ScriptRelease {
    let script = r#"
echo "$MUSTER_NODE $MUSTER_RUN_ID" >> JOURNAL
if [ "$MUSTER_ROLE" = web ]; then echo active_roles::db >> "$MUSTER_LOOKUPS_FILE"; fi
number=${MUSTER_NODE##*[a-z]}
sleep "0.$((number * 7 % 10))"
echo "$MUSTER_VERSION" > "$MUSTER_ROOT/version"
exit 2"#;
    ScriptRelease::new(&script.replace("JOURNAL", journal.to_str().unwrap()))
        .program("right", r#"read version < "$MUSTER_ROOT/version"; [ "$version" = "$MUSTER_VERSION" ]"#)
        .check("{name: right, exec: right, deadline: 30s}")
        // The checker knows the cause of each run.
        .spec("run_every: never\n")
}

fn agent(sandbox: &Sandbox, name: &str, number: u8, proxies: &[AgentProxy], logs: &Path) -> LoggedProcess {
    let home = sandbox.path(&format!("nodes/{name}"));
    let (state, root) = (home.join("agent"), home.join("root"));
    fs::create_dir_all(&root).unwrap();
    let servers: Vec<String> = proxies.iter().map(AgentProxy::url).collect();
    let mut text = String::new();
    let mut say = |key: &str, value: &dyn std::fmt::Debug| writeln!(text, "{key} = {value:?}").unwrap();
    say("env", &ENV);
    say("node", &name);
    say("server", &servers);
    say("state_dir", &state.to_str().unwrap());
    say("root", &root.to_str().unwrap());
    say("puppet_agent_lock", &"none");
    say("trusted_keys", &[sandbox.trusted_key()]);
    writeln!(text, "interfaces = {{ eth0 = \"{}\" }}", sandbox.address(number)).unwrap();
    let config = home.join("agent.toml");
    fs::write(&config, text).unwrap();
    let mut command = sandbox.command(muster_agent());
    // The checker compares the store with the acknowledgements in this log.
    command.args(["run", "--config"]).arg(&config).env("RUST_LOG", "info,muster_agent::report=debug");
    LoggedProcess::start(&format!("agent-{name}"), &mut command, logs)
}

impl Logs {
    fn new() -> Self {
        Self(Some(tempfile::Builder::new().prefix("muster-cluster-logs-").tempdir().unwrap()))
    }

    fn path(&self) -> &Path {
        self.0.as_ref().map(TempDir::path).unwrap()
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        let wanted = std::env::var_os(KEEP_LOGS).is_some_and(|text| !text.is_empty());
        if (std::thread::panicking() || wanted)
            && let Some(kept) = self.0.take()
        {
            let path = kept.keep();
            #[expect(clippy::print_stderr, reason = "shows the logs of a failed test")]
            {
                eprintln!("the logs of etcd, the replicas and the agents are kept in {}", path.display());
            }
        }
    }
}

/// A running or killed process. Dropping it kills it.
#[derive(Debug)]
pub struct LoggedProcess {
    name: String,
    log: PathBuf,
    /// Offset of this process in the log, which all processes of the name share.
    begin: usize,
    child: Child,
}

impl LoggedProcess {
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

    /// True if it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for LoggedProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
