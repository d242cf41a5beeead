//! Contract tests that every store backend must pass. A backend provides a [`ContractSubject`] and runs all tests with
//! [`contract_tests!`](crate::contract_tests).
//!
//! The tests assume an empty store. They do not assume its first revision, nor revisions without holes. No test waits
//! for time: it watches for the event that it needs.

// In a library, so that several backends can run them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc)]

pub mod leases;
pub mod reads;
pub mod transactions;
pub mod watches;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_core::txn::{Op, Revision, Txn};

use crate::store::{CommitOutcome, KeyValue, Store};
use crate::watch::{Watch, WatchEvent};
pub use watches::Mirror;

/// An empty store of a backend, and control over its time.
pub trait ContractSubject: Send + Sync {
    fn store(&self) -> Arc<dyn Store>;

    /// Advances the time of its leases.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()>;
}

/// Runs every contract test, each on a subject of its own: `contract_tests!(async { MySubject::new().await });`
#[macro_export]
macro_rules! contract_tests {
    ($subject:expr) => {
        $crate::contract_tests! { @each $subject;
            transactions: transaction_is_atomic_at_one_revision;
            transactions: failed_guard_is_a_conflict_and_named;
            transactions: guards_compare_presence_and_revision;
            transactions: prefix_guard_compares_the_newest_key;
            transactions: no_op_transaction_makes_no_revision;
            transactions: put_of_the_same_value_is_a_change;
            transactions: request_over_a_limit_is_refused;
            transactions: request_at_the_limits_is_accepted;
            transactions: conflict_of_many_guards_names_those_that_failed;
            transactions: duplicate_key_is_refused;
            reads: prefix_matches_bytes_exactly;
            reads: past_revision_reads_as_it_was;
            reads: future_revision_cannot_be_read;
            reads: empty_key_is_refused;
            reads: many_keys_are_read_in_their_order;
            reads: compacted_revision_cannot_be_read;
            reads: present_survives_compaction;
            reads: future_revision_cannot_be_compacted;
            watches: watch_starts_with_a_snapshot_then_changes;
            watches: snapshot_of_no_keys_is_empty;
            watches: large_snapshot_is_complete;
            watches: transaction_is_one_event_within_the_prefix;
            watches: changes_outside_the_prefix_are_progress;
            watches: watch_can_start_at_a_past_revision;
            watches: compacted_start_is_a_gap_and_a_snapshot;
            watches: future_start_is_a_gap_and_a_snapshot;
            watches: late_reader_misses_nothing;
            watches: cancelled_wait_loses_nothing;
            leases: expired_lease_deletes_its_keys_in_one_txn;
            leases: revoked_lease_ends_at_once;
            leases: kept_alive_lease_does_not_expire;
            leases: expired_lease_is_refused;
            leases: key_belongs_to_its_last_lease;
            leases: granting_a_lease_makes_no_revision;
            transactions: compare_and_swap_loses_no_update;
            transactions: one_of_many_creators_wins;
            transactions: every_watch_ends_equal_to_the_store;
        }
    };
    (@each $subject:expr; $($module:ident: $test:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let subject = $subject.await;
                $crate::contract::$module::$test(&subject).await;
            }
        )*
    };
}

/// Commits a transaction that must succeed.
async fn commit(store: &dyn Store, txn: Txn) -> Revision {
    match store.commit(txn).await.unwrap() {
        CommitOutcome::Committed { revision } => revision,
        CommitOutcome::Conflict { failed, .. } => panic!("conflict on {failed:?}"),
    }
}

async fn put(store: &dyn Store, key: &str, value: &str) -> Revision {
    commit(store, Txn::new().op(Op::put(key, value))).await
}

async fn delete(store: &dyn Store, key: &str) -> Revision {
    commit(store, Txn::new().op(Op::delete(key))).await
}

/// Keys and values as text.
fn text(kvs: &[KeyValue]) -> Vec<(&str, &str)> {
    kvs.iter().map(|kv| (kv.key.as_str(), std::str::from_utf8(&kv.value).unwrap())).collect()
}

async fn all(store: &dyn Store, prefix: &str) -> Vec<KeyValue> {
    store.range(prefix, None).await.unwrap().kvs
}

/// The next event other than progress.
async fn news(watch: &mut Watch) -> WatchEvent {
    loop {
        match watch.next().await.unwrap() {
            WatchEvent::Progress { .. } => {}
            event @ (WatchEvent::Snapshot(_)
            | WatchEvent::SnapshotEnd { .. }
            | WatchEvent::Changes { .. }
            | WatchEvent::Gap { .. }) => {
                return event;
            }
        }
    }
}

/// Reads a complete snapshot, which must come next.
async fn snapshot(watch: &mut Watch) -> (Vec<KeyValue>, Revision) {
    let mut kvs = Vec::new();
    loop {
        match watch.next().await.unwrap() {
            WatchEvent::Snapshot(some) => kvs.extend(some),
            WatchEvent::SnapshotEnd { revision } => return (kvs, revision),
            other @ (WatchEvent::Changes { .. } | WatchEvent::Progress { .. } | WatchEvent::Gap { .. }) => {
                panic!("within a snapshot: {other:?}")
            }
        }
    }
}

/// The next changes, as (revision, [(key, new value)]).
async fn changes(watch: &mut Watch) -> (Revision, Vec<(String, Option<String>)>) {
    match news(watch).await {
        WatchEvent::Changes { revision, changes } => (revision, changes.into_iter().map(watches::as_text).collect()),
        other @ (WatchEvent::Snapshot(_)
        | WatchEvent::SnapshotEnd { .. }
        | WatchEvent::Progress { .. }
        | WatchEvent::Gap { .. }) => {
            panic!("changes should come next, not {other:?}")
        }
    }
}
