//! The store contract as plain data: revisions, current state and leases. Time is an argument, nothing waits, and
//! errors follow only from the contract.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use muster_store::{CommitOutcome, Guard, KeyValue, Lease, LeaseId, Op, Revision, StoreError, Txn, WatchChange};

/// All keys at one revision.
pub(crate) type State = BTreeMap<String, KeyValue>;

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The state at the oldest readable revision.
    base: State,
    oldest: Revision,
    /// The changes of each later transaction.
    commits: BTreeMap<Revision, Vec<WatchChange>>,
    /// The current state.
    now: State,
    leases: BTreeMap<LeaseId, LeaseEntry>,
    granted: i64,
}

#[derive(Clone, Debug)]
struct LeaseEntry {
    ttl: Duration,
    deadline: Duration,
}

impl History {
    pub(crate) fn head(&self) -> Revision {
        self.commits.last_key_value().map_or(self.oldest, |(revision, _)| *revision)
    }

    pub(crate) fn oldest(&self) -> Revision {
        self.oldest
    }

    pub(crate) fn now(&self) -> &State {
        &self.now
    }

    /// The state at a revision: the base and all changes up to it.
    pub(crate) fn at(&self, revision: Revision) -> Result<State, StoreError> {
        self.check(revision)?;
        let mut state = self.base.clone();
        for changes in self.commits.range(..=revision).map(|(_, changes)| changes) {
            apply(&mut state, changes);
        }
        Ok(state)
    }

    /// The changes after a revision.
    pub(crate) fn after(
        &self,
        revision: Revision,
    ) -> Result<impl Iterator<Item = (Revision, &Vec<WatchChange>)>, StoreError> {
        self.check(revision)?;
        Ok(self.commits.range((Excluded(revision), Unbounded)).map(|(revision, changes)| (*revision, changes)))
    }

    fn check(&self, requested: Revision) -> Result<(), StoreError> {
        let (oldest, head) = (self.oldest, self.head());
        if requested > head {
            Err(StoreError::Ahead { requested, head })
        } else if requested < oldest {
            Err(StoreError::Compacted { requested, oldest })
        } else {
            Ok(())
        }
    }

    /// Guards are checked before leases: a conflict is reported whatever else is wrong.
    pub(crate) fn commit(&mut self, txn: &Txn) -> Result<CommitOutcome, StoreError> {
        let failed: Vec<_> = txn.guards.iter().filter(|guard| !self.holds(guard)).map(Guard::key).collect();
        if !failed.is_empty() {
            let failed = failed.into_iter().map(str::to_owned).collect();
            return Ok(CommitOutcome::Conflict { revision: self.head(), failed });
        }
        for op in &txn.ops {
            if let Op::Put { lease: Some(lease), .. } = op
                && !self.leases.contains_key(lease)
            {
                return Err(StoreError::LeaseEnded { lease: *lease });
            }
        }
        Ok(CommitOutcome::Committed { revision: self.apply(&txn.ops) })
    }

    fn holds(&self, guard: &Guard) -> bool {
        match guard {
            Guard::Absent { key } => !self.now.contains_key(key),
            Guard::Unchanged { key, since } => self.now.get(key).is_some_and(|kv| kv.revision == *since),
            Guard::NoneNewer { prefix, than } => {
                let keys = self.now.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(prefix));
                keys.into_iter().all(|(_, kv)| kv.revision <= *than)
            }
        }
    }

    /// Creates the next revision, unless nothing changes. A put always changes something, a delete only if the key
    /// exists.
    fn apply(&mut self, ops: &[Op]) -> Revision {
        let revision = Revision(self.head().0 + 1);
        let change = |op: &Op| match op {
            Op::Put { key, value, lease } => {
                let (key, value) = (key.clone(), value.clone().into());
                Some(WatchChange::Put(KeyValue { key, value, revision, lease: *lease }))
            }
            Op::Delete { key } => self.now.contains_key(key).then(|| WatchChange::Delete { key: key.clone() }),
        };
        let changes: Vec<_> = ops.iter().filter_map(change).collect();
        if !changes.is_empty() {
            apply(&mut self.now, &changes);
            self.commits.insert(revision, changes);
        }
        self.head()
    }

    pub(crate) fn grant(&mut self, ttl: Duration, now: Duration) -> Lease {
        self.granted += 1;
        let id = LeaseId(self.granted);
        self.leases.insert(id, LeaseEntry { ttl, deadline: now + ttl });
        Lease { id, ttl }
    }

    pub(crate) fn keep_alive(&mut self, lease: LeaseId, now: Duration) -> Result<(), StoreError> {
        let held = self.leases.get_mut(&lease).ok_or(StoreError::LeaseEnded { lease })?;
        held.deadline = now + held.ttl;
        Ok(())
    }

    /// Ends a lease, and deletes its keys in one transaction.
    pub(crate) fn revoke(&mut self, lease: LeaseId) -> Result<(), StoreError> {
        self.leases.remove(&lease).ok_or(StoreError::LeaseEnded { lease })?;
        let of_it = self.now.values().filter(|kv| kv.lease == Some(lease));
        let ops: Vec<_> = of_it.map(|kv| Op::delete(&kv.key)).collect();
        self.apply(&ops);
        Ok(())
    }

    /// An expired lease.
    pub(crate) fn overdue(&self, now: Duration) -> Option<LeaseId> {
        self.leases.iter().find(|(_, held)| held.deadline <= now).map(|(id, _)| *id)
    }

    /// Extends every lease from a moment on.
    pub(crate) fn extend_leases(&mut self, at: Duration) {
        self.leases.values_mut().for_each(|held| held.deadline = held.deadline.max(at + held.ttl));
    }

    /// The changes of one transaction; empty if they were compacted.
    pub(crate) fn at_revision(&self, revision: Revision) -> &[WatchChange] {
        self.commits.get(&revision).map(Vec::as_slice).unwrap_or_default()
    }

    /// Ends every expired lease.
    pub(crate) fn expire(&mut self, now: Duration) {
        let over: Vec<_> = self.leases.iter().filter(|(_, held)| held.deadline <= now).map(|(id, _)| *id).collect();
        for lease in over {
            // The lease exists, and this cannot fail.
            let _ = self.revoke(lease);
        }
    }

    /// The time when the next lease expires without a keep-alive.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.leases.values().map(|held| held.deadline).min()
    }

    /// Compacts the history up to a revision into the base.
    pub(crate) fn compact(&mut self, revision: Revision) -> Result<(), StoreError> {
        if revision <= self.oldest {
            return Ok(());
        }
        self.base = self.at(revision)?;
        self.commits = self.commits.split_off(&Revision(revision.0 + 1));
        self.oldest = revision;
        Ok(())
    }
}

fn apply(state: &mut State, changes: &[WatchChange]) {
    for change in changes {
        match change {
            WatchChange::Put(kv) => state.insert(kv.key.clone(), kv.clone()),
            WatchChange::Delete { key } => state.remove(key),
        };
    }
}

/// The keys of a state with a prefix, in order.
pub(crate) fn cut(state: &State, prefix: &str) -> Vec<KeyValue> {
    state.values().filter(|kv| kv.key.starts_with(prefix)).cloned().collect()
}
