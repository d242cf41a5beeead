//! Support for tests that start processes, use the disk or wait. Development only: no shipped binary links it.
//!
//! - [`wait`]: waits for a condition, with a timeout that only ends a test whose condition never holds.
//! - [`ProcessDir`]: a temporary directory. The processes that belong to it are killed when it is dropped, or by the next
//!   test if this test was killed.
//! - [`TestNetwork`]: a `127.a.b.0/24` that no other test uses.
//! - [`SmallDisk`]: a file system that is really full.
//! - [`records`]: names, node records and release records for a registration.
//! - [`secret_search`]: finds a secret in bytes, in any form.
//! - [`release`]: release directories with a script applier, and signed bundles of them.
//!
//! Real etcd clusters are in `crates/etcd-rig`, because they need etcd's client, which takes long to build.
//!
//! Everything here panics on an unexpected result: in a test there is no caller that could handle an error.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test support: an unexpected result fails the test")]

mod disk;
mod process_dir;
pub mod records;
pub mod release;
pub mod secret_search;
pub mod wait;

pub use disk::{SmallDisk, passed_in_a_namespace};
pub use process_dir::{Mark, ProcessDir, TestNetwork};
