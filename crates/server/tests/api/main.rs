//! The HTTP API over loopback: a real server, a real embedded store, the real client.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::wildcard_enum_match_arm, clippy::disallowed_methods)]

mod admission;
mod asked;
mod bad_input;
mod bundles;
mod data;
mod fixture;
mod leaders;
mod liveness;
mod logs;
mod lookup;
mod metrics;
mod openapi;
mod openmetrics;
mod pauses;
mod questions;
mod releases;
mod reports;
mod restore;
mod rollouts;
mod sync;
