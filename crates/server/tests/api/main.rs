//! The HTTP API over loopback: a real server, a real embedded store, the real client.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::wildcard_enum_match_arm, clippy::disallowed_methods)]

mod access;
mod authority;
mod bundles;
mod contract;
mod data;
mod drift;
mod fixture;
mod floods;
mod idempotency;
mod identity;
mod invalid_requests;
mod liveness;
mod metrics;
mod oidc;
mod pauses;
mod people;
mod policies;
mod queries;
mod releases;
mod renewal;
mod reports;
mod restore;
mod rollouts;
mod runs;
mod secrets;
mod services;
mod sync;
