//! An atomic change of the store, as plain data: what must hold, and what then becomes true.
//!
//! The planners of this workspace return these; only the store carries them out. Keeping the type here lets a
//! status move or a rollout step be tested without a store.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A point in the store's history. Every committed transaction gets the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Orders what an agent is told. An agent refuses an older generation than it has written down.
///
/// The number is a store revision, so it grows with every decision. The epoch is the time at which the store's content
/// began; it is larger for a store that was made anew or restored, whose revisions may start below those that agents
/// have already seen.
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

/// How many bytes a value may have. Anything bigger is a blob, and its key holds the digest. Small values keep a watch of
/// everything affordable.
pub const MAX_VALUE: usize = 16 * 1024;

/// A lease: keys bound to it go when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseId(pub i64);

/// What must hold for a transaction to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The key does not exist.
    Absent { key: String },
    /// The key exists, and was last changed at exactly this revision.
    Unchanged { key: String, since: Revision },
}

impl Guard {
    /// Guards a key by what a reader saw of it: its revision, or that it was not there.
    pub fn observed(key: impl Into<String>, revision: Option<Revision>) -> Self {
        let key = key.into();
        match revision {
            None => Guard::Absent { key },
            Some(since) => Guard::Unchanged { key, since },
        }
    }

    /// The key that is guarded.
    pub fn key(&self) -> &str {
        match self {
            Guard::Absent { key } | Guard::Unchanged { key, .. } => key,
        }
    }
}

/// One operation of a transaction. A transaction names each key at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put {
        key: String,
        value: Vec<u8>,
        lease: Option<LeaseId>,
    },
    /// Deleting a key that is not there is no error and changes nothing.
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

/// All of the guards hold and all of the operations happen, or nothing does.
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

    /// Joins two changes of different keys into one.
    pub fn merge(&mut self, other: Txn) {
        self.guards.extend(other.guards);
        self.ops.extend(other.ops);
    }
}
