//! Tests of the embedded backend on real files.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod contract;
mod disk_full;
mod files;
mod kill;
