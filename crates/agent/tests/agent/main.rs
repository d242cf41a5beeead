//! The agent as a process, against a server that says what a test tells it to.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

mod fake_server;
mod fixture;
mod runs;
