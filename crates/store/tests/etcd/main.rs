//! Tests of the etcd backend on real clusters.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod access;
mod contract;
mod faults;
mod health;
