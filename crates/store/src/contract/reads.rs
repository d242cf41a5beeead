//! Contract tests of reads: one key, a prefix, an earlier revision, and compacted revisions.

use muster_core::txn::{Op, Revision, Txn};

use super::{ContractSubject, all, commit, delete, put, text};
use crate::limits::InvalidRequest;
use crate::store::StoreError;

pub async fn prefix_matches_bytes_exactly(subject: &dyn ContractSubject) {
    let store = subject.store();
    // `/` comes right before `0`; U+00FF and U+10FFFF are where the end of a prefix is computed wrongly.
    let keys =
        ["a", "a/", "a/1", "a/2", "a/\u{10ffff}", "a/\u{10ffff}/1", "a0", "a\u{ff}", "a\u{ff}1", "b", "\u{10ffff}"];
    let txn = keys.iter().rev().fold(Txn::new(), |txn, key| txn.op(Op::put(*key, "")));
    commit(&*store, txn).await;

    for prefix in ["", "a", "a/", "a0", "a/\u{10ffff}", "a\u{ff}", "\u{10ffff}", "c", "a/1", "a/11"] {
        let mut expected: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).copied().collect();
        expected.sort_unstable();
        let range = store.range(prefix, None).await.unwrap();
        let found: Vec<_> = range.kvs.iter().map(|kv| kv.key.as_str()).collect();
        assert_eq!(found, expected, "of prefix {prefix:?}");
    }
}

pub async fn past_revision_reads_as_it_was(subject: &dyn ContractSubject) {
    let store = subject.store();
    let nothing = store.revision().await.unwrap();
    let first = commit(&*store, Txn::new().op(Op::put("a/1", "x")).op(Op::put("a/3", "x"))).await;
    let second = put(&*store, "a/2", "x").await;
    let third = commit(&*store, Txn::new().op(Op::put("a/1", "y")).op(Op::delete("a/3")).op(Op::put("b", "y"))).await;
    let fourth = delete(&*store, "a/1").await;
    let fifth = put(&*store, "a/1", "z").await;

    let states: [(_, &[(&str, &str)]); 6] = [
        (nothing, &[]),
        (first, &[("a/1", "x"), ("a/3", "x")]),
        (second, &[("a/1", "x"), ("a/2", "x"), ("a/3", "x")]),
        (third, &[("a/1", "y"), ("a/2", "x")]),
        (fourth, &[("a/2", "x")]),
        (fifth, &[("a/1", "z"), ("a/2", "x")]),
    ];
    for (revision, expected) in states {
        let range = store.range("a/", Some(revision)).await.unwrap();
        assert_eq!(text(&range.kvs), expected, "at {revision}");
        assert_eq!(range.revision, revision);
    }
    // Each key with the revision that it had then.
    let past = store.range("a/1", Some(third)).await.unwrap();
    assert_eq!(past.kvs.first().unwrap().revision, third);
}

pub async fn future_revision_cannot_be_read(subject: &dyn ContractSubject) {
    let store = subject.store();
    let head = put(&*store, "k", "1").await;
    let error = store.range("", Some(Revision(head.0 + 1000))).await.unwrap_err();
    assert!(matches!(error, StoreError::Ahead { requested, .. } if requested.0 == head.0 + 1000));
}

pub async fn many_keys_are_read_in_their_order(subject: &dyn ContractSubject) {
    let store = subject.store();
    // More than one transaction of etcd takes.
    let keys: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
    for some in keys.chunks(100) {
        let of_each_other = some.iter().step_by(2);
        commit(&*store, of_each_other.fold(Txn::new(), |txn, key| txn.op(Op::put(key, key.as_str())))).await;
    }
    let found = store.get_all(&keys).await.unwrap();
    assert_eq!(found.len(), keys.len());
    for (number, (key, found)) in keys.iter().zip(found).enumerate() {
        let expected = (number % 2 == 0).then_some((key.as_str(), key.as_bytes()));
        assert_eq!(found.as_ref().map(|kv| (kv.key.as_str(), &kv.value[..])), expected);
    }
    assert_eq!(store.get_all(&[]).await.unwrap(), []);
    assert!(matches!(store.get_all(&[String::new()]).await.unwrap_err(), StoreError::Invalid(_)));
}

pub async fn empty_key_is_refused(subject: &dyn ContractSubject) {
    let error = subject.store().get("").await.unwrap_err();
    assert!(matches!(error, StoreError::Invalid(InvalidRequest::EmptyKey)));
}

pub async fn compacted_revision_cannot_be_read(subject: &dyn ContractSubject) {
    let store = subject.store();
    let first = put(&*store, "k", "1").await;
    let second = put(&*store, "k", "2").await;
    let third = put(&*store, "k", "3").await;

    store.compact(second).await.unwrap();
    store.compact(second).await.unwrap();
    store.compact(first).await.unwrap();

    let error = store.range("", Some(first)).await.unwrap_err();
    assert!(matches!(error, StoreError::Compacted { requested, oldest } if requested == first && oldest == second));
    assert_eq!(text(&store.range("", Some(second)).await.unwrap().kvs), [("k", "2")]);
    assert_eq!(text(&store.range("", Some(third)).await.unwrap().kvs), [("k", "3")]);
}

pub async fn present_survives_compaction(subject: &dyn ContractSubject) {
    let store = subject.store();
    put(&*store, "old", "1").await;
    put(&*store, "gone", "1").await;
    delete(&*store, "gone").await;
    let head = store.revision().await.unwrap();
    store.compact(head).await.unwrap();

    assert_eq!(store.revision().await.unwrap(), head);
    assert_eq!(text(&all(&*store, "").await), [("old", "1")]);
    assert_eq!(text(&store.range("", Some(head)).await.unwrap().kvs), [("old", "1")]);
    assert!(put(&*store, "gone", "2").await > head);
    assert_eq!(text(&store.range("", Some(head)).await.unwrap().kvs), [("old", "1")]);
}

pub async fn future_revision_cannot_be_compacted(subject: &dyn ContractSubject) {
    let store = subject.store();
    let head = put(&*store, "k", "1").await;
    let error = store.compact(Revision(head.0 + 1000)).await.unwrap_err();
    assert!(matches!(error, StoreError::Ahead { .. }));
    assert_eq!(text(&store.range("", Some(head)).await.unwrap().kvs), [("k", "1")]);
}
