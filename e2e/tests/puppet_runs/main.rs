//! Complete Puppet runs with the agent's code.
//!
//! There is no server: a test gives a node a release and a snapshot, and checks its files, report and log. A start of
//! Puppet costs seconds of CPU time, so each run checks as much as possible.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod control_repository;
mod converging;
mod encrypted;
mod failing;
mod from_git;
mod lookup;
mod node;
mod secrets;
