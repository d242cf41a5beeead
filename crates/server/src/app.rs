//! State that handlers and controllers share, split by what its user may touch, and the server's only clock.
//!
//! A handler names the parts that it needs: [`Reader`] answers from the view, blobs and the history of runs, [`Writer`] also commits to the
//! store, [`Agents`] reaches connected agents, [`ReplicaState`] is about this process. Its signature therefore says what it can
//! do. Only controllers and start-up hold the whole [`App`].

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use muster_core::audit::Actor;
use muster_core::names::{EnvName, NodeName, RunId, UserName};
use muster_core::node::liveness::LivenessTimeouts;
use muster_core::replica::ControllerName;
use muster_core::txn::Revision;
use muster_wire::client::{ClientError, Download};
use muster_wire::runs::LogQuery;
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::agents::{Admission, Hub, Links};
use crate::api::{ApiError, FailedLogins, IdempotencyClaim};
use crate::audit::{AuditedStore, Origin};
use crate::blobs::Blobs;
use crate::blobs::downloads::Downloads;
use crate::controllers::liveness::LivenessController;
use crate::design::compiled::Designs;
use crate::epochs::EpochClaims;
use crate::identity::tls::ServerTls;
use crate::oidc::OidcConfig;
use crate::releases::deltas::Deltas;
use crate::replica::{ControllerLocks, Membership, Peers};
use crate::reports::Reports;
use crate::rollouts::gate::commands::GateCommands;
use crate::rollouts::plans::Plans;
use crate::run_history::RunHistory;
use crate::secrets::SecretsFile;
use crate::view::node_rows::{AgentActivities, RemoteActivities};
use crate::view::{LatestRevision, View};

/// Reads: the view, blobs with their caches, and the history of runs.
#[derive(Clone, Debug)]
pub struct Reader {
    pub view: Arc<View>,
    /// Revision of the store, for reads that must not be stale.
    pub latest_revision: Arc<LatestRevision>,
    pub blobs: Arc<Blobs>,
    /// Runs of nodes, in the store.
    pub history: RunHistory,
    /// Downloads in progress.
    pub downloads: Arc<Downloads>,
    pub(crate) deltas: Arc<Deltas>,
    pub designs: Arc<Designs>,
    pub plans: Arc<Plans>,
    /// Commands that gates may run on this server.
    pub gate_commands: Arc<GateCommands>,
    pub clock: Clock,
    pub(crate) stop: CancellationToken,
}

impl Reader {
    /// Waits until the server begins to stop. Requests that wait for a change end then.
    pub(crate) async fn stopping(&self) {
        self.stop.cancelled().await;
    }
}

/// Reads, and commits to the store.
#[derive(Clone, Debug)]
pub struct Writer {
    pub reader: Reader,
    /// Changes are recorded in the audit, if the writer is of a request of a person.
    pub store: AuditedStore,
    pub(crate) epoch_claims: Arc<EpochClaims>,
}

/// The writer of a request: its changes are recorded with their origin. A handler whose changes are no matter of the audit, such
/// as reports of nodes, takes `State<Writer>`.
impl FromRequestParts<AppState> for Writer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, Response> {
        let origin = parts.extensions.get::<Arc<Origin>>().cloned();
        let unknown = || ApiError::internal("the origin of the request is unknown").into_response();
        let origin = origin.ok_or_else(unknown)?;
        let claim = parts.extensions.get::<Arc<IdempotencyClaim>>().cloned();
        let store = app.writer.store.with_origin(origin).with_claim(claim);
        Ok(Self { store, ..app.writer.clone() })
    }
}

impl Writer {
    /// The writer of a request whose client has proved to be a user.
    pub(crate) fn for_user(&self, name: &UserName) -> Self {
        let store = self.store.with_actor(Actor::User { name: name.clone() });
        Self { store, ..self.clone() }
    }
}

/// A writer can read.
impl Deref for Writer {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.reader
    }
}

