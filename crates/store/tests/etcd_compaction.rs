//! The backend keeps etcd's history short by itself.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use muster_etcd_rig::{Cluster, Options as Rig};
use muster_store::etcd::Options;
use muster_store::{Access, Etcd, Op, Revision, Store, StoreError, Txn};

#[tokio::test]
async fn old_history_goes_and_new_history_stays() {
    let cluster = Cluster::start(Rig::members(1)).await;
    let mut options = Options::default();
    options.compaction.every = Duration::from_millis(50);
    options.compaction.keep = Duration::from_millis(100);
    options.compaction.keep_at_least = 10;
    let store = Etcd::open(&cluster.spec(), &Access::default(), options).await.unwrap();
    for n in 0..50 {
        store.commit(Txn::new().op(Op::put("/muster/a", n.to_string()))).await.unwrap();
    }
    let head = store.revision().await.unwrap();
    let oldest = loop {
        match store.range("/muster/", Some(Revision(2))).await {
            Err(StoreError::Compacted { oldest, .. }) if oldest.0 == head.0 - 10 => break oldest,
            Ok(_) | Err(StoreError::Compacted { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error:?}"),
        }
    };
    assert_eq!(store.range("/muster/", Some(oldest)).await.unwrap().kvs.len(), 1);
    assert_eq!(store.health().await.oldest, Some(oldest));
}
