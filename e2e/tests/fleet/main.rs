//! Fleets of real processes and their faults.
//!
//! `muster serve`, `muster up` and `muster-agent` are started as an operator starts them, and observed only through the
//! command line and the API. Most releases have a shell script as applier, which is fast; Puppet is used where it
//! matters.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod agent_faults;
mod applier_faults;
mod cron;
mod data_and_publications;
mod drift;
mod growing;
mod host_names;
mod leaders;
mod periodic_validation;
mod quickstart;
mod random_kills;
mod reports;
mod rollouts;
mod runs;
mod server_faults;
mod server_start;
mod service_manager;
mod up;
mod watch;
