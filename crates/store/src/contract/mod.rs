//! What every backend must do, as tests. A backend's own tests say how to get one and how its time passes
//! ([`Subject`]), and run all of them with [`contract_tests!`](crate::contract_tests).
//!
//! The tests assume a store of their own, but neither where its revisions start nor that they follow one another
//! without holes, and none of them waits for time: where something has to happen first, they watch for it.

// These are tests, in a library only so that several backends can run them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc)]

pub mod compacting;
pub mod concurrency;
pub mod leasing;
pub mod limiting;
mod mirror;
pub mod reading;
pub mod transacting;
pub mod watching;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_core::txn::{Op, Revision, Txn};

pub use self::mirror::Mirror;
use crate::store::{KeyValue, Outcome, Store};
use crate::watch::{Event, Watch};

/// A fresh store of some backend, and its time.
pub trait Subject: Send + Sync {
    fn store(&self) -> Arc<dyn Store>;

    /// Lets this much time pass for its leases.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()>;
}

/// Runs every test of the contract, each on a subject of its own: `contract_tests!(async { MySubject::new().await });`
#[macro_export]
macro_rules! contract_tests {
    ($subject:expr) => {
        $crate::contract_tests! { @each $subject;
            transacting: a_transaction_happens_whole_at_one_revision;
            transacting: a_failed_guard_refuses_everything_and_is_named;
            transacting: guards_tell_absent_from_present_and_one_change_from_another;
            transacting: what_changes_nothing_makes_no_revision;
            transacting: putting_the_same_value_is_a_change;
            limiting: what_is_too_big_is_refused_by_name;
            limiting: what_is_just_small_enough_is_taken;
            limiting: a_key_named_twice_is_refused;
            reading: a_prefix_is_bytes_and_ends_where_it_should;
            reading: the_past_reads_as_it_was;
            reading: the_future_cannot_be_read;
            reading: an_empty_key_is_no_key;
            compacting: what_is_compacted_cannot_be_read;
            compacting: the_present_survives_compaction;
            compacting: the_future_cannot_be_compacted;
            watching: a_snapshot_comes_first_and_then_what_changes;
            watching: an_empty_prefix_has_an_empty_snapshot;
            watching: a_large_snapshot_is_whole;
            watching: a_transaction_is_seen_at_once_and_cut_to_the_prefix;
            watching: what_happens_elsewhere_is_only_progress;
            watching: a_watch_can_start_in_the_past;
            watching: a_compacted_past_is_a_gap_and_then_a_snapshot;
            watching: an_unknown_future_is_a_gap_and_then_a_snapshot;
            watching: a_reader_that_comes_back_late_misses_nothing;
            watching: giving_up_a_wait_loses_nothing;
            leasing: keys_go_with_their_lease_in_one_transaction;
            leasing: a_revoked_lease_ends_now;
            leasing: a_lease_that_is_kept_alive_lives;
            leasing: an_ended_lease_is_of_no_use;
            leasing: a_key_goes_with_its_last_lease_only;
            leasing: a_lease_itself_is_no_revision;
            concurrency: swaps_lose_no_update;
            concurrency: of_many_creators_one_wins;
            concurrency: every_watch_ends_equal_to_the_store;
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

/// Commits what must succeed.
async fn commit(store: &dyn Store, txn: Txn) -> Revision {
    match store.commit(txn).await.unwrap() {
        Outcome::Committed { revision } => revision,
        Outcome::Refused { failed, .. } => panic!("refused because of {failed:?}"),
    }
}

async fn put(store: &dyn Store, key: &str, value: &str) -> Revision {
    commit(store, Txn::new().op(Op::put(key, value))).await
}

async fn delete(store: &dyn Store, key: &str) -> Revision {
    commit(store, Txn::new().op(Op::delete(key))).await
}

/// Key and value as text, for comparisons that are easy to read.
fn text(kvs: &[KeyValue]) -> Vec<(&str, &str)> {
    kvs.iter().map(|kv| (kv.key.as_str(), std::str::from_utf8(&kv.value).unwrap())).collect()
}

async fn all(store: &dyn Store, prefix: &str) -> Vec<KeyValue> {
    store.range(prefix, None).await.unwrap().kvs
}

/// The next event that says more than progress.
async fn news(watch: &mut Watch) -> Event {
    loop {
        match watch.next().await.unwrap() {
            Event::Progress { .. } => {}
            event @ (Event::Snapshot(_) | Event::SnapshotEnd { .. } | Event::Changes { .. } | Event::Gap { .. }) => {
                return event;
            }
        }
    }
}

/// Reads a whole snapshot, which must come next.
async fn snapshot(watch: &mut Watch) -> (Vec<KeyValue>, Revision) {
    let mut kvs = Vec::new();
    loop {
        match watch.next().await.unwrap() {
            Event::Snapshot(some) => kvs.extend(some),
            Event::SnapshotEnd { revision } => return (kvs, revision),
            other @ (Event::Changes { .. } | Event::Progress { .. } | Event::Gap { .. }) => {
                panic!("in the middle of a snapshot: {other:?}")
            }
        }
    }
}

/// The next changes, as (revision, [(key, new value)]).
async fn changes(watch: &mut Watch) -> (Revision, Vec<(String, Option<String>)>) {
    match news(watch).await {
        Event::Changes { revision, changes } => (revision, changes.into_iter().map(mirror::as_text).collect()),
        other @ (Event::Snapshot(_) | Event::SnapshotEnd { .. } | Event::Progress { .. } | Event::Gap { .. }) => {
            panic!("changes should come next, not {other:?}")
        }
    }
}
