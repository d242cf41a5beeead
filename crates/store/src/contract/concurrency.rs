//! Concurrent writers and watches.

use std::sync::Arc;

use muster_core::txn::{Guard, Op, Revision, Txn};
use tokio::task::JoinSet;

use super::mirror::Mirror;
use super::{Subject, all, commit, text};
use crate::store::{CommitOutcome, Store};

pub async fn compare_and_swap_loses_no_update(subject: &dyn Subject) {
    const WRITERS: u64 = 8;
    const EACH: u64 = 25;
    let store = subject.store();
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            for _ in 0..EACH {
                increment(&*store, "counter").await;
            }
        });
    }
    writers.join_all().await;
    assert_eq!(text(&all(&*store, "").await), [("counter", (WRITERS * EACH).to_string().as_str())]);
}

/// Increments with compare-and-swap until it succeeds.
async fn increment(store: &dyn Store, key: &str) {
    loop {
        let seen = store.get(key).await.unwrap();
        let count: u64 = seen.as_ref().map_or(0, |kv| std::str::from_utf8(&kv.value).unwrap().parse().unwrap());
        let txn = Txn::new()
            .guard(Guard::observed(key, seen.map(|kv| kv.revision)))
            .op(Op::put(key, (count + 1).to_string()));
        if let CommitOutcome::Committed { .. } = store.commit(txn).await.unwrap() {
            return;
        }
    }
}

pub async fn one_of_many_creators_wins(subject: &dyn Subject) {
    let store = subject.store();
    let mut creators = JoinSet::new();
    for n in 0..16 {
        let store = store.clone();
        creators.spawn(async move {
            let txn = Txn::new().guard(Guard::Absent { key: "k".into() }).op(Op::put("k", n.to_string()));
            (n, store.commit(txn).await.unwrap())
        });
    }
    let outcomes = creators.join_all().await;
    let won: Vec<_> =
        outcomes.iter().filter(|(_, outcome)| matches!(outcome, CommitOutcome::Committed { .. })).collect();
    assert_eq!(won.len(), 1);
    assert_eq!(text(&all(&*store, "").await), [("k", won[0].0.to_string().as_str())]);
}

/// Watches that start before, during and after the writes see each change once, and end equal to the store.
pub async fn every_watch_ends_equal_to_the_store(subject: &dyn Subject) {
    const WRITERS: usize = 4;
    const EACH: usize = 60;
    let store = subject.store();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            let mut last = Revision(0);
            for n in 0..EACH {
                last = commit(&*store, busy(writer, n)).await;
            }
            last
        });
    }
    let mut mirrors = JoinSet::new();
    let (finished, ends) = tokio::sync::watch::channel(None);
    for n in 0..6 {
        // Each starts a little later, at a revision of the writers.
        let (store, mut ends): (Arc<dyn Store>, _) = (store.clone(), ends.clone());
        mirrors.spawn(async move {
            while store.revision().await.unwrap() < Revision(n * 30) {
                tokio::task::yield_now().await;
            }
            let mut mirror = Mirror::new(&*store, "n/");
            mirror.reach(Revision(0)).await;
            let end = ends.wait_for(Option::is_some).await.unwrap().unwrap();
            mirror.reach(end).await;
            mirror.copy
        });
    }
    let end = writers.join_all().await.into_iter().max().unwrap();
    finished.send_replace(Some(end));
    let truth = all(&*store, "n/").await;
    for copy in mirrors.join_all().await {
        assert_eq!(copy.into_values().collect::<Vec<_>>(), truth);
    }
}

/// Puts and deletes of few keys, also outside of the prefix, so that the writers conflict.
fn busy(writer: usize, n: usize) -> Txn {
    let mut txn = Txn::new().op(Op::put(format!("n/{}", n % 5), format!("{writer}/{n}")));
    if n.is_multiple_of(3) {
        txn = txn.op(Op::delete(format!("n/{}", 5 + n % 2)));
    } else {
        txn = txn.op(Op::put(format!("n/{}", 5 + n % 2), format!("{writer}/{n}")));
    }
    txn.op(Op::put(format!("m/{writer}"), n.to_string()))
}
