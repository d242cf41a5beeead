//! Tracks etcd's latest known revision, and checks that quiet watches have reached it.
//!
//! A watch of a quiet prefix gets no events while other keys change, but its reader may need to reach a revision made
//! there. Every response of etcd carries its revision, so this process mostly knows the latest one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use etcd_client::proto::{PbRangeResponse, PbTxnOpResponse};
use etcd_client::{GetOptions, Txn as Request, TxnOp};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::read::KeySpan;
use super::request::{EtcdShared, RequestError, RetryPolicy, revision};

#[derive(Debug)]
pub(super) struct Head {
    known: watch::Sender<u64>,
    watches: Mutex<Vec<Weak<ExpectedEvents>>>,
}

/// Revisions that a watch will certainly deliver: changes under its prefix by this process.
#[derive(Debug)]
pub(super) struct ExpectedEvents {
    prefix: String,
    newest: AtomicU64,
}

impl ExpectedEvents {
    /// The newest of these revisions.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// Resets it after the store was replaced.
    pub(super) fn reset(&self) {
        self.newest.store(0, Ordering::Release);
    }
}

impl Head {
    pub(super) fn new() -> Self {
        Self { known: watch::Sender::new(0), watches: Mutex::default() }
    }

    pub(super) fn known(&self) -> u64 {
        *self.known.borrow()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.known.subscribe()
    }

    /// Records the revision of a response.
    pub(super) fn observe(&self, revision: u64) {
        self.known.send_if_modified(|known| {
            let newer = revision > *known;
            if newer {
                *known = revision;
            }
            newer
        });
    }

    /// Records the result of a linearizable read. `before` is the revision known before the request. An older result
    /// means that the store was restored from a backup or replaced.
    pub(super) fn confirm(&self, before: u64, revision: u64) {
        if revision < before {
            self.known.send_replace(revision);
        } else {
            self.observe(revision);
        }
    }

    /// Registers a watch of a prefix.
    pub(super) fn register_watch(&self, prefix: &str) -> Arc<ExpectedEvents> {
        let expected = Arc::new(ExpectedEvents { prefix: prefix.to_owned(), newest: AtomicU64::new(0) });
        let mut all = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&expected));
        expected
    }

    /// Records a revision of this process that changed these keys.
    pub(super) fn committed<'k>(&self, revision: u64, keys: impl Iterator<Item = &'k str> + Clone) {
        let all = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        for one in all.iter().filter_map(Weak::upgrade) {
            if keys.clone().any(|key| key.starts_with(&one.prefix)) {
                one.newest.fetch_max(revision, Ordering::AcqRel);
            }
        }
        drop(all);
        // Last, so that a watch never sees the revision before it can expect its event.
        self.observe(revision);
    }
}

/// Time that an event may take before a probe. Most events are faster.
const SETTLE: Duration = Duration::from_millis(5);

/// The check that a quiet watch needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchCheck {
    /// Newer revisions exist, and it is unknown whether they changed keys of the watch.
    Probe,
    /// An expected event is overdue.
    Overdue,
}

/// Resolves when a watch that has delivered everything up to a revision needs a check. Never, while no newer revision
/// is known: an idle fleet sends no probes.
pub(super) async fn next_check(
    shared: &EtcdShared,
    expected: &ExpectedEvents,
    delivered: u64,
    next_probe: Instant,
) -> WatchCheck {
    let mut known = shared.head.subscribe();
    loop {
        // Cannot fail: the sender lives in `shared`.
        let _ = known.wait_for(|known| *known > delivered).await;
        if expected.newest() <= delivered {
            sleep_until(next_probe.max(Instant::now() + SETTLE)).await;
            if expected.newest() <= delivered {
                return WatchCheck::Probe;
            }
        }
        // This process made the change, so its event comes without a probe.
        sleep(shared.options.timeouts.overdue_event).await;
        if expected.newest() > delivered {
            return WatchCheck::Overdue;
        }
    }
}

/// Difference of a prefix between a revision and now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrefixDifference {
    /// The prefix is unchanged at this revision. Keys may have been put *and deleted* in between, which makes no
    /// difference to a reader of the state.
    Unchanged { head: u64 },
    /// The prefix has changed; the watch will deliver it.
    Changed,
    /// The store is at an earlier revision: it was restored from a backup or replaced.
    StoreBehind { head: u64 },
}

/// Compares in one linearizable transaction: no key was put after the revision, and the number of keys is the same.
/// Then no key was deleted either, except keys that were put and deleted in between.
pub(super) async fn difference(
    shared: &EtcdShared,
    span: &KeySpan,
    since: u64,
) -> Result<PrefixDifference, RequestError> {
    let at = i64::try_from(since.max(1)).unwrap_or(i64::MAX);
    let all = || GetOptions::new().with_range(span.to.clone());
    let newer = all().with_min_mod_revision(at + 1).with_keys_only().with_limit(1);
    let now = all().with_count_only();
    let then = all().with_count_only().with_revision(at);
    let look = [newer, now, then].map(|options| TxnOp::get(span.from.clone(), Some(options)));
    let request = Request::new().and_then(look.to_vec());
    let before = shared.head.known();
    let result = shared
        .call(RetryPolicy::Idempotent, |connection| {
            let request = request.clone();
            async move { connection.kv().txn(request).await }
        })
        .await;
    let response = match result {
        Ok(response) => response.0,
        Err(failure) if failure.is(super::errors::EtcdRejection::FutureRevision) => {
            return super::read::head(shared).await.map(|head| PrefixDifference::StoreBehind { head });
        }
        Err(failure) => return Err(failure),
    };
    let head = response.header.map_or(0, |header| revision(header.revision));
    shared.head.confirm(before, head);
    if head < since {
        return Ok(PrefixDifference::StoreBehind { head });
    }
    let ranges: Vec<PbRangeResponse> = response
        .responses
        .into_iter()
        .filter_map(|one| match one.response {
            Some(PbTxnOpResponse::ResponseRange(range)) => Some(range),
            Some(
                PbTxnOpResponse::ResponsePut(_)
                | PbTxnOpResponse::ResponseDeleteRange(_)
                | PbTxnOpResponse::ResponseTxn(_),
            )
            | None => None,
        })
        .collect();
    Ok(match ranges.as_slice() {
        [newer, now, then] if newer.kvs.is_empty() && now.count == then.count => PrefixDifference::Unchanged { head },
        _ => PrefixDifference::Changed,
    })
}

#[cfg(test)]
mod tests {
    use super::Head;

    #[test]
    fn only_a_linearizable_read_lowers_the_head() {
        let head = Head::new();
        head.observe(7);
        head.observe(5);
        assert_eq!(head.known(), 7);
        head.confirm(7, 9);
        assert_eq!(head.known(), 9);
        // Requested before 9 was known, so it does not contradict it.
        head.confirm(7, 8);
        assert_eq!(head.known(), 9);
        head.confirm(9, 3);
        assert_eq!(head.known(), 3);
    }

    #[test]
    fn watch_expects_own_changes_under_its_prefix() {
        let head = Head::new();
        let (a, b) = (head.register_watch("a/"), head.register_watch("b/"));
        head.committed(4, ["a/1", "c"].into_iter());
        assert_eq!((a.newest(), b.newest(), head.known()), (4, 0, 4));
        head.committed(3, ["b/1"].into_iter());
        assert_eq!((a.newest(), b.newest(), head.known()), (4, 3, 4));
    }
}
