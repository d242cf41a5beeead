//! Compaction and health of an etcd cluster: history, members, leader and unreachable members.

use std::time::Duration;

use muster_etcd_rig::{Cluster, ClusterOptions as Rig};
use muster_store::etcd::EtcdOptions;
use muster_store::{EtcdStore, MemberState, Op, Revision, Store, StoreAccess, StoreError, Txn};

async fn open(cluster: &Cluster) -> EtcdStore {
    EtcdStore::open(&cluster.spec(), &StoreAccess::default(), EtcdOptions::default()).await.unwrap()
}

#[tokio::test]
async fn all_members_are_checked_and_down_ones_named() {
    let cluster = Cluster::start(Rig { quota_bytes: Some(64 * 1024 * 1024), ..Rig::members(3) }).await;
    // One configured member is enough to find all.
    let spec = format!("etcd://{}", cluster.member(0).client());
    let store = EtcdStore::open(&spec, &StoreAccess::default(), EtcdOptions::default()).await.unwrap();
    store.commit(Txn::new().op(Op::put("/muster/a", "1"))).await.unwrap();

    let health = store.health().await;
    let names: Vec<_> = health.members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, ["m1", "m2", "m3"]);
    assert!(health.latency.is_some() && health.alarms.is_empty(), "{health:?}");
    assert_eq!(health.revision, Some(store.revision().await.unwrap()));
    let states: Vec<&MemberState> = health.members.iter().map(|member| member.state.as_ref().unwrap()).collect();
    assert_eq!(states.iter().filter(|state| state.is_leader).count(), 1);
    for state in states {
        assert!(state.version.starts_with("etcd 3."), "{state:?}");
        assert!(state.bytes > 0 && state.bytes_in_use > 0 && !state.learner && state.errors.is_empty(), "{state:?}");
        assert_eq!(state.quota, Some(64 * 1024 * 1024));
    }

    cluster.member(2).kill();
    let health = store.health().await;
    let dead = &health.members[2];
    assert_eq!(
        (dead.name.as_str(), dead.endpoints.as_slice()),
        ("m3", [cluster.member(2).client_url().to_owned()].as_slice())
    );
    let why = dead.state.as_ref().unwrap_err();
    assert!(why.starts_with(cluster.member(2).client_url()) && why.contains("Connection refused"), "{why}");
    assert!(health.members[..2].iter().all(|member| member.state.is_ok()), "{health:?}");

    // A frozen member takes its timeout and no longer.
    cluster.member(2).start();
    cluster.wait_healthy().await;
    cluster.member(2).stop();
    let health = store.health().await;
    assert!(health.members[2].state.as_ref().unwrap_err().contains("no response within 2 s"), "{health:?}");
    cluster.member(2).cont();
}

#[tokio::test]
async fn health_without_a_quorum_lists_the_members() {
    let cluster = Cluster::start(Rig::members(3)).await;
    let store = open(&cluster).await;
    cluster.member(0).kill();
    cluster.member(1).kill();
    let health = store.health().await;
    assert_eq!((health.latency, health.revision), (None, None));
    assert_eq!(health.members.len(), 3);
    assert_eq!(health.members.iter().filter(|member| member.state.is_err()).count(), 2, "{health:?}");
}

#[tokio::test]
async fn only_old_history_is_compacted() {
    let cluster = Cluster::start(Rig::members(1)).await;
    let mut options = EtcdOptions::default();
    options.compaction.every = Duration::from_millis(50);
    options.compaction.keep = Duration::from_millis(100);
    options.compaction.keep_at_least = 10;
    let store = EtcdStore::open(&cluster.spec(), &StoreAccess::default(), options).await.unwrap();
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
