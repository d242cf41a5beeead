//! Fleets of real processes and their faults.
//!
//! `muster serve`, `muster up` and `muster-agent` are started as an operator starts them, and observed only through the
//! command line and the API. Most releases have a shell script as applier, which is fast; Puppet is used where it
//! matters.
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
