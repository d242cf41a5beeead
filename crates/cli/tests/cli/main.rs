//! Tests of the command line: the real binary, with a server on an embedded store in this process.
//!
//! The tests do not depend on the machine: each has directories of its own, commands run with an empty environment, and the
//! clock of the server is stopped some days ago, which keeps ages constant.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod backup;
mod connect;
mod data;
mod design;
mod doctor;
mod documentation;
mod env;
mod fixture;
mod json;
mod nodes;
mod people;
mod project;
mod release;
mod release_push;
mod rollouts;
mod runs;
mod services;
mod status;
mod usage;
mod verify_hosts;
mod versions;
