//! For tests only: a disk that is full, for real, when the test says so.
//!
//! A small file system is mounted, which only root may do, and only where mounting is allowed. So a test begins with
//! [`passed_in_a_namespace`]: it runs the test again in a mount namespace of its own, as root of a user namespace if the
//! caller is not root. Nothing else sees what is mounted there, and it is gone with the test, also when it is killed.
//!
//! ```no_run
//! # use muster_small_disk::{SmallDisk, passed_in_a_namespace};
//! // #[test]
//! fn a_full_disk_is_told() {
//!     if passed_in_a_namespace() {
//!         return;
//!     }
//!     let disk = SmallDisk::mount("1m");
//!     disk.fill();
//! }
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is test: what is not as expected fails it")]

mod disk;
mod namespace;

pub use disk::SmallDisk;
pub use namespace::passed_in_a_namespace;
