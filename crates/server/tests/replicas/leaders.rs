//! Leaders of roles and pauses with two servers: one server at a time elects leaders and ends pauses.

use std::sync::atomic::Ordering;

use muster_core::fleet::Fleet;
use muster_core::names::Role;
use muster_core::node::pause::{NodePause, PauseScope};
use muster_core::replica::ControllerName;
use muster_etcd_rig::ClusterOptions;
use muster_store::StoreAccess;
use muster_wire::client::SyncStream;
use muster_wire::data::SetPause;
use muster_wire::sync::{SyncEvent, SyncOpen};

use crate::cluster::{Cluster, env, until};
use crate::writing::passed;

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
    assert_eq!(told(&mut db1).await.map(|paused| paused.pause.reason).as_deref(), Some("disk swap"));

    // Two hours later on the servers' clock.
    cluster.time.fetch_add(7200, Ordering::SeqCst);
    let _web1 = b.open("web1", &SyncOpen::default()).await;
    assert_eq!(told(&mut db1).await, None);
    b.sees("nothing paused", |fleet| fleet.pauses().is_empty()).await;
    a.stop().await;
    b.stop().await;
}

async fn told(stream: &mut SyncStream) -> Option<NodePause> {
    loop {
        if let SyncEvent::Pause { pause } = stream.next().await.unwrap().expect("the stream goes on") {
            return pause;
        }
    }
}
