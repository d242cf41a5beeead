//! Compaction: the past goes, the present stays.

use muster_core::txn::Revision;

use super::{Subject, all, delete, put, text};
use crate::error::StoreError;

pub async fn what_is_compacted_cannot_be_read(subject: &dyn Subject) {
    let store = subject.store();
    let first = put(&*store, "k", "1").await;
    let second = put(&*store, "k", "2").await;
    let third = put(&*store, "k", "3").await;

    store.compact(second).await.unwrap();
    store.compact(second).await.unwrap();
    store.compact(first).await.unwrap();

    let error = store.range("", Some(first)).await.unwrap_err();
    assert!(matches!(error, StoreError::Compacted { asked, oldest } if asked == first && oldest == second));
    assert_eq!(text(&store.range("", Some(second)).await.unwrap().kvs), [("k", "2")]);
    assert_eq!(text(&store.range("", Some(third)).await.unwrap().kvs), [("k", "3")]);
}

pub async fn the_present_survives_compaction(subject: &dyn Subject) {
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

pub async fn the_future_cannot_be_compacted(subject: &dyn Subject) {
    let store = subject.store();
    let head = put(&*store, "k", "1").await;
    let error = store.compact(Revision(head.0 + 1000)).await.unwrap_err();
    assert!(matches!(error, StoreError::Ahead { .. }));
    assert_eq!(text(&store.range("", Some(head)).await.unwrap().kvs), [("k", "1")]);
}
