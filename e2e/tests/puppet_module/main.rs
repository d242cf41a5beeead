//! The Puppet module `puppet/muster` and the content of `examples/quickstart`, run by the real Puppet.
//!
//! No agent is here: the tests call `puppet apply` as the agent does, with snapshots of their own making. A start of Puppet
//! costs seconds of CPU time, so each run shows as many things as it can.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod apply;
mod cross_node;
mod data;
mod faults;
mod lookups;
mod pending;
mod publish;
mod quickstart;
mod report;
