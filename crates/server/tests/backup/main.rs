//! Backups and restores, on the embedded store and on a real etcd.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod failures;
mod round_trip;
mod stores;
