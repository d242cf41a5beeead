//! Muster on a real etcd cluster under faults: three members, two replicas, twenty agents, and a checker.
//!
//! - [`fleet`] starts everything. [`program`] is one process with a log file. [`proxy`] is between agents and replicas,
//!   and can cut streams.
//! - [`load`] changes the version all the time, so that reports are in flight during faults.
//! - [`fault`] injects faults. [`plan`] makes a random plan from a seed, and [`soak`] executes it.
//! - [`checker`] verifies invariants from outside. It reads the history of etcd through its own client and never asks
//!   Muster; only [`views`] asks the replicas, to compare their responses with the store.
//!
//! Every test has the same shape: [`fleet::Fleet::start`], faults, and [`fleet::Fleet::check`] after each.
#![expect(clippy::print_stdout, reason = "progress of a test, shown by the runner when it fails")]

pub mod agent_log;
pub mod checker;
pub mod fault;
pub mod fleet;
pub mod load;
pub mod plan;
pub mod program;
pub mod proxy;
pub mod rollouts;
pub mod settle;
pub mod soak;
pub mod views;
