//! Fixture: a server on the embedded store, in this process.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use muster_core::identity::RENEWAL_GRACE;
use muster_core::keys::Keys;
use muster_core::lookup::Lookups;
use muster_core::names::{EnvName, RunId};

use muster_core::node::liveness::LivenessTimeouts;
use muster_core::report::{Cause, Counts, Facts, Interfaces, Outcome, Report, RunResult, Verdict};
use muster_core::txn::Revision;
use muster_identity::authority_files::AuthorityFiles;
use muster_server::oidc::OidcConfig;
use muster_server::{
    App, Clock, ConnectionLimits, FirstVersion, LeasePace, Registration, Server, ServerConfig, TlsConfig, register,
};
use muster_store::Store;
pub(crate) use muster_testkit::records::{node, release_record, version};
use muster_testkit::records::{node_records, release_records};
use muster_testkit::wait::{until, until_changed};
use muster_wire::client::{Client, SyncStream};
use muster_wire::sync::{ReportAck, SyncEvent, SyncOpen};
use muster_wire::token::Token;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) struct Fixture {
    pub(crate) env: EnvName,
    pub(crate) app: App,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Client,
    pub(crate) dir: tempfile::TempDir,
    /// Hours by which the server's clock is ahead.
    pub(crate) hours: Arc<AtomicI64>,
    url: String,
    stop: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

pub(crate) const PASSED: Outcome = Outcome::Validated(Verdict::Passed);
pub(crate) const CHANGED: Outcome = Outcome::Configured(RunResult::Changed);

const SOCKET: &str = "server.sock";

/// Token of the servers of these tests.
pub(crate) fn token() -> Token {
    Token::new("0123456789abcdef0123456789abcdef").unwrap()
}

/// HTTP client with the token, for requests that the typed client does not make.
pub(crate) fn http() -> reqwest::Client {
    let authorization = format!("Bearer {}", token().as_str()).parse().unwrap();
    let headers = [(reqwest::header::AUTHORIZATION, authorization)].into_iter().collect();
    muster_wire::client::plain_http().default_headers(headers).build().unwrap()
}

/// What differs from the server of most tests.
#[derive(Default)]
struct StartOptions {
    liveness_timeouts: LivenessTimeouts,
    oidc: Option<OidcConfig>,
    limits: ConnectionLimits,
    /// Hours by which its clock is ahead.
    hours: i64,
}

impl Fixture {
    /// A server for nodes given as (name, role), with releases v1 and v2, at v1.
    pub(crate) async fn start(nodes: &[(&str, &str)]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), nodes, LivenessTimeouts::default()).await
    }

    /// A server that declares a silent node lost at once.
    pub(crate) async fn start_impatient(nodes: &[(&str, &str)]) -> Self {
        let liveness_timeouts = LivenessTimeouts { lost_after: SignedDuration::ZERO, grace: SignedDuration::ZERO };
        Self::start_in(tempfile::tempdir().unwrap(), nodes, liveness_timeouts).await
    }

    /// A server with other limits of connections.
    pub(crate) async fn start_limited(nodes: &[(&str, &str)], limits: ConnectionLimits) -> Self {
        let options = StartOptions { limits, ..StartOptions::default() };
        Self::start_server(tempfile::tempdir().unwrap(), nodes, options).await
    }

    /// A server whose clock is ahead by some hours.
    pub(crate) async fn start_ahead(nodes: &[(&str, &str)], hours: i64) -> Self {
        let options = StartOptions { hours, ..StartOptions::default() };
        Self::start_server(tempfile::tempdir().unwrap(), nodes, options).await
    }

    /// A server at which people can log in through an OIDC provider.
    pub(crate) async fn start_with_oidc(nodes: &[(&str, &str)], oidc: OidcConfig) -> Self {
        let options = StartOptions { oidc: Some(oidc), ..StartOptions::default() };
        Self::start_server(tempfile::tempdir().unwrap(), nodes, options).await
    }

    pub(crate) async fn start_in(
        dir: tempfile::TempDir,
        nodes: &[(&str, &str)],
        liveness_timeouts: LivenessTimeouts,
    ) -> Self {
        Self::start_server(dir, nodes, StartOptions { liveness_timeouts, ..StartOptions::default() }).await
    }

    async fn start_server(dir: tempfile::TempDir, nodes: &[(&str, &str)], options: StartOptions) -> Self {
        let StartOptions { liveness_timeouts, oidc, limits, hours } = options;
        let store = muster_store::open(
            &format!("embedded:{}", dir.path().join("store").display()),
            &muster_store::StoreAccess::default(),
        )
        .await
        .unwrap();
        let hours = Arc::new(AtomicI64::new(hours));
        let passed = hours.clone();
        let system = Clock::system();
        let clock = Clock::from_fn(move || system.now() + SignedDuration::from_hours(passed.load(Ordering::Relaxed)));
        let files = Arc::new(AuthorityFiles::open_or_create(&dir.path().join("ca"), clock.now()).unwrap());
        let tls = TlsConfig {
            files,
            names: vec!["127.0.0.1".to_owned()],
            advertise: None,
            grace: RENEWAL_GRACE,
            replace_authority: false,
        };
        let config = ServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            tls: Some(tls),
            socket: Some(dir.path().join(SOCKET)),
            token: token(),
            limits,
            blobs: dir.path().join("blobs").into(),
            secrets_key: dir.path().join("secrets.key"),
            liveness_timeouts,
            lease: LeasePace::default(),
            gate_commands: Some("/bin".into()),
            oidc,
            clock,
        };
        let stop = CancellationToken::new();
        let server = Server::start(config, store.clone(), stop.clone()).await.unwrap();
        let env = EnvName::new("test").unwrap();
        let app = server.app().clone();
        let url = format!("http://{}", server.address());
        let client = Client::with_token(&url, Some(&token())).unwrap();
        let server = tokio::spawn(server.run());
        let registration = Registration {
            env: env.clone(),
            nodes: node_records(nodes, "default"),
            releases: release_records(&["v1", "v2"]),
            first_version: FirstVersion::Default(version("v1")),
            epoch: 7,
        };
        for bundle in ["v1", "v2"] {
            app.blobs.put(bundle.as_bytes()).unwrap();
        }
        register(&app, &registration).await.unwrap();
        Self { env, app, store, client, dir, hours, url, stop, server }
    }

    /// Path of its Unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join(SOCKET)
    }

    /// URL of a path on the server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Stops the server and waits until it has ended.
    pub(crate) async fn run_to_its_end(self) {
        self.stop.cancel();
        self.server.await.unwrap().unwrap();
    }

    /// Stops the server and returns its state directory.
    pub(crate) async fn stop(self) -> tempfile::TempDir {
        let Self { app, store, dir, stop, server, .. } = self;
        stop.cancel();
        server.await.unwrap().unwrap();
        drop(app);
        // The tasks of closed connections release the store with a delay. The next server needs exclusive access.
        until("no task holds the store", || Arc::strong_count(&store) == 1).await;
        dir
    }

    pub(crate) fn report(&self, name: &str, incarnation: u64, seq: u64, outcome: Outcome) -> Report {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let chosen = self.app.view.fleets()[&self.env].desired().map(|desired| desired.generation);
        Report {
            node: node(name),
            incarnation,
            seq,
            run: RunId::new(format!("r{seq}")).unwrap(),
            outcome,
            version: version("v1"),
            digest: "sha256:1".into(),
            generation: chosen.unwrap_or_default(),
            causes: vec![Cause::AgentStarted],
            reason: None,
            attempt: 0,
            started: now,
            ended: now,
            counts: Counts::default(),
            errors: Vec::new(),
            changes: Vec::new(),
            first_failure: None,
            checks: Vec::new(),
            hooks: Vec::new(),
            services: Default::default(),
            published: None,
            facts: Facts {
                interfaces: Interfaces::from([("eth0".into(), format!("addr-of-{name}"))]),
                boot: None,
                agent: "test".into(),
                ..Facts::default()
            },
            lookups: Lookups::new(),
            log: format!("log of {name} {seq}"),
        }
    }

    pub(crate) async fn send(&self, report: &Report) -> ReportAck {
        self.client.report(&self.env, report).await.unwrap()
    }

    /// Reports a passed validation of a node in its first incarnation.
    pub(crate) async fn validate(&self, name: &str, seq: u64) -> ReportAck {
        self.send(&self.report(name, 1, seq, PASSED)).await
    }

    pub(crate) async fn open(&self, name: &str, open: &SyncOpen) -> SyncStream {
        self.client.sync(&self.env, &node(name), open).await.unwrap()
    }

    pub(crate) async fn revision(&self) -> Revision {
        self.store.revision().await.unwrap()
    }

    /// All keys of the environment and their revisions, except the keys of servers and the presence of agents.
    pub(crate) async fn state(&self) -> Vec<(String, Revision)> {
        let prefix = Keys::new(&self.env).prefix().to_owned();
        let all = self.store.range(&prefix, None).await.unwrap().kvs.into_iter();
        let of_servers = |key: &str| {
            let rest = key.trim_start_matches(&prefix);
            ["replicas/", "controllers/", "presence/"].iter().any(|begin| rest.starts_with(begin))
        };
        all.filter(|kv| !of_servers(&kv.key)).map(|kv| (kv.key, kv.revision)).collect()
    }

    /// Waits until the view meets a condition.
    pub(crate) async fn wait_for(&self, what: &str, mut shows: impl FnMut(&muster_core::fleet::Fleet) -> bool) {
        until_changed(what, self.app.view.subscribe(), || shows(&self.app.view.fleets()[&self.env])).await;
    }
}

/// The next event that is not a ping.
pub(crate) async fn next(stream: &mut SyncStream) -> SyncEvent {
    loop {
        match stream.next().await.unwrap().expect("the stream is open") {
            SyncEvent::Ping => {}
            event => return event,
        }
    }
}

/// Everything that this process logs, at every level.
#[derive(Clone, Default)]
pub(crate) struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl CapturedLog {
    /// Each test has a process of its own.
    pub(crate) fn start() -> Self {
        let captured = Self::default();
        let writer = captured.clone();
        let log = tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::TRACE);
        log.with_ansi(false).with_writer(move || writer.clone()).init();
        captured
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}
