//! Fixture: a store with several servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::identity::RENEWAL_GRACE;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, ReplicaId};
use muster_core::node::liveness::LivenessTimeouts;
use muster_core::replica::PresenceRecord;
use muster_identity::authority_files::AuthorityFiles;
use muster_server::{
    App, BlobPlace, Clock, ConnectionLimits, FirstVersion, LeasePace, Registration, Server, ServerConfig,
    ServerStartError, TlsConfig,
};

use muster_store::{Store, StoreAccess};
pub(crate) use muster_testkit::records::{node, version};
use muster_testkit::records::{node_records, release_records};
pub(crate) use muster_testkit::wait::until;
use muster_testkit::wait::{until_changed, within};
use muster_wire::client::{Client, SyncStream};
use muster_wire::sync::{SyncEvent, SyncOpen};
use muster_wire::token::Token;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::faulty_client::FaultyClient;

/// Long enough for a busy machine to keep a lease, and short enough to wait for its end.
const PACE: LeasePace = LeasePace { ttl: Duration::from_secs(3), keep_every: Duration::from_millis(400) };
/// For tests that wait for no lease to end. No lease expires, even on a busy machine.
const PATIENT: LeasePace = LeasePace { ttl: Duration::from_secs(30), keep_every: Duration::from_millis(400) };

pub(crate) fn env() -> EnvName {
    EnvName::new("test").unwrap()
}

pub(crate) fn keys() -> Keys {
    Keys::new(&env())
}

pub(crate) struct Cluster {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) dir: tempfile::TempDir,
    /// Clock of all servers, in seconds.
    pub(crate) time: Arc<AtomicI64>,
    pace: LeasePace,
    /// Directory of the certificate authority; none: the servers have no TLS.
    ca: Option<PathBuf>,
}

pub(crate) struct Replica {
    pub(crate) app: App,
    pub(crate) client: Client,
    pub(crate) way: Arc<FaultyClient>,
    stop: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

/// Token of the servers of these tests.
pub(crate) fn token() -> Token {
    Token::new("0123456789abcdef0123456789abcdef").unwrap()
}

impl Cluster {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spec = format!("embedded:{}", dir.path().join("store").display());
        let store = muster_store::open(&spec, &StoreAccess::default()).await.unwrap();
        Self::on(store, dir)
    }

    /// A cluster whose replicas lose their leases only when the test ends them.
    pub(crate) async fn patient() -> Self {
        Self { pace: PATIENT, ..Self::new().await }
    }

    /// A cluster on the given store, in place of the embedded one.
    pub(crate) fn on(store: Arc<dyn Store>, dir: tempfile::TempDir) -> Self {
        let time = Arc::new(AtomicI64::new(Timestamp::now().as_second()));
        Self { store, dir, time, pace: PACE, ca: None }
    }