/// Agents: those connected to this replica, and what other replicas report of theirs.
#[derive(Clone, Debug)]
pub struct Agents {
    pub hub: Arc<Hub>,
    pub links: Arc<Links>,
    pub peers: Arc<Peers>,
    pub reports: Reports,
    /// Limit of streams that are opened at the same time.
    pub admission: Arc<Admission>,
    /// Limit of clients that follow logs at the same time.
    pub log_readers: Arc<Semaphore>,
    /// Time until a silent agent counts as lost.
    pub liveness_timeouts: LivenessTimeouts,
}

impl Agents {
    /// Activities of all agents: of this replica, and those that other replicas reported.
    pub fn activities<'a>(&'a self, remote: &'a RemoteActivities) -> AgentActivities<'a> {
        AgentActivities { links: &self.links, remote }
    }

    /// Requests the activities of agents from the other replicas; of one node, or of all.
    pub async fn remote_activities(&self, view: &View, env: &EnvName, node: Option<&NodeName>) -> RemoteActivities {
        self.peers.activities(view, &self.links, env, node).await
    }

    /// Requests the log of a run from the replica that the node's agent is connected to; none if that is this replica or
    /// the agent is not connected.
    pub(crate) async fn remote_log(
        &self,
        view: &View,
        env: &EnvName,
        node: &NodeName,
        run: &RunId,
        query: LogQuery,
    ) -> Option<Result<Download, ClientError>> {
        self.peers.log(view, &self.links, env, node, run, query).await
    }
}

/// This replica: its membership, its controllers and its metrics.
#[derive(Clone, Debug)]
pub struct ReplicaState {
    pub membership: Arc<Membership>,
    pub controller_locks: Arc<ControllerLocks>,
    pub liveness: Arc<LivenessController>,
    /// File with the keys of secrets.
    pub(crate) secrets: Arc<SecretsFile>,
    /// Revision of the view at the last reconciliation of rollouts.
    pub rollouts_checked_at: Arc<watch::Sender<Option<Revision>>>,
    pub metrics: Arc<Registry>,
}

/// Identities on the network: the authority and the connections of nodes, if the server has TLS; the provider of logins.
#[derive(Clone, Debug)]
pub struct Identities {
    pub(crate) tls: Option<Arc<ServerTls>>,
    pub(crate) oidc: Option<Arc<OidcConfig>>,
    /// Limit of logins that ask the provider at the same time.
    pub(crate) logins: Arc<Semaphore>,
    pub(crate) failed_logins: Arc<FailedLogins>,
}

/// The whole state of a server.
#[derive(Clone, Debug)]
pub struct App {
    pub writer: Writer,
    pub agents: Agents,
    pub replica: ReplicaState,
    pub identities: Identities,
}

impl App {
    /// The state, for a controller: its changes are recorded as decisions of it.
    pub(crate) fn for_controller(&self, name: ControllerName) -> Self {
        let origin = Arc::new(Origin::controller(name, self.replica.membership.id()));
        let writer = Writer { store: self.writer.store.with_origin(origin), ..self.writer.clone() };
        Self { writer, ..self.clone() }
    }
}

/// Controllers read and write.
impl Deref for App {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.writer
    }
}

/// The state of the router, which copies it several times for each request: a copy of [`App`] is forty counted references.
pub(crate) type AppState = Arc<App>;

impl FromRef<AppState> for App {
    fn from_ref(app: &AppState) -> Self {
        (**app).clone()
    }
}

impl FromRef<AppState> for Reader {
    fn from_ref(app: &AppState) -> Self {
        app.reader.clone()
    }
}

impl FromRef<AppState> for Writer {
    fn from_ref(app: &AppState) -> Self {
        app.writer.clone()
    }
}

impl FromRef<AppState> for Agents {
    fn from_ref(app: &AppState) -> Self {
        app.agents.clone()
    }
}

impl FromRef<AppState> for Identities {
    fn from_ref(app: &AppState) -> Self {
        app.identities.clone()
    }
}

impl FromRef<AppState> for ReplicaState {
    fn from_ref(app: &AppState) -> Self {
        app.replica.clone()
    }
}

/// Source of the current time. Decisions get the time as an argument; only this type reads the machine's clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the edge at which time enters the server")]
        Self::from_fn(Timestamp::now)
    }

    /// A clock for tests.
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
