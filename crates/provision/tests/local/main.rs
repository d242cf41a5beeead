//! Local driver with real processes. The agent is replaced by a shell script, which reports its actions through a pipe.
//! Tests wait for these reports, not for time to pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::wildcard_enum_match_arm)]

mod agent_process;
mod leftover_machines;
mod machine;
mod site;
