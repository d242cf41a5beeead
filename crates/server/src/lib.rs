//! The server: it follows the store, runs the controllers, answers the HTTP API and stores blobs.
//!
//! ```text
//!  store ──watch──▶ View::follow ──ViewChange──▶ Hub::wake ──wake──▶ stream (one per agent) ──SSE──▶ agent
//!    ▲                  │ RwLock                                                                     │
//!    │                  ▼                                                                            │
//!    ├──────────── api (reads never reach the store)                                                 │
//!    └──commit──── reports::IntakeTask (groups of distinct nodes) ◀──────────── POST reports ────────┘
//! ```
//!
//! A server is one of several replicas on the same store, or the only one: [`replica`] holds its lease, its controller locks
//! and the presence of its agents; [`Links`] knows which agents are connected, here or at another replica.
//!
//! [`backup`] saves and restores an environment, through the API or on a store that no server has open; [`doctor`]
//! examines the store and all replicas.
//!
//! Tasks: `View::follow` is the only writer of the view. `Hub::wake` turns its changes into wake-ups. `IntakeTask` is the only
//! task that moves the status of nodes. `Liveness` removes lost nodes from their roles; `Leaders` gives each role one leader.
//! Each request and each stream is a task of the HTTP server. All other tasks are in one `JoinSet`: if one ends, the server
//! ends.
//!
//! State: the store holds everything that must survive. The view can be built again at any time. The hub holds the state of
//! connections: sessions, activities, lookups, and the logs of runs in progress. Blobs hold reports with their logs.
//!
//! It must never: decide in a handler what a pure function of `muster-core` decides, read the store for what the view shows,
//! or wake a node for a key that its last run did not look up.

pub mod agents;
mod api;
pub mod backup;
mod blobs;
mod clock;
pub mod controllers;
pub mod design;
pub mod doctor;
pub mod fleet_change;
mod metrics;
mod registration;
pub mod releases;
pub mod replica;
mod reports;
pub mod rollouts;
mod server;
mod transactions;
mod view;

use std::sync::Arc;

use muster_core::names::{EnvName, NodeName, RunId};
use muster_core::node::liveness::LivenessTimeouts;
use muster_core::txn::Revision;
use muster_store::Store;
use muster_wire::client::{ClientError, Download};
use muster_wire::run_log::LogQuery;
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, watch};

use design::cache::Designs;
use replica::{ControllerLocks, Membership, Peers};
use rollouts::plans::Plans;
use view::node_rows::{AgentActivities, RemoteActivities};

pub use agents::{Admission, AgentLink, AgentLocation, Hub, Links, PING};
pub use api::openapi;
pub use blobs::downloads::Downloads;
pub use blobs::{BlobReader, BlobStore, BlobUpload, Blobs, PendingBlob, ReceiveError};
pub use clock::Clock;
pub use fleet_change::{FleetChange, FollowError, follow_design};
pub use registration::{FirstVersion, RegisterError, Registration, RegistrationResult, register, register_design};
pub use replica::LeasePace;
pub use reports::Reports;
pub use server::{Config, Server, StartError};
pub use view::{LatestRevision, View, ViewChange, node_rows};

/// State that handlers and controllers share.
#[derive(Clone, Debug)]
pub struct App {
    pub store: Arc<dyn Store>,
    pub view: Arc<View>,
    pub hub: Arc<Hub>,
    pub reports: Reports,
    pub blobs: Arc<Blobs>,
    /// Downloads in progress.
    pub downloads: Arc<Downloads>,
    pub designs: Arc<Designs>,
    pub liveness: Arc<controllers::liveness::Liveness>,
    pub membership: Arc<Membership>,
    pub controller_locks: Arc<ControllerLocks>,
    pub links: Arc<Links>,
    pub peers: Arc<Peers>,
    pub latest_revision: Arc<LatestRevision>,
    /// Cache of rollout plans.
    pub plans: Arc<Plans>,
    /// Revision of the view at the last reconcile of the rollout controller.
    pub rollouts_checked_at: Arc<watch::Sender<Option<Revision>>>,
    pub patience: LivenessTimeouts,
    pub clock: Clock,
    /// Admission of sync streams.
    pub admission: Arc<Admission>,
    /// Limit of the clients that follow logs.
    pub log_readers: Arc<Semaphore>,
    /// All metrics.
    pub metrics: Arc<Registry>,
}

impl App {
    /// Activities of all agents: of this server, and of other replicas as they were fetched.
    pub fn agents<'a>(&'a self, elsewhere: &'a RemoteActivities) -> AgentActivities<'a> {
        AgentActivities { links: &self.links, elsewhere }
    }

    /// Fetches the activities of other replicas' agents, for one node or for all.
    pub async fn activities_elsewhere(&self, env: &EnvName, node: Option<&NodeName>) -> RemoteActivities {
        self.peers.activities(&self.view, &self.links, env, node).await
    }

    /// Requests the log of a run from the replica of the node's agent. None if the agent is not connected to another one.
    pub(crate) async fn log_elsewhere(
        &self,
        env: &EnvName,
        node: &NodeName,
        run: &RunId,
        query: LogQuery,
    ) -> Option<Result<Download, ClientError>> {
        self.peers.log(&self.view, &self.links, env, node, run, query).await
    }
}
