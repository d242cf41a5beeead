//! Transactions: whole or not at all, and only if what was seen still holds.

use muster_core::txn::{Guard, Op, Revision, Txn};

use super::{Subject, all, commit, delete, put, text};
use crate::store::Outcome;

pub async fn a_transaction_happens_whole_at_one_revision(subject: &dyn Subject) {
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

pub async fn a_failed_guard_refuses_everything_and_is_named(subject: &dyn Subject) {
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

    assert_eq!(outcome, Outcome::Refused { revision: before, failed: vec!["moved".into(), "held".into()] });
    assert_eq!(text(&all(&*store, "").await), [("held", "1"), ("moved", "2")]);
    assert_eq!(store.revision().await.unwrap(), before);
}

pub async fn guards_tell_absent_from_present_and_one_change_from_another(subject: &dyn Subject) {
    let store = subject.store();
    let holds = async |guard: Guard| match store.commit(Txn::new().guard(guard)).await.unwrap() {
        Outcome::Committed { .. } => true,
        Outcome::Refused { failed, .. } => {
            assert_eq!(failed, ["k"]);
            false
        }
    };
    let absent = || Guard::Absent { key: "k".into() };
    let unchanged = |since| Guard::Unchanged { key: "k".into(), since };

    assert!(holds(absent()).await);
    // "Unchanged" says that it exists. On etcd a key that is not there has been changed at revision 0.
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
    // A key that was deleted and came back is not the one that was seen.
    put(&*store, "k", "1").await;
    assert!(!holds(unchanged(second)).await);
}

pub async fn what_changes_nothing_makes_no_revision(subject: &dyn Subject) {
    let store = subject.store();
    let before = put(&*store, "k", "1").await;

    assert_eq!(commit(&*store, Txn::new()).await, before);
    assert_eq!(commit(&*store, Txn::new().op(Op::delete("nothing"))).await, before);
    let guarded = Txn::new().guard(Guard::Unchanged { key: "k".into(), since: before }).op(Op::delete("nothing"));
    assert_eq!(commit(&*store, guarded).await, before);
    assert_eq!(store.revision().await.unwrap(), before);
}

pub async fn putting_the_same_value_is_a_change(subject: &dyn Subject) {
    let store = subject.store();
    let first = put(&*store, "k", "1").await;
    let second = put(&*store, "k", "1").await;
    assert!(second > first);
    assert_eq!(store.get("k").await.unwrap().unwrap().revision, second);
}
