//! Checks store requests against size limits. They are the same on every backend, so
//! that what works on one machine works on a cluster.

use std::collections::HashSet;
use std::time::Duration;

use muster_core::txn::{Op, Txn};

pub use muster_core::txn::MAX_VALUE;

/// Keys are paths of names; the longest valid path is far below this.
pub const MAX_KEY: usize = 1024;

/// Operations, and guards, that every store takes in one transaction: etcd's default. A store may take more, see
/// [`Store::max_ops`](crate::Store::max_ops).
pub const MAX_OPS: usize = 128;

/// All keys and values of one transaction. etcd refuses requests over 1.5 MiB; its encoding needs part of that.
pub const MAX_TXN: usize = 1024 * 1024;

/// A request that breaks a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    #[error("a key is empty")]
    EmptyKey,
    #[error("the key {key:.64}… has {len} bytes, at most {MAX_KEY} are allowed")]
    LongKey { key: String, len: usize },
    #[error(
        "the value of {key} has {len} bytes, at most {MAX_VALUE} are allowed: store it as a blob and put its digest here"
    )]
    BigValue { key: String, len: usize },
    #[error("the transaction has {count} operations, at most {max} are allowed: split it")]
    ManyOps { count: usize, max: usize },
    #[error("the transaction has {count} guards, at most {max} are allowed: split it")]
    ManyGuards { count: usize, max: usize },
    #[error("the transaction has {len} bytes of keys and values, at most {MAX_TXN} are allowed: split it")]
    BigTxn { len: usize },
    #[error("the transaction has two operations on {key}: the result would depend on their order")]
    DuplicateKey { key: String },
    #[error("a lease of {ttl:?} is too short to be kept alive: use at least one second")]
    ShortLease { ttl: Duration },
}

/// Checks a transaction against the limits before it is sent. `max`: operations, and guards, that the store takes.
pub fn check_txn(txn: &Txn, max: usize) -> Result<(), InvalidRequest> {
    if txn.ops.len() > max {
        return Err(InvalidRequest::ManyOps { count: txn.ops.len(), max });
    }
    if txn.guards.len() > max {
        return Err(InvalidRequest::ManyGuards { count: txn.guards.len(), max });
    }
    let mut len = 0;
    for guard in &txn.guards {
        check_key(guard.key())?;
        len += guard.key().len();
    }
    let mut named = HashSet::with_capacity(txn.ops.len());
    for op in &txn.ops {
        check_key(op.key())?;
        len += op.key().len() + value_len(op);
        if value_len(op) > MAX_VALUE {
            return Err(InvalidRequest::BigValue { key: op.key().to_owned(), len: value_len(op) });
        }
        if !named.insert(op.key()) {
            return Err(InvalidRequest::DuplicateKey { key: op.key().to_owned() });
        }
    }
    if len > MAX_TXN {
        return Err(InvalidRequest::BigTxn { len });
    }
    Ok(())
}

/// Checks the length of a key.
pub fn check_key(key: &str) -> Result<(), InvalidRequest> {
    if key.is_empty() {
        return Err(InvalidRequest::EmptyKey);
    }
    if key.len() > MAX_KEY {
        return Err(InvalidRequest::LongKey { key: key.to_owned(), len: key.len() });
    }
    Ok(())
}

/// Checks the time to live of a lease. etcd counts leases in whole seconds, and a shorter one would expire between two
/// keep-alives.
pub fn check_ttl(ttl: Duration) -> Result<(), InvalidRequest> {
    if ttl < Duration::from_secs(1) { Err(InvalidRequest::ShortLease { ttl }) } else { Ok(()) }
}

fn value_len(op: &Op) -> usize {
    match op {
        Op::Put { value, .. } => value.len(),
        Op::Delete { .. } => 0,
    }
}
