//! Whole runs with the real Puppet, as the agent's own code makes and judges them.
//!
//! No server is here: a test gives a node a release and a snapshot, and looks at what became of the node's files, of the
//! report and of the log. A start of Puppet costs seconds of processor time, so each run shows as many things as it can.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod converging;
mod failing;
mod from_git;
mod needing;
mod node;
mod secrets;
