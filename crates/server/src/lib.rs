//! The server: view, controllers, HTTP API and blobs.
//!
//! ```text
//!  store ──watch──▶ view::follow ──Changed──▶ hub::wake ──wake──▶ stream (one per agent) ──SSE──▶ agent
//!    ▲                  │ RwLock                                                                  │
//!    │                  ▼                                                                         │
//!    ├──────────── api (reads never hit the store)                                                │
//!    └──commit──── reports::Intake (groups of distinct nodes) ◀────────────── POST reports ───────┘
//! ```
//!
//! It is one of several replicas on the same store, or the only one: [`replica`] holds its lease, its controllers and
//! the presence of its agents; [`Links`] says whether an agent is connected, here or at another one.
//!
//! [`backup`] saves and restores an environment, through the API or on a store that no server has open; [`doctor`]
//! examines the store and all replicas.
//!
//! Tasks: `view::follow` is the only writer of the view. `hub::wake` turns what changed into wake-ups. `Intake` is the
//! only one that moves nodes' status. `Liveness` takes lost nodes out of their roles; `Leaders`
//! sees to it that each role has one leader. Each request and each stream is
//! a task of its own, owned by the HTTP server. All others are in one `JoinSet`: if one ends, the server ends.
//!
//! State: the store holds everything that must survive. The view can be built anew at any time; the hub holds what
//! dies with a connection (who is connected, what it does, what it has seen, the log of the run that goes on); blobs hold reports with their logs.
//!
//! It must never: decide in a handler what a pure function of `muster-core` decides, read the store to answer a
//! question that the view can answer, or wake a node for something that its last run did not look up.

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

/// What handlers and controllers share.
#[derive(Clone, Debug)]
pub struct App {
    pub store: Arc<dyn Store>,
    pub view: Arc<View>,
    pub hub: Arc<Hub>,
    pub reports: Reports,
    pub blobs: Arc<Blobs>,
    /// What is being downloaded.
    pub downloads: Arc<Downloads>,
    pub designs: Arc<Designs>,
    pub liveness: Arc<controllers::liveness::Liveness>,
    pub membership: Arc<Membership>,
    pub controller_locks: Arc<ControllerLocks>,
    pub links: Arc<Links>,
    pub peers: Arc<Peers>,
    pub latest_revision: Arc<LatestRevision>,
    /// The plans of rollouts that were read.
    pub plans: Arc<Plans>,
    /// How far the view was when this server last looked whether a rollout has something to do.
    pub rollouts_checked_at: Arc<watch::Sender<Option<Revision>>>,
    pub patience: LivenessTimeouts,
    pub clock: Clock,
    /// Whose streams are being opened.
    pub admission: Arc<Admission>,
    /// How many may follow logs at the same time.
    pub log_readers: Arc<Semaphore>,
    /// Everything that is measured.
    pub metrics: Arc<Registry>,
}

impl App {
    /// Who knows what agents do: this server, and what others have told.
    pub fn agents<'a>(&'a self, elsewhere: &'a RemoteActivities) -> AgentActivities<'a> {
        AgentActivities { links: &self.links, elsewhere }
    }

    /// Asks the other replicas what their agents do; of one node, or of all.
    pub async fn activities_elsewhere(&self, env: &EnvName, node: Option<&NodeName>) -> RemoteActivities {
        self.peers.activities(&self.view, &self.links, env, node).await
    }

    /// Asks the replica that a node's agent is connected to for the log of a run. None if that is no other replica.
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
