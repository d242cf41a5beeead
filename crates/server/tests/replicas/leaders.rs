//! Two servers on a real etcd: one of them sees to it that each role has a leader, whichever that is.

use std::sync::atomic::Ordering;

use muster_core::fleet::Fleet;
use muster_core::replicas::ControllerName;
use muster_etcd_rig::Options;
use muster_store::Access;
use muster_wire::sync::SyncOpen;

use crate::cluster::{Cluster, env, until};
use crate::writing::passed;

const LEADERS: ControllerName = ControllerName::Leaders;

fn leader(fleet: &Fleet) -> Option<(String, u64)> {
    fleet.leader("db").map(|leader| (leader.node.to_string(), leader.epoch))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_keeps_its_leader_when_the_server_that_chose_it_dies_and_the_epoch_only_grows() {
    let etcd = muster_etcd_rig::Cluster::start(Options::members(1)).await;
    let store = muster_store::open(&etcd.spec(), &Access::default()).await.unwrap();
    let cluster = Cluster::on(store, tempfile::tempdir().unwrap());
    let (a, b) = cluster.pair(&[("db1", "db"), ("db2", "db"), ("web1", "web"), ("web2", "web")]).await;
    until("a holds it", || a.app.tenures.held(&env(), LEADERS).is_some()).await;
    assert_eq!(b.app.tenures.held(&env(), LEADERS), None);
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

    // Its server dies: the leader looks for another one, and has time for that. Nobody else is elected.
    a.kill().await;
    until("b holds it", || b.app.tenures.held(&env(), LEADERS).is_some()).await;
    cluster.time.fetch_add(50, Ordering::SeqCst);
    let open = SyncOpen { incarnation: Some(1), ..SyncOpen::default() };
    streams.push(b.open("web1", &open).await);
    b.sees_presence("web1", Some(b.id())).await;
    assert_eq!(leader(&b.fleet()), Some(("db1".into(), 7)));

    // It does not come.
    cluster.time.fetch_add(60, Ordering::SeqCst);
    streams.push(b.open("web2", &open).await);
    b.sees("db2 leads", |fleet| leader(fleet) == Some(("db2".into(), 8))).await;
    b.stop().await;
}
