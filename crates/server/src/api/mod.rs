//! The HTTP API. [`router`] is its table of contents; each resource has a file of its own.

mod activities;
mod activity;
pub(crate) mod answer;
mod asked;
mod backup;
mod current_version;
mod design;
mod doctor;
mod environment;
mod environments;
mod failures;
mod filter;
mod fleet_runs;
mod health;
mod log;
mod metrics;
mod nodes;
mod page;
mod releases;
mod reports;
mod router;
mod running_versions;
mod runs;
mod schemas;
mod scope;
mod status;
mod sync;
mod verify_hosts;

pub(crate) use answer::chain;
pub use router::openapi;
pub(crate) use router::router;
