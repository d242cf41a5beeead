//! What no backend takes, so that nothing works on one machine and fails on a cluster.

use muster_core::txn::{Guard, Op, Txn};

use super::{Subject, all, commit};
use crate::error::StoreError;
use crate::limits::{Invalid, MAX_KEY, MAX_OPS, MAX_TXN, MAX_VALUE};

pub async fn what_is_too_big_is_refused_by_name(subject: &dyn Subject) {
    let store = subject.store();
    let refused = async |txn: Txn| {
        let Err(StoreError::Invalid(invalid)) = store.commit(txn).await else { panic!("not refused as invalid") };
        invalid
    };

    let big = Txn::new().op(Op::put("small", "1")).op(Op::put("big", vec![b'x'; MAX_VALUE + 1]));
    assert_eq!(refused(big).await, Invalid::BigValue { key: "big".into(), len: MAX_VALUE + 1 });

    let long = "k".repeat(MAX_KEY + 1);
    assert_eq!(
        refused(Txn::new().op(Op::delete(&long))).await,
        Invalid::LongKey { key: long.clone(), len: MAX_KEY + 1 }
    );

    let many = (0..=MAX_OPS).fold(Txn::new(), |txn, n| txn.op(Op::put(format!("k{n}"), "1")));
    assert_eq!(refused(many).await, Invalid::ManyOps { count: MAX_OPS + 1 });

    let guards = (0..=MAX_OPS).fold(Txn::new(), |txn, n| txn.guard(Guard::Absent { key: format!("k{n}") }));
    assert_eq!(refused(guards).await, Invalid::ManyGuards { count: MAX_OPS + 1 });

    let heavy =
        (0..=MAX_TXN / MAX_VALUE).fold(Txn::new(), |txn, n| txn.op(Op::put(format!("k{n}"), vec![0; MAX_VALUE])));
    assert!(matches!(refused(heavy).await, Invalid::BigTxn { .. }));

    assert_eq!(refused(Txn::new().op(Op::put("", "1"))).await, Invalid::EmptyKey);
    assert_eq!(all(&*store, "").await, []);
}

pub async fn what_is_just_small_enough_is_taken(subject: &dyn Subject) {
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

pub async fn a_key_named_twice_is_refused(subject: &dyn Subject) {
    let store = subject.store();
    for second in [Op::put("k", "2"), Op::delete("k")] {
        let error = store.commit(Txn::new().op(Op::put("k", "1")).op(second)).await.unwrap_err();
        assert!(matches!(error, StoreError::Invalid(Invalid::TwiceNamed { key }) if key == "k"));
    }
    assert_eq!(store.get("k").await.unwrap(), None);

    // Two guards of one key are fine, and so is a guard of a key that is written.
    let absent = || Guard::Absent { key: "k".into() };
    commit(&*store, Txn::new().guard(absent()).guard(absent()).op(Op::put("k", "1"))).await;
}
