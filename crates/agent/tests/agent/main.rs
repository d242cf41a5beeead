//! Integration tests of the agent against a scripted server.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod auto_rollback;
mod bundles;
mod command_line;
mod commands;
mod disk;
mod fake_server;
mod fixture;
mod interruption;
mod live_log;
mod pauses;
mod periodic_validation;
mod queue;
mod releases;
mod runs;
mod server_faults;
mod several_servers;
