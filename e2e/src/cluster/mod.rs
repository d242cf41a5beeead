//! Muster on a real etcd cluster: three members, two replicas, twenty agents; what is done to them, and who judges it.
//!
//! - [`fleet`]: all of it, started. [`program`]: one process of it, with a log in a file. [`proxy`]: what stands between
//!   agents and replicas, so that streams can be cut.
//! - [`load`]: somebody who changes the version all the time, so that reports flow while things break.
//! - [`fault`]: what is done. [`plan`]: faults in random order, from a seed; [`soak`]: such a plan, carried out.
//! - [`judge`]: what must hold, checked from outside. It reads the history of etcd, change by change, through a client of
//!   its own, and never asks Muster how Muster is doing; only [`views`] asks the replicas, to compare their answers with
//!   the store.
//!
//! Every test goes the same way: [`fleet::Fleet::start`], faults, [`fleet::Fleet::judge`] after each.
#![expect(clippy::print_stdout, reason = "a test tells what it does, and its runner shows that when it fails")]

pub mod acknowledged;
pub mod fault;
pub mod fleet;
pub mod judge;
pub mod load;
pub mod plan;
pub mod program;
pub mod proxy;
pub mod rollouts;
pub mod settle;
pub mod soak;
pub mod views;
