//! The last transactions in memory: watches that keep up never touch the file.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use crate::watch::Change;

/// A transaction that is durable.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) revision: u64,
    pub(super) changes: Vec<Change>,
}

impl Commit {
    fn bytes(&self) -> usize {
        let of = |change: &Change| match change {
            Change::Put(kv) => kv.key.len() + kv.value.len(),
            Change::Delete { key } => key.len(),
        };
        // What the structures themselves weigh counts too, or a million tiny changes would weigh nothing.
        self.changes.iter().map(|change| of(change) + size_of::<Change>()).sum::<usize>() + size_of::<Self>()
    }
}

/// Shared by all watches, so that the memory does not grow with their number. A watch that falls behind this reads on
/// from the file.
#[derive(Debug, Default)]
pub(super) struct Recent(RwLock<Ring>);

#[derive(Debug, Default)]
struct Ring {
    commits: VecDeque<Arc<Commit>>,
    bytes: usize,
}

/// Enough for a second of a busy fleet.
const MAX_COMMITS: usize = 4096;
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// What is there for a watch.
#[derive(Debug)]
pub(super) enum Next {
    /// These come next.
    Commits(Vec<Arc<Commit>>),
    /// Nothing is known from that revision on.
    Nothing,
    /// It is not in memory any more, or never was in this process.
    OnFile,
}

impl Recent {
    /// Adds transactions, the next ones in order.
    pub(super) fn extend(&self, commits: impl IntoIterator<Item = Commit>) {
        let mut ring = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for commit in commits {
            ring.bytes += commit.bytes();
            ring.commits.push_back(Arc::new(commit));
        }
        while ring.commits.len() > MAX_COMMITS || ring.bytes > MAX_BYTES {
            let Some(oldest) = ring.commits.pop_front() else { break };
            ring.bytes -= oldest.bytes();
        }
    }

    /// Forgets everything, because what comes next does not follow on what is here.
    pub(super) fn clear(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Ring::default();
    }

    /// At most `limit` transactions, starting with revision `next`, given that `head` has been reached.
    pub(super) fn from(&self, next: u64, head: u64, limit: usize) -> Next {
        let ring = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if next > head {
            return Next::Nothing;
        }
        // Revisions follow one another without holes, so the place in the ring is a subtraction.
        let found = ring.commits.front().and_then(|first| next.checked_sub(first.revision));
        let found = found.and_then(|skip| usize::try_from(skip).ok()).filter(|skip| *skip < ring.commits.len());
        match found {
            Some(skip) => Next::Commits(ring.commits.iter().skip(skip).take(limit).cloned().collect()),
            None => Next::OnFile,
        }
    }
}
