//! Contract tests of transactions: atomic, and conditional on their guards, also with concurrent writers.

use std::sync::Arc;

use muster_core::txn::{Guard, Op, Revision, Txn};
use tokio::task::JoinSet;

use crate::limits::{InvalidRequest, MAX_KEY, MAX_OPS, MAX_TXN, MAX_VALUE};
use crate::store::{CommitOutcome, Store, StoreError};

use super::watches::Mirror;
use super::{ContractSubject, all, commit, delete, put, text};

pub async fn transaction_is_atomic_at_one_revision(subject: &dyn ContractSubject) {
    let store = subject.store();
    put(&*store, "old", "1").await;
    let before = store.revision().await.unwrap();

    let txn = Txn::new().op(Op::put("a", "1")).op(Op::delete("old")).op(Op::put("b", ""));
    let revision = commit(&*store, txn).await;

    assert!(revision > before);
    assert_eq!(store.revision().await.unwrap(), revision);
    let range = store.range("", None).await.unwrap();
    assert_eq!(range.revision, revision);
    assert_eq!(text(&range.kvs), [("a", "1"), ("b", "")]);
    assert!(range.kvs.iter().all(|kv| kv.revision == revision && kv.lease.is_none()));
    assert_eq!(store.get("a").await.unwrap().as_ref(), range.kvs.first());
    assert_eq!(store.get("old").await.unwrap(), None);
}

pub async fn failed_guard_is_a_conflict_and_named(subject: &dyn ContractSubject) {
    let store = subject.store();
    let held = put(&*store, "held", "1").await;
    let first = put(&*store, "moved", "1").await;
    put(&*store, "moved", "2").await;
    let before = store.revision().await.unwrap();

    let txn = Txn::new()
        .guard(Guard::Unchanged { key: "held".into(), since: held })
        .guard(Guard::Unchanged { key: "moved".into(), since: first })
        .guard(Guard::Absent { key: "new".into() })
        .guard(Guard::Absent { key: "held".into() })
        .op(Op::put("new", "1"))
        .op(Op::delete("held"));
    let outcome = store.commit(txn).await.unwrap();

    assert_eq!(outcome, CommitOutcome::Conflict { revision: before, failed: vec!["moved".into(), "held".into()] });
    assert_eq!(text(&all(&*store, "").await), [("held", "1"), ("moved", "2")]);
    assert_eq!(store.revision().await.unwrap(), before);
}

pub async fn guards_compare_presence_and_revision(subject: &dyn ContractSubject) {
    let store = subject.store();
    let holds = async |guard: Guard| match store.commit(Txn::new().guard(guard)).await.unwrap() {
        CommitOutcome::Committed { .. } => true,
        CommitOutcome::Conflict { failed, .. } => {
            assert_eq!(failed, ["k"]);
            false
        }
    };
    let absent = || Guard::Absent { key: "k".into() };
    let unchanged = |since| Guard::Unchanged { key: "k".into(), since };

    assert!(holds(absent()).await);
    // "Unchanged" means that the key exists. On etcd a missing key has revision 0.
    assert!(!holds(unchanged(Revision(0))).await);
    let first = put(&*store, "k", "1").await;
    assert!(!holds(absent()).await);
    assert!(holds(unchanged(first)).await);
    put(&*store, "other", "1").await;
    assert!(holds(unchanged(first)).await);
    let second = put(&*store, "k", "1").await;
    assert!(!holds(unchanged(first)).await);
    assert!(holds(unchanged(second)).await);
    delete(&*store, "k").await;
    assert!(holds(absent()).await);
    assert!(!holds(unchanged(second)).await);
    // A key that was deleted and put again has changed.
    put(&*store, "k", "1").await;
    assert!(!holds(unchanged(second)).await);
}

pub async fn prefix_guard_compares_the_newest_key(subject: &dyn ContractSubject) {
    let store = subject.store();
    let holds = async |than: Revision| {
        let guard = Guard::NoneNewer { prefix: "p/".into(), than };
        match store.commit(Txn::new().guard(guard)).await.unwrap() {
            CommitOutcome::Committed { .. } => true,
            CommitOutcome::Conflict { failed, .. } => {
                assert_eq!(failed, ["p/"]);
                false
            }
        }
    };
    let before = put(&*store, "p", "1").await;
    assert!(holds(Revision(0)).await, "there is no key under the prefix");
    let first = put(&*store, "p/1", "1").await;
    let second = put(&*store, "p/2", "1").await;
    put(&*store, "p0", "1").await;
    for (than, expected) in [(Revision(0), false), (before, false), (first, false), (second, true)] {
        assert_eq!(holds(than).await, expected, "{than}");
    }
    let third = put(&*store, "p/1", "1").await;
    assert!(!holds(second).await && holds(third).await);
    delete(&*store, "p/1").await;
    assert!(holds(second).await, "a deleted key does not count");
}

pub async fn no_op_transaction_makes_no_revision(subject: &dyn ContractSubject) {
    let store = subject.store();
    let before = put(&*store, "k", "1").await;

    assert_eq!(commit(&*store, Txn::new()).await, before);
    assert_eq!(commit(&*store, Txn::new().op(Op::delete("nothing"))).await, before);
    let guarded = Txn::new().guard(Guard::Unchanged { key: "k".into(), since: before }).op(Op::delete("nothing"));
    assert_eq!(commit(&*store, guarded).await, before);
    assert_eq!(store.revision().await.unwrap(), before);
}

