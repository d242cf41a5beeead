//! Integration tests of the agent against a scripted server.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bundles;
mod commands;
mod fake_server;
mod fixture;
mod interruption;
mod pauses;
mod periodic_validation;
mod queue;
mod releases;
mod runs;
mod server_faults;
