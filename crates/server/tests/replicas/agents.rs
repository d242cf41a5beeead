//! Presence of agents: they connect, move to another replica, and are shown by all replicas.

use std::sync::atomic::Ordering;

use futures::future::join_all;
use muster_core::names::{Role, RunId};
use muster_core::node::liveness::Link;
use muster_core::node::status::{Activity, NodeState};
use muster_core::replica::PresenceRecord;
use muster_store::{Op, Txn};
use muster_wire::sync::SyncOpen;

use crate::cluster::{Cluster, env, keys, node, presence, registration, until, version};

fn known() -> SyncOpen {
    SyncOpen { incarnation: Some(1), has_snapshot: true, ..SyncOpen::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_moves_belongs_to_the_replica_that_hears_it() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&[("web1", "web"), ("web2", "web")]).await;
    let _at_a = a.open("web1", &known()).await;
    b.sees_presence("web1", Some(a.id())).await;
    assert!(matches!(b.client.node(&env(), "web1").await.unwrap().row.link, Link::Connected { .. }));

    // The agent moves to b. Its old connection to a is half open and idle.
    let at_b = b.open("web1", &known()).await;
    a.sees_presence("web1", Some(b.id())).await;
    // a writes presence records of its other agents, but not of this one.
    let _web2 = a.open("web2", &known()).await;
    b.sees_presence("web2", Some(a.id())).await;
    assert_eq!(presence(&b.fleet(), &node("web1")).unwrap().replica.as_ref(), Some(b.id()));

    // The old connection was alive: the agent sends its activity to a.
    a.client.activity(&env(), &node("web1"), &Activity::Idle).await.unwrap();
    b.sees_presence("web1", Some(a.id())).await;
    drop(at_b);
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_agents_and_those_of_a_dead_replica_are_silent() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web"), ("web2", "web")]).await;
    let (web1, _web2) = (a.open("web1", &known()).await, a.open("web2", &known()).await);
    b.sees_presence("web1", Some(a.id())).await;
    b.sees_presence("web2", Some(a.id())).await;

    drop(web1);
    b.sees_presence("web1", None).await;
    let row = b.client.node(&env(), "web1").await.unwrap().row;
    assert!(matches!(row.link, Link::Silent { .. }) && row.state == NodeState::Silent, "{row:?}");
    assert_eq!(a.client.node(&env(), "web1").await.unwrap().row.state, NodeState::Silent);
    assert!(matches!(b.client.node(&env(), "web2").await.unwrap().row.link, Link::Connected { .. }));

    cluster.time.fetch_add(100, Ordering::SeqCst);
    let died_at = cluster.time.load(Ordering::SeqCst);
    a.kill().await;
    b.sees("b alone", |fleet| fleet.replicas().len() == 1).await;
    let Link::Silent { since } = b.client.node(&env(), "web2").await.unwrap().row.link else { panic!("a is gone") };
    assert_eq!(since.as_second(), died_at, "since b saw a go, by its own clock");
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_does_is_asked_of_the_replica_that_has_it() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&[("web1", "web"), ("web2", "web")]).await;
    let applying = Activity::Applying {
        run: RunId::new("r1").unwrap(),
        version: version("v1"),
        since: "2026-11-15T10:00:00Z".parse().unwrap(),
    };
    let tag = a.fleet().tag("active_roles::db", None);
    let open =
        SyncOpen { activity: applying.clone(), lookups: [("active_roles::db".to_owned(), tag)].into(), ..known() };
    let _web1 = a.open("web1", &open).await;
    let _web2 = b.open("web2", &known()).await;
    b.sees_presence("web1", Some(a.id())).await;
    a.sees_presence("web2", Some(b.id())).await;

    let shown = b.client.node(&env(), "web1").await.unwrap();
    assert_eq!((shown.row.state, shown.activity), (NodeState::Applying, applying));
    assert_eq!(shown.lookups, ["active_roles::db"]);
    for replica in [&a, &b] {
        let status = replica.client.status(&env()).await.unwrap();
        assert_eq!(status.counts.get(&NodeState::Applying), Some(&1), "{:?}", status.counts);
        assert_eq!(status.store_unreachable_since, None);
        let rows = replica.client.nodes(&env()).await.unwrap().items;
        assert_eq!(rows.iter().filter(|row| row.state == NodeState::Applying).count(), 1);
    }

    // a is dead and its lease has not expired yet: the rows come without the activity, which only a knew.
    a.kill().await;
    let row = b.client.node(&env(), "web1").await.unwrap().row;
    assert!(row.state == NodeState::Outdated && matches!(row.link, Link::Connected { .. }), "{row:?}");
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn moving_fleet_reads_nothing_and_is_written_in_batches() {
    const AGENTS: u32 = 400;
    let cluster = Cluster::patient().await;
    let role = Role::new("web").unwrap();
    let names: Vec<String> = (1..=AGENTS).map(|number| format!("{role}{number}")).collect();
    let nodes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "web")).collect();
    let (a, b) = cluster.pair(&nodes).await;
    let new = SyncOpen::default();
    // On the first connection each agent gets its incarnation.
    let first = join_all(names.iter().map(|name| a.open(name, &new))).await;
    let at = |replica: &crate::cluster::Replica| {
        let id = replica.id().clone();
        move |fleet: &muster_core::fleet::Fleet| {
            fleet.designed().all(|(name, ..)| presence(fleet, name).is_some_and(|p| p.replica.as_ref() == Some(&id)))
        }
    };
    b.sees("all at a", at(&a)).await;
    let generation = b.fleet().desired().unwrap().generation;
    drop(first);
    a.kill().await;

    let (reads, commits, began) = (b.way.reads(), b.way.commits(), tokio::time::Instant::now());
    let open = SyncOpen { generation: Some(generation), ..known() };
    let second = join_all(names.iter().map(|name| b.open(name, &open))).await;
    b.sees("all at b", at(&b)).await;
    assert_eq!(b.way.reads() - reads, 0, "a fleet that reconnects reads nothing");
    // At most four rounds a second, plus one that was in progress. Each transaction of a round holds at most 64 nodes.
    let (commits, rounds) = (b.way.commits() - commits, began.elapsed().as_millis() / 250 + 2);
    let most = rounds * u128::from(AGENTS.div_ceil(64));
    assert!(u128::from(commits) <= most, "{commits} commits for {AGENTS} agents in {rounds} rounds");
    drop(second);
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_the_design_leaves_no_presence() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web"), ("web2", "web")]).await;
    let _web2 = a.open("web2", &known()).await;
    b.sees_presence("web2", Some(a.id())).await;
    muster_server::register(&b.app, &registration(&[("web1", "web")])).await.unwrap();
    a.sees("no trace of it", |fleet| fleet.get(&node("web2")).is_none()).await;
    // The agent of web2 is still connected. No presence record is written for it.
    let _web1 = a.open("web1", &known()).await;
    b.sees_presence("web1", Some(a.id())).await;
    until("nothing of web2", || b.fleet().get(&node("web2")).is_none()).await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_another_replica_makes_nobody_lost() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let now = cluster.time.load(Ordering::SeqCst);
    // A replica whose clock is one hour behind writes that web1 has just disconnected.
    let late = jiff::Timestamp::from_second(now - 3600).unwrap();
    let silent = PresenceRecord { replica: None, since: late };
    let put = Op::put_json(keys().presence(&node("web1")), &silent).unwrap();
    cluster.store.commit(Txn::new().op(put)).await.unwrap();
    b.sees_presence("web1", None).await;
    for _ in 0..2 {
        let Link::Silent { since } = b.client.node(&env(), "web1").await.unwrap().row.link else { panic!("silent") };
        assert_eq!(since.as_second(), now, "since b saw it, by its own clock");
        cluster.time.fetch_add(10, Ordering::SeqCst);
    }
    // A server that starts later knows only the time in the record.
    let c = cluster.replica().await;
    let Link::Silent { since } = c.client.node(&env(), "web1").await.unwrap().row.link else { panic!("silent") };
    assert_eq!(since, late);
    for replica in [a, b, c] {
        replica.stop().await;
    }
}
