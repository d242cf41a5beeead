//! The newest revision that anybody here has heard of, and who waits for which event.
//!
//! A watch of a quiet prefix hears nothing while others write elsewhere, and its reader may be asked for a revision
//! that was made there. Every answer of etcd carries its revision, so this process mostly knows that there is one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;

#[derive(Debug)]
pub(super) struct Head {
    known: watch::Sender<u64>,
    expectations: Mutex<Vec<Weak<Expectation>>>,
}

/// What a watch can be sure to hear of: changes under its prefix that this process made itself.
#[derive(Debug)]
pub(super) struct Expectation {
    prefix: String,
    due: AtomicU64,
}

impl Expectation {
    /// The newest revision at which something was changed under the prefix by us.
    pub(super) fn due(&self) -> u64 {
        self.due.load(Ordering::Acquire)
    }

    /// Nothing is expected any more: the store has lost it.
    pub(super) fn forget(&self) {
        self.due.store(0, Ordering::Release);
    }
}

impl Head {
    pub(super) fn new() -> Self {
        Self { known: watch::Sender::new(0), expectations: Mutex::default() }
    }

    pub(super) fn known(&self) -> u64 {
        *self.known.borrow()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.known.subscribe()
    }

    /// Takes note of a revision that some answer carried.
    pub(super) fn heard(&self, revision: u64) {
        self.known.send_if_modified(|known| {
            let newer = revision > *known;
            if newer {
                *known = revision;
            }
            newer
        });
    }

    /// Takes note of the answer to a linearizable read, and what was known before it was asked. Such an answer can only
    /// be older than that if the store is not the one it was: restored from a backup, or another one.
    pub(super) fn confirmed(&self, before: u64, revision: u64) {
        if revision < before {
            self.known.send_replace(revision);
        } else {
            self.heard(revision);
        }
    }

    /// A watch of a prefix begins.
    pub(super) fn expect(&self, prefix: &str) -> Arc<Expectation> {
        let expectation = Arc::new(Expectation { prefix: prefix.to_owned(), due: AtomicU64::new(0) });
        let mut all = self.expectations.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&expectation));
        expectation
    }

    /// This process has made a revision that changed these keys for certain.
    pub(super) fn made<'k>(&self, revision: u64, keys: impl Iterator<Item = &'k str> + Clone) {
        let all = self.expectations.lock().unwrap_or_else(PoisonError::into_inner);
        for one in all.iter().filter_map(Weak::upgrade) {
            if keys.clone().any(|key| key.starts_with(&one.prefix)) {
                one.due.fetch_max(revision, Ordering::AcqRel);
            }
        }
        drop(all);
        // Afterwards, so that no watch hears of a revision before it can know that its event will come.
        self.heard(revision);
    }
}

#[cfg(test)]
mod tests {
    use super::Head;

    #[test]
    fn the_head_goes_back_only_with_the_store() {
        let head = Head::new();
        head.heard(7);
        head.heard(5);
        assert_eq!(head.known(), 7);
        head.confirmed(7, 9);
        assert_eq!(head.known(), 9);
        // Asked before 9 was heard of, so it says nothing about it.
        head.confirmed(7, 8);
        assert_eq!(head.known(), 9);
        head.confirmed(9, 3);
        assert_eq!(head.known(), 3);
    }

    #[test]
    fn a_watch_expects_what_was_made_under_its_prefix() {
        let head = Head::new();
        let (a, b) = (head.expect("a/"), head.expect("b/"));
        head.made(4, ["a/1", "c"].into_iter());
        assert_eq!((a.due(), b.due(), head.known()), (4, 0, 4));
        head.made(3, ["b/1"].into_iter());
        assert_eq!((a.due(), b.due(), head.known()), (4, 3, 4));
    }
}
