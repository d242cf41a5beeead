//! What a cluster says of itself: who is there, who is not, and what keeps it from working.
#![allow(clippy::unwrap_used)]

use muster_etcd_rig::{Cluster, Options as Rig};
use muster_store::etcd::Options;
use muster_store::{Access, Etcd, MemberState, Op, Store, Txn};

async fn open(cluster: &Cluster) -> Etcd {
    Etcd::open(&cluster.spec(), &Access::default(), Options::default()).await.unwrap()
}

#[tokio::test]
async fn everybody_is_asked_and_the_dead_are_named() {
    let cluster = Cluster::start(Rig { quota_bytes: Some(64 * 1024 * 1024), ..Rig::members(3) }).await;
    // Told of one, it finds the others.
    let spec = format!("etcd://{}", cluster.member(0).client());
    let store = Etcd::open(&spec, &Access::default(), Options::default()).await.unwrap();
    store.commit(Txn::new().op(Op::put("/muster/a", "1"))).await.unwrap();

    let health = store.health().await;
    let names: Vec<_> = health.members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, ["m1", "m2", "m3"]);
    assert!(health.latency.is_some() && health.alarms.is_empty(), "{health:?}");
    assert_eq!(health.revision, Some(store.revision().await.unwrap()));
    let states: Vec<&MemberState> = health.members.iter().map(|member| member.state.as_ref().unwrap()).collect();
    assert_eq!(states.iter().filter(|state| state.leads).count(), 1);
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

    // One that is frozen takes the time that it is given, and not more.
    cluster.member(2).start();
    cluster.wait_healthy().await;
    cluster.member(2).stop();
    let health = store.health().await;
    assert!(health.members[2].state.as_ref().unwrap_err().contains("no answer within 2 s"), "{health:?}");
    cluster.member(2).cont();
}

#[tokio::test]
async fn without_a_majority_it_says_what_it_can() {
    let cluster = Cluster::start(Rig::members(3)).await;
    let store = open(&cluster).await;
    cluster.member(0).kill();
    cluster.member(1).kill();
    let health = store.health().await;
    assert_eq!((health.latency, health.revision), (None, None));
    assert_eq!(health.members.len(), 3);
    assert_eq!(health.members.iter().filter(|member| member.state.is_err()).count(), 2, "{health:?}");
}
