//! Runs on real hosts, with systemd, apt and Puppet.
#![allow(clippy::unwrap_used, reason = "tests")]

mod agent_restarts;
mod haproxy;
