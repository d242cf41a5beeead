//! The command line as its users meet it: the real binary, asking a real server on a real store in this process.
//!
//! Nothing here depends on the machine: each test has directories of its own, the environment of a command is empty but
//! for what the test says, and the server's clock stands still, some days ago, so that ages are the same each time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod backup;
mod data;
mod design;
mod doctor;
mod env;
mod failures;
mod filters;
mod finding;
mod fixture;
mod nodes;
mod output;
mod pauses;
mod pushing;
mod reference;
mod release;
mod robots;
mod rollouts;
mod runs;
mod serve;
mod status;
mod usage;
mod verify_hosts;
mod versions;
