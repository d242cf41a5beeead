//! Controller locks: one replica holds a controller, and writes of a deposed holder are refused. Leaders and pauses survive the
//! failure of the holder.

use std::sync::atomic::Ordering;

use muster_core::fleet::Fleet;
use muster_core::names::Role;
use muster_core::node::pause::{NodePause, PauseScope};
use muster_core::replica::ControllerName;
use muster_core::txn::{Op, Txn};
use muster_etcd_rig::ClusterOptions;
use muster_server::replica::FencedOutcome;
use muster_store::StoreAccess;
use muster_wire::client::SyncStream;
use muster_wire::data::SetPause;
use muster_wire::sync::{SyncEvent, SyncOpen};

use crate::cluster::{Cluster, env, keys, node, until};
use crate::consistency::passed;

const LIVENESS: ControllerName = ControllerName::Liveness;

#[tokio::test(flavor = "multi_thread")]
async fn write_of_an_unaware_deposed_holder_is_refused() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    until("a holds liveness", || a.app.replica.controller_locks.held(&env(), LIVENESS).is_some()).await;
    let held = a.app.replica.controller_locks.held(&env(), LIVENESS).unwrap();
    let write = || Txn::new().op(Op::put("/muster/test/written_by_a_controller", "x"));
    let first = a.app.replica.controller_locks.commit(&held, write()).await.unwrap();
    assert!(matches!(first, FencedOutcome::Committed { .. }), "{first:?}");
    let written = cluster.store.get("/muster/test/written_by_a_controller").await.unwrap().unwrap().revision;

    // The lease of a ends. Neither the watch nor the keep-alives report it to a.
    a.way.lag(true);
    a.way.lies.store(true, Ordering::SeqCst);
    let lease = cluster.store.get(&keys().replica(a.id())).await.unwrap().unwrap().lease.unwrap();
    cluster.store.revoke(lease).await.unwrap();
    until("b holds liveness", || b.app.replica.controller_locks.held(&env(), LIVENESS).is_some()).await;
    assert_eq!(
        a.app.replica.controller_locks.held(&env(), LIVENESS),
        Some(held.clone()),
        "a believes that it holds it"
    );

    assert_eq!(a.app.replica.controller_locks.commit(&held, write()).await.unwrap(), FencedOutcome::LockLost);
    let after = cluster.store.get("/muster/test/written_by_a_controller").await.unwrap().unwrap().revision;
    assert_eq!(after, written, "nothing was written");
    assert_eq!(a.app.replica.controller_locks.held(&env(), LIVENESS), None, "now it knows");
    a.way.lag(false);
    a.way.lies.store(false, Ordering::SeqCst);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_an_ended_lease_do_not_pass_to_the_next_lease() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let provision = ControllerName::Provision;
    a.app.replica.controller_locks.want(&env(), provision);
    let held = |name| a.app.replica.controller_locks.held(&env(), name);
    until("a holds both", || held(LIVENESS).is_some() && held(provision).is_some()).await;
    a.sees("that it does", |fleet| fleet.controllers().contains_key(&provision)).await;
    let first = held(provision).unwrap();

    // The lease of a ends and a gets a new one. Its view still shows the locks of the old lease.
    a.way.lag(true);
    cluster.store.revoke(first.lease).await.unwrap();
    until("a has another lease", || a.app.replica.membership.current().is_some_and(|new| new.lease != first.lease))
        .await;
    assert_eq!(a.fleet().controllers()[&provision].0.replica, *a.id(), "its view has not moved");
    assert_eq!((held(LIVENESS), held(provision)), (None, None));
    until("b holds liveness", || b.app.replica.controller_locks.held(&env(), LIVENESS).is_some()).await;
    assert_eq!((held(LIVENESS), held(provision)), (None, None), "nor is it adopted");

    // a acquires again the lock that no other replica wants.
    a.way.lag(false);
    until("a holds it again", || held(provision).is_some()).await;
    let again = held(provision).unwrap();
    assert!(again.lease != first.lease && again.revision > first.revision, "{again:?} after {first:?}");
    assert_eq!(held(LIVENESS), None);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_lock_is_taken_again_after_an_unrelated_revision() {
    let cluster = Cluster::patient().await;
    let a = cluster.replica().await;
    muster_server::register(&a.app, &crate::cluster::registration(&[("web1", "web")])).await.unwrap();
    until("a holds liveness", || a.app.replica.controller_locks.held(&env(), LIVENESS).is_some()).await;
    let held = a.app.replica.controller_locks.held(&env(), LIVENESS).unwrap();
    a.sees("that it does", |fleet| fleet.controllers().contains_key(&LIVENESS)).await;

    // The lock's key is deleted, then another key changes. A refused write reports the loss to a, at the second revision.
    a.way.lag(true);
    let mut revisions = Vec::new();
    for op in [Op::delete(keys().controller(LIVENESS)), Op::put("/muster/test/something_else", "x")] {
        let muster_store::CommitOutcome::Committed { revision } =
            cluster.store.commit(Txn::new().op(op)).await.unwrap()
        else {
            panic!("nothing guards it")
        };
        revisions.push(revision);
    }
    let write = Txn::new().op(Op::put("/muster/test/written_by_a_controller", "x"));
    assert_eq!(a.app.replica.controller_locks.commit(&held, write).await.unwrap(), FencedOutcome::LockLost);

    // The view reaches the first revision, which wakes all subscribers but is too old. The second revision wakes none.
    a.way.lag_after(revisions[0]);
    a.sees("that it is free", |fleet| !fleet.controllers().contains_key(&LIVENESS)).await;
    assert_eq!(a.app.replica.controller_locks.held(&env(), LIVENESS), None, "another replica may hold it by now");
    a.way.lag(false);
    until("a holds liveness again", || a.app.replica.controller_locks.held(&env(), LIVENESS).is_some()).await;
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_failover_declares_no_node_lost_early() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("db1", "db"), ("web1", "web"), ("web2", "web")]).await;
    until("a holds liveness", || a.app.replica.controller_locks.held(&env(), LIVENESS).is_some()).await;
    let mut streams = Vec::new();
    for name in ["db1", "web1", "web2"] {
        streams.push(a.open(name, &SyncOpen::default()).await);
        a.client.report(&env(), &passed(&a, name, 1)).await.unwrap();
    }
    b.sees("three active nodes", |fleet| fleet.designed().all(|(_, node, _)| node.active().is_some())).await;
    b.sees_presence("db1", Some(a.id())).await;

    // An hour later a dies. Its agents connect to b, except db1.
    cluster.time.fetch_add(3600, Ordering::SeqCst);
    a.kill().await;
    drop(streams);
    until("b holds liveness", || b.app.replica.controller_locks.held(&env(), LIVENESS).is_some()).await;
    until("b sees that db1 is silent", || !b.app.agents.links.is_connected(&b.fleet(), &node("db1"))).await;
    let open = SyncOpen { incarnation: Some(1), ..SyncOpen::default() };
    let mut streams = Vec::new();
    for name in ["web1", "web2"] {
        streams.push(b.open(name, &open).await);
        b.sees_presence(name, Some(b.id())).await;
    }

    // Just before the grace period ends, b checks all nodes. web1 gets its missing active key back, and db1 keeps its own.
    cluster.time.fetch_add(55, Ordering::SeqCst);
    let key = keys().active_role(&crate::cluster::version("v1"), &node("web1"));
    cluster.store.commit(Txn::new().op(Op::delete(key))).await.unwrap();
    b.sees("web1 gone", |fleet| fleet.get(&node("web1")).unwrap().active().is_none()).await;
    streams.push(b.open("web2", &open).await);
    b.sees("web1 back", |fleet| fleet.get(&node("web1")).unwrap().active().is_some()).await;
    assert!(b.fleet().get(&node("db1")).unwrap().active().is_some(), "the grace began when b took over");

    cluster.time.fetch_add(10, Ordering::SeqCst);
    streams.push(b.open("web2", &open).await);
    b.sees("db1 lost", |fleet| fleet.get(&node("db1")).unwrap().active().is_none()).await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_held_elsewhere_is_shown_and_taken_when_free() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let provision = ControllerName::Provision;
    a.app.replica.controller_locks.want(&env(), provision);
    until("a holds it", || a.app.replica.controller_locks.held(&env(), provision).is_some()).await;
    b.app.replica.controller_locks.want(&env(), provision);
    b.sees("the holder", |fleet| fleet.controllers().contains_key(&provision)).await;
    assert_eq!(b.app.replica.controller_locks.held_elsewhere(&env(), provision).unwrap().replica, *a.id());
    assert_eq!(a.app.replica.controller_locks.held_elsewhere(&env(), provision), None);
    assert_eq!(b.app.replica.controller_locks.held(&env(), provision), None);
    a.stop().await;
    until("b holds it", || b.app.replica.controller_locks.held(&env(), provision).is_some()).await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_off_machines_leave_their_roles_on_any_replica() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    until("a holds liveness", || a.app.replica.controller_locks.held(&env(), LIVENESS).is_some()).await;
    let stream = b.open("web1", &SyncOpen::default()).await;
    b.client.report(&env(), &passed(&b, "web1", 1)).await.unwrap();
    b.sees("web1 active", |fleet| fleet.get(&node("web1")).unwrap().active().is_some()).await;
    b.sees_presence("web1", Some(b.id())).await;

    // b does not hold the provision controller: the call is a no-op.
    b.app.replica.liveness.switched_off(&env()).await;
    assert!(b.fleet().get(&node("web1")).unwrap().active().is_some());
    // b acquires the provision controller.
    b.app.replica.controller_locks.want(&env(), ControllerName::Provision);
    until("b holds provision", || b.app.replica.controller_locks.held(&env(), ControllerName::Provision).is_some())
        .await;
    drop(stream);
    b.app.replica.liveness.switched_off(&env()).await;
    b.sees("web1 gone", |fleet| fleet.get(&node("web1")).unwrap().active().is_none()).await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_store_gets_one_request_not_one_per_node() {
    let cluster = Cluster::patient().await;
    let names = ["web1", "web2", "web3", "web4"];
    let a = cluster.replica().await;
    muster_server::register(&a.app, &crate::cluster::registration(&names.map(|name| (name, "web")))).await.unwrap();
    until("a holds liveness", || a.app.replica.controller_locks.held(&env(), LIVENESS).is_some()).await;
    for name in names {
        let stream = a.open(name, &SyncOpen::default()).await;
        a.sees_presence(name, Some(a.id())).await;
        a.client.report(&env(), &passed(&a, name, 1)).await.unwrap();
        drop(stream);
        a.sees_presence(name, None).await;
    }
    a.sees("all active", |fleet| fleet.designed().all(|(_, node, _)| node.active().is_some())).await;

    a.way.cut(true);
    let requests = || a.way.commits() + a.way.reads();
    let before = requests();
    a.app.replica.liveness.switched_off(&env()).await;
    // The newest revision, and the value before the first change, which the audit records.
    assert_eq!(requests() - before, 2, "the first failure says it for all");

    // When the store is reachable again, all nodes leave their roles.
    a.way.cut(false);
    a.app.replica.liveness.switched_off(&env()).await;
    a.sees("none active", |fleet| fleet.designed().all(|(_, node, _)| node.active().is_none())).await;
    a.stop().await;
}

