//! The Puppet module `puppet/muster` and the releases of `examples/quickstart`, run by the real Puppet.
//!
//! There is no agent: the tests call `puppet apply` as the agent does, with their own snapshots. A start of Puppet
//! costs seconds of CPU time, so each run checks as much as possible.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod apply;
mod cross_node;
mod data;
mod faults;
mod lookups;
mod quickstart;
mod run_files;
