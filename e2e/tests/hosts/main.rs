//! Runs on real hosts, with systemd, apt and Puppet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

mod agent_restarts;
mod haproxy;
mod joining;
mod lost_runs;
mod rotation;
