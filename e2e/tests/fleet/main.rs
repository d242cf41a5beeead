//! Fleets of real processes, and what happens to them when something goes wrong.
//!
//! `muster serve`, `muster up` and `muster-agent` are started as an operator would start them, and are looked at through
//! the command line and the API alone. Most releases here have a shell script for an applier, which takes no time; the
//! real Puppet is used where it is Puppet that matters.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod agent_killed;
mod anything_dies;
mod applier_faults;
mod backup;
mod breaking_later;
mod data_and_publications;
mod environment_file;
mod failing_alike;
mod finding_the_server;
mod growing;
mod leaders;
mod left_the_design;
mod logs;
mod node_disk_full;
mod quickstart;
mod reports;
mod rollouts;
mod server_killed;
mod server_start;
mod store_full;
mod up;
mod waking_up;
