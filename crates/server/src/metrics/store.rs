//! Metrics of the store: a wrapper that counts and times every request of this process.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;
use muster_core::txn::{LeaseId, Revision, Txn};
use muster_store::{
    CommitOutcome, GapCause, KeyRange, KeyValue, Lease, Sharing, Store, StoreError, StoreHealth, StoreStats,
    Verification, Watch, WatchEvent, WatchFrom,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::{Label, Labels, prepare};

/// Buckets from a read from memory to a leader election. An fsync takes 0.2 ms on a good disk and 20 ms on a bad one.
const LATENCIES: [f64; 12] = [0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 10.0];

const OPERATIONS: [&str; 11] =
    ["get", "get_all", "range", "commit", "grant", "keep_alive", "revoke", "compact", "revision", "health", "verify"];
const OUTCOMES: [&str; 11] = [
    OK,
    REFUSED,
    "invalid",
    "compacted",
    "ahead",
    "lease_ended",
    "full",
    "unavailable",
    "unknown",
    "corrupt",
    "closed",
];
/// The request was carried out.
const OK: &str = "ok";
/// The guards of a transaction did not hold: another writer was first. No failure.
const REFUSED: &str = "refused";

type Latency = Family<Labels, Histogram, fn() -> Histogram>;

/// A store whose requests are counted and timed.
#[derive(Debug)]
pub(crate) struct MeasuredStore {
    store: Arc<dyn Store>,
    requests: Family<Labels, Counter>,
    latency: Latency,
    watches: WatchCounters,
}

/// Counters of watches, shared by all of them.
#[derive(Clone, Debug)]
struct WatchCounters {
    events: Family<Label, Counter>,
    gaps: Family<Label, Counter>,
    /// The latest revision in any response.
    head: Arc<AtomicU64>,
}

impl MeasuredStore {
    pub(crate) fn new(store: Arc<dyn Store>, registry: &mut Registry) -> Self {
        let requests = Family::<Labels, Counter>::default();
        let latency = Latency::new_with_constructor(|| Histogram::new(LATENCIES));
        let (events, gaps) = (Family::<Label, Counter>::default(), Family::<Label, Counter>::default());
        for operation in OPERATIONS {
            prepare(&requests, OUTCOMES.map(|outcome| [("operation", operation), ("outcome", outcome)]));
            prepare(&latency, ["answered", "failed"].map(|outcome| [("operation", operation), ("outcome", outcome)]));
        }
        prepare(&events, ["snapshot", "changes", "progress", "error"].map(|event| [("event", event)]));
        prepare(&gaps, ["compacted", "ahead", "lost"].map(|cause| [("cause", cause)]));
        let help = "Requests to the store by outcome";
        registry.register("muster_store_requests", help, requests.clone());
        let help = "Time of requests to the store; `failed` are those that were not carried out";
        registry.register_with_unit("muster_store_request_duration", help, Unit::Seconds, latency.clone());
        registry.register("muster_store_watch_events", "Events of the watches of the store", events.clone());
        let help = "Gaps of a watch, after which everything is read again";
        registry.register("muster_store_watch_gaps", help, gaps.clone());
        let watches = WatchCounters { events, gaps, head: Arc::default() };
        Self { store, requests, latency, watches }
    }

    /// The latest revision in any response of the store.
    pub(crate) fn head(&self) -> Revision {
        Revision(self.watches.head.load(Ordering::Relaxed))
    }

    async fn measure<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, StoreError>>,
        outcome: impl FnOnce(&T) -> (&'static str, Option<Revision>),
    ) -> Result<T, StoreError> {
        let begin = Instant::now();
        let answer = request.await;
        let (outcome, revision) = match &answer {
            Ok(answer) => outcome(answer),
            Err(error) => (kind(error), None),
        };
        self.count(operation, outcome, begin.elapsed());
        if let Some(revision) = revision {
            self.watches.reached(revision);
        }
        answer
    }

    fn count(&self, operation: &'static str, outcome: &'static str, took: Duration) {
        self.requests.get_or_create(&[("operation", operation), ("outcome", outcome)]).inc();
        let answered = if [OK, REFUSED].contains(&outcome) { "answered" } else { "failed" };
        self.latency.get_or_create(&[("operation", operation), ("outcome", answered)]).observe(took.as_secs_f64());
    }
}

impl WatchCounters {
    fn reached(&self, revision: Revision) {
        self.head.fetch_max(revision.0, Ordering::Relaxed);
    }

    fn count(&self, event: &Result<WatchEvent, StoreError>) {
        let event = match event {
            // The parts of a snapshot are counted once, at its end.
            Ok(WatchEvent::Snapshot(_)) => return,
            Ok(WatchEvent::SnapshotEnd { revision }) => {
                self.reached(*revision);
                "snapshot"
            }
            Ok(WatchEvent::Changes { revision, .. }) => {
                self.reached(*revision);
                "changes"
            }
            Ok(WatchEvent::Progress { revision }) => {
                self.reached(*revision);
                "progress"
            }
            Ok(WatchEvent::Gap { cause, .. }) => {
                let cause = match cause {
                    GapCause::Compacted { .. } => "compacted",
                    GapCause::Ahead { head } => {
                        // The store was restored to an older revision.
                        self.head.store(head.0, Ordering::Relaxed);
                        "ahead"
                    }
                    GapCause::Lost => "lost",
                };
                self.gaps.get_or_create(&[("cause", cause)]).inc();
                return;
            }
            Err(_) => "error",
        };
        self.events.get_or_create(&[("event", event)]).inc();
    }
}

/// The label value of an error.
fn kind(error: &StoreError) -> &'static str {
    match error {
        StoreError::Invalid(_) => "invalid",
        StoreError::Compacted { .. } => "compacted",
        StoreError::Ahead { .. } => "ahead",
        StoreError::LeaseEnded { .. } => "lease_ended",
        StoreError::Full { .. } => "full",
        StoreError::Unavailable { .. } => "unavailable",
        StoreError::Unknown { .. } => "unknown",
        StoreError::Corrupt { .. } => "corrupt",
        StoreError::Closed => "closed",
    }
}

