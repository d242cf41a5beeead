//! Tests of the etcd backend on real clusters. This file runs the contract tests. Each has a process with its own disk,
//! because revisions and compaction belong to the cluster.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod access;
mod faults;
mod health;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_etcd_rig::Cluster;
use muster_store::contract::ContractSubject;
use muster_store::etcd::EtcdOptions;
use muster_store::{EtcdStore, Store, StoreAccess};

struct OneMember {
    store: Arc<EtcdStore>,
    _cluster: Cluster,
}

impl OneMember {
    async fn fresh() -> Self {
        let cluster = Cluster::start(muster_etcd_rig::ClusterOptions::members(1)).await;
        let store = EtcdStore::open(&cluster.spec(), &StoreAccess::default(), EtcdOptions::default()).await.unwrap();
        Self { store: Arc::new(store), _cluster: cluster }
    }
}

impl ContractSubject for OneMember {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// etcd has only the real clock.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

muster_store::contract_tests!(OneMember::fresh());
