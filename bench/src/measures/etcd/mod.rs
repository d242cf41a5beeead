//! Benchmarks on a real etcd with one member.

pub(super) mod fan_out;
pub(super) mod fan_out_staged;
pub(super) mod growth;
pub(super) mod raw_puts;
pub(super) mod reconnect;
pub(super) mod replica;
pub(super) mod reports;
pub(super) mod store;