impl Store for MeasuredStore {
    fn name(&self) -> &str {
        self.store.name()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        Box::pin(self.measure("get", self.store.get(key), |_| (OK, None)))
    }

    fn get_all<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<Vec<Option<KeyValue>>, StoreError>> {
        Box::pin(self.measure("get_all", self.store.get_all(keys), |_| (OK, None)))
    }

    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<KeyRange, StoreError>> {
        Box::pin(self.measure("range", self.store.range(prefix, at), |range| (OK, Some(range.revision))))
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<CommitOutcome, StoreError>> {
        Box::pin(self.measure("commit", self.store.commit(txn), |outcome| match outcome {
            CommitOutcome::Committed { revision } => (OK, Some(*revision)),
            CommitOutcome::Conflict { revision, .. } => (REFUSED, Some(*revision)),
        }))
    }

    fn max_ops(&self) -> usize {
        self.store.max_ops()
    }

    fn watch(&self, prefix: &str, from: WatchFrom) -> Watch {
        let watches = self.watches.clone();
        Watch::new(self.store.watch(prefix, from).inspect(move |event| watches.count(event)))
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, StoreError>> {
        Box::pin(self.measure("grant", self.store.grant(ttl), |_| (OK, None)))
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.measure("keep_alive", self.store.keep_alive(lease), |()| (OK, None)))
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.measure("revoke", self.store.revoke(lease), |()| (OK, None)))
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.measure("compact", self.store.compact(revision), |()| (OK, None)))
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(self.measure("revision", self.store.revision(), |revision| (OK, Some(*revision))))
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }

    fn sharing(&self) -> Sharing {
        self.store.sharing()
    }

    fn health(&self) -> BoxFuture<'_, StoreHealth> {
        Box::pin(async {
            let begin = Instant::now();
            let health = self.store.health().await;
            // Never fails: the response contains the errors.
            let outcome = if health.latency.is_some() { OK } else { "unavailable" };
            self.count("health", outcome, begin.elapsed());
            health
        })
    }

    fn verify(&self) -> BoxFuture<'_, Result<Verification, StoreError>> {
        Box::pin(self.measure("verify", self.store.verify(), |_| (OK, None)))
    }
}
