//! What the end-to-end tests share. The tests themselves are in `tests/`: they start the real `muster`, the real
//! `muster-agent` and the real Puppet, and look at what an operator would look at.
//!
//! - [`stage`]: a place of its own for each test (directory, loopback network, announcements), and the end of
//!   everything that was started there, also when the test fails.
//! - [`process`]: a program that was started: its output line by line, its end, signals to it.
//! - [`operator`], [`server`], [`agent`], [`up`]: the programs under test.
//! - [`project`]: environments and releases that a test writes. [`gate`]: what lets a run of such a release go on.
//! - [`cluster`]: Muster on etcd with several replicas, what is done to it, and the judge of what must hold.
//! - [`http`]: the API, and whatever else answers.
//! - [`eventually`]: the one place that asks again and again, for what nobody tells by himself.
//!
//! A test waits for an event, with a deadline that is only there so that it ends when the event never comes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is test: what is not as expected fails it")]

pub mod agent;
pub mod binaries;
pub mod cluster;
pub mod gate;
pub mod http;
pub mod operator;
pub mod process;
pub mod project;
pub mod server;
pub mod stage;
pub mod up;
