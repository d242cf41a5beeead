//! HTTP API. [`router`] lists all paths; each resource has a file of its own.
//!
//! [`access`] admits clients. [`request`] and [`error`] hold what resources share: the parts of a request, and failures as
//! problems.

mod access;
mod agents;
mod authorization;
mod backup;
mod data;
mod design;
mod drift;
mod environments;
pub(crate) mod error;
mod identity;
mod key_write;
mod logs;
mod nodes;
mod pauses;
mod policies;
mod releases;
mod request;
mod rollouts;
mod router;
mod runs;
mod server;
mod services;
mod versions;

pub(crate) use access::{AccessControl, Encryption, Peer};
pub(crate) use error::chain;
pub use router::openapi;
pub(crate) use router::router;
