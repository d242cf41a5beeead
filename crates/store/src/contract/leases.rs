//! Contract tests of leases, and of keys that are deleted with them.

use std::time::Duration;

use muster_core::txn::{LeaseId, Op, Txn};

use super::{ContractSubject, all, changes, commit, put, snapshot, text};
use crate::limits::InvalidRequest;
use crate::store::StoreError;
use crate::watch::WatchFrom;

/// Long enough for etcd, which counts in seconds.
const TTL: Duration = Duration::from_secs(5);

fn leased(key: &str, lease: LeaseId) -> Op {
    Op::Put { key: key.to_owned(), value: b"1".to_vec(), lease: Some(lease) }
}

pub async fn expired_lease_deletes_its_keys_in_one_txn(subject: &dyn ContractSubject) {
    let store = subject.store();
    let lease = store.grant(TTL).await.unwrap();
    assert!(lease.ttl >= TTL);
    put(&*store, "stays", "1").await;
    commit(&*store, Txn::new().op(leased("a", lease.id)).op(leased("b", lease.id))).await;
    assert_eq!(store.get("a").await.unwrap().unwrap().lease, Some(lease.id));

    let mut watch = store.watch("", WatchFrom::Now);
    let (_, before) = snapshot(&mut watch).await;
    subject.pass(lease.ttl).await;
    let (revision, mut gone) = changes(&mut watch).await;
    gone.sort();
    assert!(revision > before);
    assert_eq!(gone, [("a".to_owned(), None), ("b".to_owned(), None)]);
    assert_eq!(text(&all(&*store, "").await), [("stays", "1")]);
    // The past still shows the keys with their lease.
    let past = store.range("a", Some(before)).await.unwrap();
    assert_eq!(past.kvs.first().unwrap().lease, Some(lease.id));
}

pub async fn revoked_lease_ends_at_once(subject: &dyn ContractSubject) {
    let store = subject.store();
    let lease = store.grant(TTL).await.unwrap();
    let other = store.grant(TTL).await.unwrap();
    assert_ne!(lease.id, other.id);
    commit(&*store, Txn::new().op(leased("a", lease.id)).op(leased("b", other.id))).await;
    store.revoke(lease.id).await.unwrap();
    assert_eq!(text(&all(&*store, "").await), [("b", "1")]);
    assert!(matches!(store.revoke(lease.id).await, Err(StoreError::LeaseEnded { .. })));
}

pub async fn kept_alive_lease_does_not_expire(subject: &dyn ContractSubject) {
    let store = subject.store();
    let lease = store.grant(TTL).await.unwrap();
    commit(&*store, Txn::new().op(leased("a", lease.id))).await;
    for _ in 0..3 {
        subject.pass(lease.ttl * 3 / 5).await;
        store.keep_alive(lease.id).await.unwrap();
        assert!(store.get("a").await.unwrap().is_some());
    }
    let mut watch = store.watch("", WatchFrom::Now);
    snapshot(&mut watch).await;
    subject.pass(lease.ttl).await;
    assert_eq!(changes(&mut watch).await.1, [("a".to_owned(), None)]);
}

pub async fn expired_lease_is_refused(subject: &dyn ContractSubject) {
    let store = subject.store();
    let lease = store.grant(TTL).await.unwrap();
    commit(&*store, Txn::new().op(leased("a", lease.id))).await;
    let mut watch = store.watch("", WatchFrom::Now);
    snapshot(&mut watch).await;
    subject.pass(lease.ttl).await;
    changes(&mut watch).await;

    for ended in [lease.id, LeaseId(i64::MAX)] {
        let error = store.keep_alive(ended).await.unwrap_err();
        assert!(matches!(error, StoreError::LeaseEnded { lease } if lease == ended));
        let error = store.commit(Txn::new().op(Op::put("b", "1")).op(leased("a", ended))).await.unwrap_err();
        assert!(matches!(error, StoreError::LeaseEnded { lease } if lease == ended));
    }
    assert_eq!(all(&*store, "").await, []);
    let error = store.grant(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, StoreError::Invalid(InvalidRequest::ShortLease { .. })));
}

pub async fn key_belongs_to_its_last_lease(subject: &dyn ContractSubject) {
    let store = subject.store();
    let first = store.grant(TTL).await.unwrap().id;
    let second = store.grant(TTL).await.unwrap().id;
    for key in ["freed", "moved", "again", "kept"] {
        commit(&*store, Txn::new().op(leased(key, first))).await;
    }
    put(&*store, "freed", "2").await;
    commit(&*store, Txn::new().op(leased("moved", second))).await;
    commit(&*store, Txn::new().op(Op::delete("again"))).await;
    put(&*store, "again", "2").await;
    commit(&*store, Txn::new().op(leased("kept", first))).await;

    store.revoke(first).await.unwrap();
    assert_eq!(text(&all(&*store, "").await), [("again", "2"), ("freed", "2"), ("moved", "1")]);
    store.revoke(second).await.unwrap();
    assert_eq!(text(&all(&*store, "").await), [("again", "2"), ("freed", "2")]);
}

pub async fn granting_a_lease_makes_no_revision(subject: &dyn ContractSubject) {
    let store = subject.store();
    let before = store.revision().await.unwrap();
    let lease = store.grant(TTL).await.unwrap().id;
    store.keep_alive(lease).await.unwrap();
    store.revoke(lease).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), before);
}