const LEADERS: ControllerName = ControllerName::Leaders;

fn leader(fleet: &Fleet) -> Option<(String, u64)> {
    fleet.leader("db").map(|leader| (leader.node.to_string(), leader.epoch))
}

#[tokio::test(flavor = "multi_thread")]
async fn role_keeps_its_leader_when_the_electing_server_dies() {
    let etcd = muster_etcd_rig::Cluster::start(ClusterOptions::members(1)).await;
    let store = muster_store::open(&etcd.spec(), &StoreAccess::default()).await.unwrap();
    let cluster = Cluster::on(store, tempfile::tempdir().unwrap());
    let (a, b) = cluster.pair(&[("db1", "db"), ("db2", "db"), ("web1", "web"), ("web2", "web")]).await;
    until("a holds it", || a.app.replica.controller_locks.held(&env(), LEADERS).is_some()).await;
    assert_eq!(b.app.replica.controller_locks.held(&env(), LEADERS), None);
    let mut streams = vec![a.open("db1", &SyncOpen::default()).await];
    b.sees("db1 leads", |fleet| leader(fleet) == Some(("db1".into(), 7))).await;
    for name in ["db2", "web1", "web2"] {
        streams.push(b.open(name, &SyncOpen::default()).await);
    }
    for name in ["db1", "db2", "web1", "web2"] {
        b.client.report(&env(), &passed(&b, name, 1)).await.unwrap();
    }
    b.sees("all active", |fleet| fleet.designed().all(|(_, node, _)| node.active().is_some())).await;
    b.sees_presence("db1", Some(a.id())).await;

    // The server of the leader dies. The leader has a grace period to connect to another one: no election takes place.
    a.kill().await;
    until("b holds it", || b.app.replica.controller_locks.held(&env(), LEADERS).is_some()).await;
    cluster.time.fetch_add(50, Ordering::SeqCst);
    let open = SyncOpen { incarnation: Some(1), ..SyncOpen::default() };
    streams.push(b.open("web1", &open).await);
    b.sees_presence("web1", Some(b.id())).await;
    assert_eq!(leader(&b.fleet()), Some(("db1".into(), 7)));

    // The leader does not connect in time.
    cluster.time.fetch_add(60, Ordering::SeqCst);
    streams.push(b.open("web2", &open).await);
    b.sees("db2 leads", |fleet| leader(fleet) == Some(("db2".into(), 8))).await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_set_at_one_server_holds_and_ends_at_the_other() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&[("db1", "db"), ("web1", "web")]).await;
    until("a holds it", || a.app.replica.controller_locks.held(&env(), LEADERS).is_some()).await;
    let mut db1 = a.open("db1", &SyncOpen::default()).await;
    let scope = PauseScope::Role { role: Role::new("db").unwrap() };
    let pause = SetPause { reason: "disk swap".into(), seconds: Some(7200), force: false };
    b.client.pause(&env(), &scope, &pause, "jo").await.unwrap();
    assert_eq!(next_pause(&mut db1).await.map(|paused| paused.pause.reason).as_deref(), Some("disk swap"));

    // Two hours later on the servers' clock.
    cluster.time.fetch_add(7200, Ordering::SeqCst);
    let _web1 = b.open("web1", &SyncOpen::default()).await;
    assert_eq!(next_pause(&mut db1).await, None);
    b.sees("nothing paused", |fleet| fleet.pauses().is_empty()).await;
    a.stop().await;
    b.stop().await;
}

async fn next_pause(stream: &mut SyncStream) -> Option<NodePause> {
    loop {
        if let SyncEvent::Pause { pause } = stream.next().await.unwrap().expect("the stream is open") {
            return pause;
        }
    }
}
