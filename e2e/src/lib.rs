//! Support of the end-to-end tests. The tests in `tests/` start the real `muster`, `muster-agent` and Puppet, and check what an
//! operator can see.
//!
//! - [`sandbox`]: a directory, a loopback network and an environment for each test. Every process of it is killed at the end.
//!   It also runs `muster` commands, and has projects, and barriers at which runs of a release wait.
//! - [`process`]: a child process with its output, its exit and its signals.
//! - [`server`]: `muster serve`, `muster up` and the API. [`agent`]: `muster-agent`.
//! - [`cluster`]: Muster on etcd with several replicas, fault injection, and a checker of the invariants.
//! - [`host`]: a real host with systemd, for tests with services and packages.
//! - [`http`]: a small HTTP client.
//!
//! A test waits for an event. Timeouts only end a test whose event never comes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test support: an unexpected result fails the test")]

pub mod agent;
pub mod cluster;
pub mod host;
pub mod http;
pub mod process;
pub mod sandbox;
pub mod server;
