//! A real server on an embedded store, the `muster` binary as its client, and fake agents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use muster_cli::connect::{Announcement, AnnouncementGuard, SearchPaths, announce};
use muster_core::names::{EnvName, Role, RunId, Version};
use muster_core::node::liveness::LivenessTimeouts;
use muster_core::node::status::Activity;
use muster_core::report::reason::{Need, RunReason};
use muster_core::report::{
    Cause, CheckResult, Counts, Facts, Interfaces, Outcome, Report, ResourceError, RunResult, Verdict,
};
use muster_core::txn::Generation;
use muster_server::{
    App, Clock, ConnectionLimits, FirstVersion, LeasePace, Registration, Server, ServerConfig, register,
};
use muster_testkit::records::{node_records, release_records};
use muster_wire::client::{Client, SyncStream};
use muster_wire::sync::{SyncEvent, SyncOpen};
use muster_wire::token::Token;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use muster_testkit::records::{node, version};
pub(crate) use muster_testkit::release::write_file as write;

pub(crate) const PASSED: Outcome = Outcome::Validated(Verdict::Passed);
pub(crate) const QUICKSTART: [(&str, &str); 4] = [("db1", "db"), ("web1", "web"), ("web2", "web"), ("lb1", "lb")];

/// Replaces values that differ between runs.
pub(crate) const FILTERS: [(&str, &str); 8] = [
    (r"\(revision \d+\)", "(revision N)"),
    (r"http://127\.0\.0\.1:\d+", "http://127.0.0.1:PORT"),
    (r"/[^\s:]*/\.tmp\w+", "TMP"),
    (r"20\d\d-\d\d-\d\dT[0-9:.]+Z", "TIME"),
    (r"deadline 20\d\d-\d\d-\d\d [0-9:]+ UTC", "deadline TIME"),
    (r"\b[0-9a-f]{64}\b", "DIGEST"),
    (r#"(revision|micros)("?): \d+"#, "$1$2: N"),
    (r#"("?)(epoch|number)("?): \d+"#, "$1$2$3: N"),
];

/// Compares exit code, standard output and standard error of a command.
#[macro_export]
macro_rules! snapshot {
    ($shown:expr $(, @$expected:literal)?) => {{
        let shown: String = $shown;
        insta::with_settings!({ filters => $crate::fixture::FILTERS.to_vec() }, {
            insta::assert_snapshot!(shown $(, @$expected)?)
        });
    }};
}

/// The directories of a machine and a user.
pub(crate) struct Machine {
    pub(crate) dir: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        ["run", "work/here", "elsewhere"]
            .iter()
            .for_each(|name| std::fs::create_dir_all(dir.path().join(name)).unwrap());
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn places(&self) -> SearchPaths {
        let (current_dir, user_dir) = (self.path("elsewhere"), self.path("run/muster"));
        SearchPaths { current_dir, user_dir, system_state: self.path("system") }
    }

    /// `muster` with these arguments, outside of the directory of the server.
    pub(crate) fn muster(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command
            .args(args)
            .env_clear()
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("MUSTER_AUTHOR", "jo@desk")
            .current_dir(self.path("elsewhere"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    pub(crate) async fn run(&self, args: &[&str]) -> String {
        shown(&self.muster(args).spawn().unwrap().wait_with_output().await.unwrap())
    }
}

/// Exit code and both streams as text.
#[must_use = "compare it with what is expected"]
pub(crate) fn shown(output: &Output) -> String {
    let part = |name: &str, bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        if text.is_empty() { String::new() } else { format!("--- {name}\n{text}") }
    };
    let code = output.status.code().map_or_else(|| "killed".to_owned(), |code| code.to_string());
    format!("exit {code}\n{}{}", part("stdout", &output.stdout), part("stderr", &output.stderr))
}

/// Value of [`Fleet::clock`] for the time of this machine.
pub(crate) const WALL_CLOCK: i64 = i64::MAX;

/// A running server with an environment.
pub(crate) struct Fleet {
    pub(crate) machine: Machine,
    pub(crate) env: EnvName,
    pub(crate) app: App,
    pub(crate) client: Client,
    pub(crate) url: String,
    pub(crate) streams: BTreeMap<String, SyncStream>,
    /// Time of the server in seconds, or [`WALL_CLOCK`].
    pub(crate) clock: Arc<AtomicI64>,
    announcement: Option<AnnouncementGuard>,
    tasks: JoinSet<std::io::Result<()>>,
    stop: CancellationToken,
}

/// Token of the servers of these tests.
pub(crate) fn token() -> Token {
    Token::new("0123456789abcdef0123456789abcdef").unwrap()
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        Self::start_with(Machine::new(), &QUICKSTART).await
    }

    /// The quickstart with one validated, one failed, one silent and one pending node.
    pub(crate) async fn halfway() -> Self {
        let mut fleet = Self::start().await;
        fleet.validate("db1", 1).await;
        let mut failed = fleet.report("web1", 1, Outcome::Configured(RunResult::Failed));
        failed.reason = Some(RunReason::NotCompiled);
        failed.attempt = 2;
        failed.errors = vec![ResourceError {
            message: "Syntax error at '}'".into(),
            file: Some("releases/v1/site.pp".into()),
            line: Some(12),
            ..ResourceError::default()
        }];
        failed.log = "Info: Loading facts\nError: \u{1b}[31mSyntax error at '}'\u{1b}[0m (line: 12)\n".into();
        fleet.send(&failed).await;
        let mut pending = fleet.report("lb1", 1, Outcome::Configured(RunResult::Pending));
        let role = Role::new("web").unwrap();
        pending.reason = Some(RunReason::Waiting { needs: vec![Need::Role { role, want: 2, have: 0 }] });
        fleet.send(&pending).await;
        for (name, _) in QUICKSTART.iter().filter(|(name, _)| *name != "web2") {
            fleet.connect(name, Activity::Idle).await;
        }
        fleet
    }

    /// The quickstart with all nodes validated.
    pub(crate) async fn validated() -> Self {
        let mut fleet = Self::start().await;
        for (name, _) in QUICKSTART {
            fleet.validate(name, 1).await;
            fleet.connect(name, Activity::Idle).await;
        }
        fleet
    }

    pub(crate) async fn start_with(machine: Machine, nodes: &[(&str, &str)]) -> Self {
        let fleet = Self::serve(machine).await;
        fleet.register("quickstart", nodes).await;
        fleet
    }

    /// Starts a server on the state of the machine.
    pub(crate) async fn serve(machine: Machine) -> Self {
        let state = machine.path("work/.muster");
        std::fs::create_dir_all(&state).unwrap();
        let store = muster_store::open(
            &format!("embedded:{}", state.join("store").display()),
            &muster_store::StoreAccess::default(),
        )
        .await
        .unwrap();
        // Five days and some hours ago.
        let start = Timestamp::now().as_second() - 5 * 86_400 - 43_200;
        let clock = Arc::new(AtomicI64::new(start));
        let time = clock.clone();
        let config = ServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            socket: None,
            token: token(),
            limits: ConnectionLimits::default(),
            blobs: muster_server::BlobPlace::Directory(state.join("blobs")),
            secrets_key: state.join("secrets.key"),
            liveness_timeouts: LivenessTimeouts {
                lost_after: SignedDuration::from_secs(30),
                grace: SignedDuration::from_secs(60),
            },
            lease: LeasePace::default(),
            gate_commands: None,
            oidc: None,
            clock: Clock::from_fn(move || match time.load(Ordering::SeqCst) {
                WALL_CLOCK => Timestamp::now(),
                seconds => Timestamp::from_second(seconds).unwrap(),
            }),
        };
        let token_file = state.join("token");
        std::fs::write(&token_file, token().as_str()).unwrap();
        let stop = CancellationToken::new();
        let server = Server::start(config, store, stop.clone()).await.unwrap();
        let (app, url) = (server.app().clone(), format!("http://{}", server.address()));
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run());
        let announcement = Announcement {
            url: url.clone(),
            pid: std::process::id().try_into().unwrap(),
            env: None,
            started: Timestamp::from_second(start).unwrap(),
            state,
            socket: None,
            token_file: Some(token_file),
        };
        let announcement = Some(announce(&machine.places(), announcement).unwrap());
        Self {
            client: Client::with_token(&url, Some(&token())).unwrap(),
            env: EnvName::new("quickstart").unwrap(),
            streams: BTreeMap::new(),
            machine,
            app,
            url,
            clock,
            announcement,
            tasks,
            stop,
        }
    }

    pub(crate) async fn register(&self, env: &str, nodes: &[(&str, &str)]) {
        let registration = Registration {
            env: EnvName::new(env).unwrap(),
            nodes: node_records(nodes, "rack1"),
            releases: release_records(&["v1", "v2"]),
            first_version: FirstVersion::Default(version("v1")),
            epoch: 7,
        };
        for bundle in ["v1", "v2"] {
            self.app.blobs.put(bundle.as_bytes()).unwrap();
        }
        register(&self.app, &registration).await.unwrap();
    }

    /// Stops the server; its state is kept.
    pub(crate) async fn stop(mut self) -> Machine {
        self.streams.clear();
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap().unwrap();
        }
        drop(self.announcement.take());
        self.machine
    }

    pub(crate) fn report(&self, name: &str, seq: u64, outcome: Outcome) -> Report {
        // Three days and some hours ago.
        let ended = Timestamp::from_second(Timestamp::now().as_second() - 3 * 86_400 - 43_200).unwrap();
        let check = |name: &str| CheckResult {
            name: name.into(),
            verdict: Verdict::Passed,
            message: "connected".into(),
            millis: 3,
        };
        Report {
            node: node(name),
            incarnation: 1,
            seq,
            run: RunId::new(format!("run-{seq}")).unwrap(),
            outcome,
            version: version("v1"),
            digest: "sha256:1".into(),
            // Newer than any generation that the server has sent, and not later than its clock.
            generation: Generation {
                epoch: u64::try_from(self.clock.load(Ordering::SeqCst)).unwrap(),
                number: 1_000_000,
            },
            causes: vec![Cause::AgentStarted, Cause::Version { version: version("v1") }],
            reason: None,
            attempt: 0,
            started: ended - SignedDuration::from_millis(3_400),
            ended,
            counts: Counts::default(),
            errors: Vec::new(),
            changes: Vec::new(),
            first_failure: None,
            hooks: Vec::new(),
            services: Default::default(),
            published: None,
            checks: if outcome == PASSED { vec![check("port")] } else { Vec::new() },
            facts: Facts {
                interfaces: Interfaces::from([("eth0".into(), "127.77.0.1".into())]),
                boot: None,
                agent: "test".into(),
                ..Facts::default()
            },
            lookups: BTreeMap::new(),
            log: format!("Notice: Applied catalog on {name}\n"),
        }
    }

    pub(crate) async fn send(&self, report: &Report) {
        self.client.report(&self.env, report).await.unwrap();
    }

    /// Reports a passed validation at v1.
    pub(crate) async fn validate(&self, name: &str, seq: u64) {
        self.send(&self.report(name, seq, PASSED)).await;
    }

    /// Reports a passed validation at a version.
    pub(crate) async fn validate_at(&self, name: &str, seq: u64, at: &str) {
        self.send(&Report { version: version(at), ..self.report(name, seq, PASSED) }).await;
    }

    pub(crate) async fn connect(&mut self, name: &str, activity: Activity) {
        let open = SyncOpen { incarnation: Some(1), activity, ..SyncOpen::default() };
        let mut stream = self.client.sync(&self.env, &node(name), &open).await.unwrap();
        stream.next().await.unwrap().expect("hello");
        self.streams.insert(name.to_owned(), stream);
    }

    /// Ends the stream of a node, and waits until the server has noticed.
    pub(crate) async fn disconnect(&mut self, name: &str) {
        self.streams.remove(name);
        let mut connections = self.app.agents.hub.subscribe();
        let is_gone = || self.app.agents.hub.session(&self.env, &node(name)).is_none();
        connections.wait_for(|_| is_gone()).await.unwrap();
    }

    /// Runs `muster`; returns its exit code and output.
    pub(crate) async fn muster(&self, args: &[&str]) -> String {
        self.machine.run(args).await
    }

    /// Runs `muster` with standard input.
    pub(crate) async fn muster_with(&self, args: &[&str], input: &str) -> String {
        let mut child = self.machine.muster(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        shown(&child.wait_with_output().await.unwrap())
    }
}

/// A terminal of 72 columns: the end to read from, and the end for a command.
pub(crate) fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let reader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&reader).unwrap();
    unlockpt(&reader).unwrap();
    let name = ptsname(&reader, Vec::new()).unwrap();
    let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let size = rustix::termios::Winsize { ws_row: 40, ws_col: 72, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    (reader.into(), terminal)
}

