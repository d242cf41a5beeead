//! Several servers on one store, in one process. Each has a store client in which the test can inject faults.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::wildcard_enum_match_arm, clippy::disallowed_methods)]

mod agents;
mod bad_day;
mod blobs;
mod cluster;
mod controllers;
mod leaders;
mod leaving;
mod logs;
mod machines;
mod members;
mod reading;
mod rollouts;
mod way;
mod writing;