pub async fn put_of_the_same_value_is_a_change(subject: &dyn ContractSubject) {
    let store = subject.store();
    let first = put(&*store, "k", "1").await;
    let second = put(&*store, "k", "1").await;
    assert!(second > first);
    assert_eq!(store.get("k").await.unwrap().unwrap().revision, second);
}

pub async fn request_over_a_limit_is_refused(subject: &dyn ContractSubject) {
    let store = subject.store();
    let refused = async |txn: Txn| {
        let Err(StoreError::Invalid(invalid)) = store.commit(txn).await else { panic!("not refused as invalid") };
        invalid
    };

    let big = Txn::new().op(Op::put("small", "1")).op(Op::put("big", vec![b'x'; MAX_VALUE + 1]));
    assert_eq!(refused(big).await, InvalidRequest::BigValue { key: "big".into(), len: MAX_VALUE + 1 });

    let long = "k".repeat(MAX_KEY + 1);
    assert_eq!(
        refused(Txn::new().op(Op::delete(&long))).await,
        InvalidRequest::LongKey { key: long.clone(), len: MAX_KEY + 1 }
    );

    let max = store.max_ops();
    assert!(max >= MAX_OPS);
    let many = (0..=max).fold(Txn::new(), |txn, n| txn.op(Op::put(format!("k{n}"), "1")));
    assert_eq!(refused(many).await, InvalidRequest::ManyOps { count: max + 1, max });

    let guards = (0..=max).fold(Txn::new(), |txn, n| txn.guard(Guard::Absent { key: format!("k{n}") }));
    assert_eq!(refused(guards).await, InvalidRequest::ManyGuards { count: max + 1, max });

    let heavy =
        (0..=MAX_TXN / MAX_VALUE).fold(Txn::new(), |txn, n| txn.op(Op::put(format!("k{n}"), vec![0; MAX_VALUE])));
    assert!(matches!(refused(heavy).await, InvalidRequest::BigTxn { .. }));

    assert_eq!(refused(Txn::new().op(Op::put("", "1"))).await, InvalidRequest::EmptyKey);
    assert_eq!(all(&*store, "").await, []);
}

pub async fn request_at_the_limits_is_accepted(subject: &dyn ContractSubject) {
    let store = subject.store();
    let long = "k".repeat(MAX_KEY);
    commit(&*store, Txn::new().op(Op::put(&long, vec![b'x'; MAX_VALUE]))).await;
    assert_eq!(store.get(&long).await.unwrap().unwrap().value.len(), MAX_VALUE);

    let many = (0..MAX_OPS)
        .fold(Txn::new(), |txn, n| txn.guard(Guard::Absent { key: format!("n{n}") }).op(Op::put(format!("n{n}"), "1")));
    commit(&*store, many).await;
    assert_eq!(all(&*store, "n").await.len(), MAX_OPS);

    let heavy =
        (0..MAX_TXN / MAX_VALUE - 1).fold(Txn::new(), |txn, n| txn.op(Op::put(format!("h{n}"), vec![0; MAX_VALUE])));
    commit(&*store, heavy).await;
}

pub async fn conflict_of_many_guards_names_those_that_failed(subject: &dyn ContractSubject) {
    let store = subject.store();
    let written = put(&*store, "k7", "1").await;
    let absent = |txn: Txn, n| txn.guard(Guard::Absent { key: format!("k{n}") }).op(Op::put(format!("n{n}"), "1"));
    let many = (0..MAX_OPS).fold(Txn::new(), absent);
    let conflict = CommitOutcome::Conflict { revision: written, failed: vec!["k7".to_owned()] };
    assert_eq!(store.commit(many.clone()).await.unwrap(), conflict);
    assert_eq!(all(&*store, "n").await, [], "nothing of it was written");

    delete(&*store, "k7").await;
    commit(&*store, many).await;
    assert_eq!(all(&*store, "n").await.len(), MAX_OPS);
}

pub async fn duplicate_key_is_refused(subject: &dyn ContractSubject) {
    let store = subject.store();
    for second in [Op::put("k", "2"), Op::delete("k")] {
        let error = store.commit(Txn::new().op(Op::put("k", "1")).op(second)).await.unwrap_err();
        assert!(matches!(error, StoreError::Invalid(InvalidRequest::DuplicateKey { key }) if key == "k"));
    }
    assert_eq!(store.get("k").await.unwrap(), None);

    // Two guards of one key are valid, and so is a guard of a changed key.
    let absent = || Guard::Absent { key: "k".into() };
    commit(&*store, Txn::new().guard(absent()).guard(absent()).op(Op::put("k", "1"))).await;
}

pub async fn compare_and_swap_loses_no_update(subject: &dyn ContractSubject) {
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

pub async fn one_of_many_creators_wins(subject: &dyn ContractSubject) {
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
pub async fn every_watch_ends_equal_to_the_store(subject: &dyn ContractSubject) {
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
