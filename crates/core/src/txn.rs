//! Transactions of the store as plain data: guards and operations. Also revisions, generations and leases.
//!
//! Decisions return transactions; only the store executes them. Status moves and rollout steps can be tested without a
//! store.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Revision of the store. Each committed transaction gets the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Orders the desired states that an agent is sent. An agent refuses an older generation than the one it has stored.
///
/// The number is a store revision and grows with each decision. The epoch is the time at which the content of the store
/// began. It is larger for a new or restored store, whose revisions may start below those that agents have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct Generation {
    pub epoch: u64,
    pub number: u64,
}

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.epoch, self.number)
    }
}

/// Maximum size of a value in bytes. Larger content is stored as a blob and its key holds the digest. Small values keep
/// a watch of all keys affordable.
pub const MAX_VALUE: usize = 16 * 1024;

/// A lease. Its keys are deleted when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseId(pub i64);

/// Condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The key does not exist.
    Absent { key: String },
    /// The key exists and was last changed at exactly this revision.
    Unchanged { key: String, since: Revision },
    /// No key with this prefix was put after this revision. Deleted keys do not count.
    NoneNewer { prefix: String, than: Revision },
}

impl Guard {
    /// Guards a key by its observed revision. None: the key did not exist.
    pub fn observed(key: impl Into<String>, revision: Option<Revision>) -> Self {
        let key = key.into();
        match revision {
            None => Guard::Absent { key },
            Some(since) => Guard::Unchanged { key, since },
        }
    }

    /// The key of the guard, or the prefix of its keys.
    pub fn key(&self) -> &str {
        match self {
            Guard::Absent { key } | Guard::Unchanged { key, .. } => key,
            Guard::NoneNewer { prefix, .. } => prefix,
        }
    }
}

/// One operation. A transaction names each key at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put {
        key: String,
        value: Vec<u8>,
        lease: Option<LeaseId>,
    },
    /// Deletes a key. No-op if it does not exist.
    Delete {
        key: String,
    },
}

impl Op {
    pub fn put(key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Op::Put { key: key.into(), value: value.into(), lease: None }
    }

    /// Puts a value as JSON.
    pub fn put_json<T: Serialize>(key: impl Into<String>, value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self::put(key, serde_json::to_vec(value)?))
    }

    pub fn delete(key: impl Into<String>) -> Self {
        Op::Delete { key: key.into() }
    }

    pub fn key(&self) -> &str {
        match self {
            Op::Put { key, .. } | Op::Delete { key } => key,
        }
    }
}

/// Values of the keys of a transaction before it, in the order of its operations. None: the key does not exist.
pub type ValuesBefore = Vec<Option<Vec<u8>>>;

/// Guards and operations, executed atomically: all operations if all guards hold, else none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    pub guards: Vec<Guard>,
    pub ops: Vec<Op>,
}

impl Txn {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guards.push(guard);
        self
    }

    #[must_use]
    pub fn op(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }

    /// Merges a transaction of other keys into this one.
    pub fn merge(&mut self, other: Txn) {
        self.guards.extend(other.guards);
        self.ops.extend(other.ops);
    }
}
