//! Several servers on one store, in one process. Each has a store client in which the test can inject faults.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::wildcard_enum_match_arm, clippy::disallowed_methods)]

mod agents;
mod authority;
mod cluster;
mod consistency;
mod controllers;
mod decommission;
mod faulty_client;
mod faulty_store;
mod membership;
mod provision;
mod rollouts;
