//! Fixture: a store with a blob directory, and servers on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_etcd_rig::ClusterOptions;

use muster_core::node::liveness::LivenessTimeouts;

use muster_server::{App, Clock, ConnectionLimits, LeasePace, Server, ServerConfig};
use muster_store::{Store, StoreAccess};
pub(crate) use muster_testkit::records::node;
use muster_testkit::wait::until_changed;
use muster_wire::client::{Client, ClientError};
use muster_wire::design::{ApplyDesign, ApplyDesignResponse, DesignInput, SourceBundle, SourceFile};
use muster_wire::problem::Problem;
use muster_wire::token::Token;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::faulty_client::FaultyClient;

/// Short enough that the lease of a killed server ends soon. Long enough that a busy machine keeps its leases.
const PACE: LeasePace = LeasePace { ttl: Duration::from_secs(5), keep_every: Duration::from_millis(400) };

pub(crate) struct StoreFixture {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) dir: tempfile::TempDir,
    _etcd: Option<muster_etcd_rig::Cluster>,
}

pub(crate) struct Replica {
    pub(crate) app: App,
    pub(crate) client: Client,
    pub(crate) url: String,
    pub(crate) way: Arc<FaultyClient>,
    stop: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

pub(crate) fn env() -> EnvName {
    EnvName::new("test").unwrap()
}

pub(crate) fn keys() -> Keys {
    Keys::new(&env())
}

impl StoreFixture {
    pub(crate) async fn embedded() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spec = format!("embedded:{}", dir.path().join("store").display());
        Self { store: muster_store::open(&spec, &StoreAccess::default()).await.unwrap(), dir, _etcd: None }
    }

    pub(crate) async fn etcd() -> Self {
        let etcd = muster_etcd_rig::Cluster::start(ClusterOptions::members(1)).await;
        let spec = etcd.spec();
        let store = muster_store::open(&spec, &StoreAccess::default()).await.unwrap();
        Self { store, dir: tempfile::tempdir().unwrap(), _etcd: Some(etcd) }
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.dir.path().join("blobs")
    }

    pub(crate) async fn replica(&self) -> Replica {
        let way = FaultyClient::new(self.store.clone());
        let config = ServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            socket: None,
            token: token(),
            limits: ConnectionLimits::default(),
            blobs: self.blobs().into(),
            secrets_key: self.blobs().with_file_name("secrets.key"),
            liveness_timeouts: LivenessTimeouts::default(),
            lease: PACE,
            gate_commands: None,
            oidc: None,
            clock: Clock::system(),
        };
        let stop = CancellationToken::new();
        let server = Server::start(config, way.clone(), stop.clone()).await.unwrap();
        let url = format!("http://{}", server.address());
        let (app, client) = (server.app().clone(), Client::with_token(&url, Some(&token())).unwrap());
        Replica { app, client, url, way, stop, server: tokio::spawn(server.run()) }
    }
}

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

impl Replica {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.server.await.unwrap().unwrap();
    }

    /// Ends the server as a power failure does.
    pub(crate) async fn kill(self) {
        self.way.cut(true);
        self.stop.cancel();
        let _ = self.server.await;
    }

    pub(crate) async fn apply(&self, bundles: Vec<SourceBundle>) -> Result<ApplyDesignResponse, ClientError> {
        let design = DesignInput { bundles, ..DesignInput::default() };
        let apply =
            ApplyDesign { design, message: "a test".into(), author: Some("ann".into()), ..ApplyDesign::default() };
        self.client.apply_design(&env(), &apply).await
    }

    /// URL of a path of the design API.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}/v1/envs/test/design{path}", self.url)
    }

    /// Waits until the view of the server meets a condition.
    pub(crate) async fn sees(&self, what: &str, mut shows: impl FnMut(&Fleet) -> bool) {
        let holds = || self.app.view.fleets().get(&env()).is_some_and(&mut shows);
        until_changed(what, self.app.view.subscribe(), holds).await;
    }

    pub(crate) fn nodes(&self) -> Vec<String> {
        let fleets = self.app.view.fleets();
        fleets
            .get(&env())
            .map(|fleet| fleet.designed().map(|(name, ..)| name.to_string()).collect())
            .unwrap_or_default()
    }
}

pub(crate) fn bundle(name: &str, files: &[(&str, &str)]) -> SourceBundle {
    let file = |(path, text): &(&str, &str)| SourceFile { path: (*path).into(), text: (*text).into() };
    SourceBundle { name: name.into(), files: files.iter().map(file).collect() }
}

pub(crate) const PROFILES: &str = "\
kind: HostProfile
name: base
spec:
  tags: [bare, old]
  owner_data: {team: infra}
---
kind: HostProfile
name: frontend
extends: [base]
spec:
  tags: ['!old', edge]
";

/// A site with one database and the given number of web servers.
pub(crate) fn site(web: u32) -> Vec<SourceBundle> {
    let roles = format!(
        "roles:\n  db: {{cardinality: 1, flavor: small}}\n  web: {{cardinality: {web}, flavor: small, profile: frontend}}\n"
    );
    vec![bundle("site", &[("environments/test.yaml", &roles), ("profiles.yaml", PROFILES)])]
}

/// The problem of a refused request.
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Problem {
    match answer {
        Err(ClientError::Refused(problem)) => *problem,
        other => panic!("not refused: {other:?}"),
    }
}
