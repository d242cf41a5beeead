//! HTTP API. [`router`] lists all paths; each resource has a file of its own.
//!
//! [`access`] admits clients. [`request`] and [`error`] hold what resources share: the parts of a request, and failures as
//! problems.

mod access;
mod agents;
mod audit;
mod authority;
mod authorization;
mod backup;
mod conditional;
mod contract;
mod data;
mod design;
mod drift;
mod environments;
pub(crate) mod error;
mod failed_logins;
mod idempotency;
mod identity;
mod key_write;
mod login;
mod logs;
mod nodes;
mod pauses;
mod policies;
mod releases;
mod request;
mod rollouts;
mod router;
mod runs;
mod secrets;
mod server;
mod services;
mod users;
mod versions;
mod viewer;

pub(crate) use access::{AccessControl, Encryption, Peer};
pub(crate) use error::{ApiError, chain};
pub(crate) use failed_logins::FailedLogins;
pub(crate) use idempotency::IdempotencyClaim;
pub use router::openapi;
pub(crate) use router::router;
