//! The contract as plain data: what was, what is, and who must be kept alive. Time is an argument, nothing waits, and
//! nothing fails but by the rules of the contract.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use muster_store::{CommitOutcome, Guard, KeyValue, Lease, LeaseId, Op, Revision, StoreError, Txn, WatchChange};

/// Everything that is there at one revision.
pub(crate) type State = BTreeMap<String, KeyValue>;

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// What was there at the oldest revision that can still be read …
    base: State,
    oldest: Revision,
    /// … what each transaction since then changed …
    commits: BTreeMap<Revision, Vec<WatchChange>>,
    /// … and what all of that comes to.
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

    /// The state at a revision: the base, and everything that happened up to then.
    pub(crate) fn at(&self, revision: Revision) -> Result<State, StoreError> {
        self.check(revision)?;
        let mut state = self.base.clone();
        for changes in self.commits.range(..=revision).map(|(_, changes)| changes) {
            apply(&mut state, changes);
        }
        Ok(state)
    }

    /// What happened after a revision.
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

    /// The guards are looked at first, and then the leases: what is refused is refused, whatever it wanted to do.
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
        }
    }

    /// Makes the next revision, unless nothing changes: a put always does, a delete only of what is there.
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

    /// Ends a lease; all of its keys go in one transaction.
    pub(crate) fn revoke(&mut self, lease: LeaseId) -> Result<(), StoreError> {
        self.leases.remove(&lease).ok_or(StoreError::LeaseEnded { lease })?;
        let of_it = self.now.values().filter(|kv| kv.lease == Some(lease));
        let ops: Vec<_> = of_it.map(|kv| Op::delete(&kv.key)).collect();
        self.apply(&ops);
        Ok(())
    }

    /// A lease whose time is over.
    pub(crate) fn overdue(&self, now: Duration) -> Option<LeaseId> {
        self.leases.iter().find(|(_, held)| held.deadline <= now).map(|(id, _)| *id)
    }

    /// Lets every lease begin anew at a moment.
    pub(crate) fn extend_leases(&mut self, at: Duration) {
        self.leases.values_mut().for_each(|held| held.deadline = held.deadline.max(at + held.ttl));
    }

    /// What one transaction changed; nothing if that is no longer known.
    pub(crate) fn at_revision(&self, revision: Revision) -> &[WatchChange] {
        self.commits.get(&revision).map(Vec::as_slice).unwrap_or_default()
    }

    /// Ends every lease whose time is over.
    pub(crate) fn expire(&mut self, now: Duration) {
        let over: Vec<_> = self.leases.iter().filter(|(_, held)| held.deadline <= now).map(|(id, _)| *id).collect();
        for lease in over {
            // It was there a moment ago, so this cannot fail.
            let _ = self.revoke(lease);
        }
    }

    /// When the next lease ends if nobody keeps it alive.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.leases.values().map(|held| held.deadline).min()
    }

    /// Folds what happened up to a revision into the base.
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

/// The keys of a state that start with a prefix, in order.
pub(crate) fn cut(state: &State, prefix: &str) -> Vec<KeyValue> {
    state.values().filter(|kv| kv.key.starts_with(prefix)).cloned().collect()
}