    /// The same cluster; servers that start now have TLS, with the authority of a directory.
    pub(crate) fn with_authority(self, name: &str) -> Self {
        Self { ca: Some(self.dir.path().join(name)), ..self }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.time.load(Ordering::SeqCst)).unwrap()
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.dir.path().join("blobs")
    }

    pub(crate) async fn start(&self, blobs: impl Into<BlobPlace>) -> Result<Replica, ServerStartError> {
        self.start_on(self.store.clone(), blobs).await
    }

    /// Starts a replica with its own store client.
    pub(crate) async fn start_on(
        &self,
        store: Arc<dyn Store>,
        blobs: impl Into<BlobPlace>,
    ) -> Result<Replica, ServerStartError> {
        self.start_with_token(store, blobs, token()).await
    }

    pub(crate) async fn start_with_token(
        &self,
        store: Arc<dyn Store>,
        blobs: impl Into<BlobPlace>,
        token: Token,
    ) -> Result<Replica, ServerStartError> {
        let way = FaultyClient::new(store);
        let hand = self.time.clone();
        let config = ServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            tls: self.ca.as_ref().map(|directory| TlsConfig {
                files: Arc::new(AuthorityFiles::open_or_create(directory, self.now()).unwrap()),
                names: vec!["127.0.0.1".to_owned()],
                advertise: None,
                grace: RENEWAL_GRACE,
                replace_authority: false,
            }),
            socket: None,
            token: token.clone(),
            limits: ConnectionLimits::default(),
            blobs: blobs.into(),
            secrets_key: self.dir.path().join("secrets.key"),
            liveness_timeouts: LivenessTimeouts::default(),
            lease: self.pace,
            gate_commands: None,
            oidc: None,
            clock: Clock::from_fn(move || Timestamp::from_second(hand.load(Ordering::SeqCst)).unwrap()),
        };
        let stop = CancellationToken::new();
        let server = Server::start(config, way.clone(), stop.clone()).await?;
        for bundle in ["v1", "v2"] {
            server.app().blobs.put(bundle.as_bytes()).unwrap();
        }
        let (app, client) =
            (server.app().clone(), Client::with_token(&format!("http://{}", server.address()), Some(&token)).unwrap());
        Ok(Replica { app, client, way, stop, server: tokio::spawn(server.run()) })
    }

    pub(crate) async fn replica(&self) -> Replica {
        self.start(self.blobs()).await.unwrap()
    }

    /// Two servers that know each other, for nodes given as (name, role).
    pub(crate) async fn pair(&self, nodes: &[(&str, &str)]) -> (Replica, Replica) {
        let a = self.replica().await;
        muster_server::register(&a.app, &registration(nodes)).await.unwrap();
        a.sees("itself", |fleet| fleet.replicas().len() == 1 && !fleet.controllers().is_empty()).await;
        let b = self.replica().await;
        for replica in [&a, &b] {
            replica.sees("both", |fleet| fleet.replicas().len() == 2).await;
        }
        (a, b)
    }
}

pub(crate) fn registration(nodes: &[(&str, &str)]) -> Registration {
    Registration {
        env: env(),
        nodes: node_records(nodes, "default"),
        releases: release_records(&["v1", "v2"]),
        first_version: FirstVersion::Default(version("v1")),
        epoch: 7,
    }
}

impl Replica {
    pub(crate) fn id(&self) -> &ReplicaId {
        self.app.replica.membership.id()
    }

    /// Stops the replica as an operator does.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.server.await.unwrap().unwrap();
    }

    /// Waits until the replica ends without a request to stop, and returns the error.
    pub(crate) async fn ends(&mut self) -> std::io::Error {
        within("the replica ends", &mut self.server).await.unwrap().expect_err("it was not stopped")
    }

    /// Ends the replica as a power failure does: it does not release its lease or delete its keys.
    pub(crate) async fn kill(self) {
        self.way.cut(true);
        self.stop.cancel();
        let _ = self.server.await;
    }

    /// Waits until the view of the replica meets a condition.
    pub(crate) async fn sees(&self, what: &str, mut shows: impl FnMut(&Fleet) -> bool) {
        let holds = || self.app.view.fleets().get(&env()).is_some_and(&mut shows);
        until_changed(what, self.app.view.subscribe(), holds).await;
    }

    /// Waits until the presence record of a node names the replica, or none.
    pub(crate) async fn sees_presence(&self, name: &str, replica: Option<&ReplicaId>) {
        let name = node(name);
        let shown = |fleet: &Fleet| presence(fleet, &name).is_some_and(|shown| shown.replica.as_ref() == replica);
        self.sees(&format!("{name} at {replica:?}"), shown).await;
    }

    pub(crate) fn fleet(&self) -> Fleet {
        self.app.view.fleets()[&env()].clone()
    }

    pub(crate) async fn open(&self, name: &str, open: &SyncOpen) -> SyncStream {
        let mut stream = self.client.sync(&env(), &node(name), open).await.unwrap();
        loop {
            if let SyncEvent::Hello { .. } = stream.next().await.unwrap().unwrap() {
                return stream;
            }
        }
    }
}

pub(crate) fn presence(fleet: &Fleet, name: &NodeName) -> Option<PresenceRecord> {
    fleet.get(name)?.presence.as_ref().map(|(presence, _)| presence.clone())
}
