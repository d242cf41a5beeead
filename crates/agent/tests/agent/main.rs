//! The agent as a process, against a server that says what a test tells it to.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod between;
mod bundles;
mod command_line;
mod disk;
mod fake_server;
mod fixture;
mod going_back;
mod interruption;
mod live_log;
mod mind;
mod pauses;
mod releases;
mod runs;
mod server_faults;
mod several_servers;
mod verbs;
