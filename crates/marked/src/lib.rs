//! Finds and terminates the processes that carry a mark in their environment.
//!
//! A mark is one environment variable with one value, set when a process is started. Children inherit it and keep it
//! when they change their process group, session or parent. With the mark, any process can find everything that a run or
//! a machine has started, also after a crash. A process group cannot do this.
//!
//! - [`find`] reads `/proc`. [`Process`] holds a pidfd, so that a signal never hits another process with a reused pid.
//! - [`terminate_all`] sends SIGTERM, after a grace period SIGKILL, and searches again until no process is left. A process
//!   that forks meanwhile does not escape.
//!
//! Not found are:
//!
//! - a process that was started with a cleared environment (`env -i`), or that has overwritten its initial environment,
//!   as some do to set a long process title (Ruby's `$0 = …`). Its children are found again;
//! - a process of another user, or one that has gained privileges: its environment cannot be read. Root reads all;
//! - a zombie: it has ended, and its parent has to reap it.
//!
//! The searching process itself is never found. This crate does not decide which processes to terminate, and keeps no
//! state between two calls.

mod process;

pub use process::{Process, Termination, TerminationSummary, find, terminate_all};
pub use rustix::process::Signal;
