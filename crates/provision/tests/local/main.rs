//! The local driver with real processes. The agent is a stand-in: a shell script that tells, through a pipe, what it
//! does. Tests wait for what they are told, never for time to pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::wildcard_enum_match_arm)]

mod crash;
mod left_over;
mod life;
mod shutdown;
mod site;
