//! Benchmarks on a real etcd with one member.

pub(super) mod fan_out;
pub(super) mod reconnect;
pub(super) mod reports;
