//! The executor under changes between its IO requests and their results.

mod decisions;
mod host;
mod operator_command;
mod reconcile;