/// Reads the output of a terminal after the command has ended and was dropped.
pub(crate) fn read_terminal(mut reader: File) -> String {
    let mut text = Vec::new();
    // Reading from a closed terminal ends with an error.
    let _ = reader.read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}

type BrokenReleases = Arc<Mutex<BTreeSet<(String, Version)>>>;

pub(crate) struct FakeAgents {
    broken: BrokenReleases,
    _tasks: JoinSet<()>,
}

impl FakeAgents {
    /// Connects one agent per node.
    pub(crate) async fn start(fleet: &Fleet, nodes: &[(&str, &str)]) -> Self {
        let (broken, mut tasks) = (BrokenReleases::default(), JoinSet::new());
        for (name, _) in nodes {
            let mut stream = fleet.client.sync(&fleet.env, &node(name), &SyncOpen::default()).await.unwrap();
            let (client, env) = (fleet.client.clone(), fleet.env.clone());
            let (template, name, broken) = (fleet.report(name, 1, PASSED), (*name).to_owned(), broken.clone());
            tasks.spawn(async move {
                let (mut incarnation, mut seq) = (0, 0);
                while let Ok(Some(event)) = stream.next().await {
                    if let SyncEvent::Hello { incarnation: given, .. } = &event {
                        incarnation = *given;
                    }
                    let SyncEvent::Desired(desired) = event else { continue };
                    seq += 1;
                    let fails = broken.lock().unwrap().contains(&(name.clone(), desired.version.clone()));
                    let report = report(&template, desired.version, desired.generation, fails);
                    let run = RunId::new(format!("r{seq}")).unwrap();
                    client.report(&env, &Report { incarnation, seq, run, ..report }).await.unwrap();
                }
            });
        }
        Self { broken, _tasks: tasks }
    }

    /// From now on a node fails at a version.
    pub(crate) fn break_at(&self, name: &str, at: &str) {
        self.broken.lock().unwrap().insert((name.to_owned(), version(at)));
    }

    pub(crate) fn repair(&self, name: &str, at: &str) {
        self.broken.lock().unwrap().remove(&(name.to_owned(), version(at)));
    }
}

fn report(template: &Report, to: Version, generation: Generation, fails: bool) -> Report {
    let error = ResourceError {
        resource: Some("Package[nova]".into()),
        file: Some("manifests/site.pp".into()),
        line: Some(12),
        message: "no such version".into(),
    };
    Report {
        outcome: if fails { Outcome::Configured(RunResult::Failed) } else { PASSED },
        version: to,
        generation,
        errors: if fails { vec![error] } else { Vec::new() },
        ..template.clone()
    }
}
