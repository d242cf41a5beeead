//! The server: it follows the store, runs the controllers, answers the HTTP API and stores blobs.
//!
//! ```text
//!  store ──watch──▶ View::follow ──ViewChange──▶ Hub::wake ──wake──▶ stream (one per agent) ──SSE──▶ agent
//!    ▲                  │ RwLock                                                                     │
//!    │                  ▼                                                                            │
//!    ├──────────── api (reads reach the store only for the history of runs)                           │
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
//! task that moves the status of nodes. `LivenessController` removes lost nodes from their roles; `LeadersController` gives
//! each role one leader.
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
mod app;
pub(crate) mod audit;
pub mod backup;
mod blobs;
pub mod controllers;
pub mod design;
pub mod doctor;
mod epochs;
pub mod identity;
mod metrics;
pub mod oidc;
pub mod private_files;
mod registration;
pub mod releases;
pub mod replica;
mod reports;
pub mod rollouts;
mod run_history;
mod secrets;
mod server;
mod transactions;
mod view;

pub use agents::{Admission, AgentConnection, AgentLink, Hub, Links, PING};
pub use api::openapi;
pub use app::{Agents, App, Clock, Identities, Reader, ReplicaState, Writer};
pub use blobs::downloads::Downloads;
pub use blobs::{
    BlobPlace, BlobPlaceError, BlobReader, BlobStore, BlobUpload, Blobs, PendingBlob, ReceiveError, S3Place, S3Timing,
};
pub use design::node_records::{FleetChange, FollowError, follow_design};
pub use epochs::begin_epochs;
pub use identity::{TlsConfig, read_authority};
pub use registration::{FirstVersion, RegisterError, Registration, RegistrationResult, register, register_design};
pub use replica::LeasePace;
pub use reports::Reports;
pub use run_history::RunHistory;
pub use server::{
    ConnectionLimits, Server, ServerConfig, ServerStartError, TOKEN_FILE, TokenFileError, read_token, state_token,
};
pub use view::{LatestRevision, View, ViewChange, node_rows};
