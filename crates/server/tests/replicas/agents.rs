//! Agents at several replicas: they connect, move, and are shown by all replicas. Any replica requests and follows their runs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::names::{Role, RunId};
use muster_core::node::liveness::Link;
use muster_core::node::status::{Activity, NodeState};
use muster_core::replica::PresenceRecord;
use muster_store::{Op, Txn};
use muster_wire::client::ClientError;
use muster_wire::problem::ProblemCode;
use muster_wire::runs::{LogEnd, LogEvent, LogPiece, RunRequestProgress, StartRunRequest};
use muster_wire::sync::{RequestedRun, SyncEvent, SyncOpen};

use crate::cluster::{Cluster, env, keys, node, presence, registration, until, version};

fn known() -> SyncOpen {
    SyncOpen { incarnation: Some(1), has_snapshot: true, ..SyncOpen::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_agent_belongs_to_the_replica_it_is_connected_to() {
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
async fn second_agent_of_a_node_is_refused_and_shown() {
    let cluster = Cluster::patient().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let first = SyncOpen { holder: Some("first".into()), ..SyncOpen::default() };
    let second = SyncOpen { holder: Some("second".into()), ..SyncOpen::default() };
    let refused = |error: ClientError| error.problem().map(|problem| problem.code);
    let at_a = a.open("web1", &first).await;
    for replica in [&a, &b] {
        replica.sees_presence("web1", Some(a.id())).await;
    }
    let before = cluster.store.revision().await.unwrap();
    // A live agent answers pings. This one sends its activity before each attempt of the other.
    let live = a.client.clone().for_agent(Some("first".into()));
    for replica in [&a, &b, &a, &b, &a, &b] {
        live.activity(&env(), &node("web1"), &Activity::Idle).await.unwrap();
        let error = replica.client.sync(&env(), &node("web1"), &second).await.err().unwrap();
        assert_eq!(refused(error), Some(ProblemCode::DuplicateAgent));
        let other = replica.client.clone().for_agent(Some("second".into()));
        let error = other.activity(&env(), &node("web1"), &Activity::Idle).await.unwrap_err();
        assert_eq!(refused(error), Some(ProblemCode::DuplicateAgent));
    }
    let now = Timestamp::from_second(cluster.time.load(Ordering::SeqCst)).unwrap();
    let shown = |fleet: &Fleet| fleet.get(&node("web1")).and_then(|node| node.refused_agent(now));
    b.sees("the refusal", |fleet| shown(fleet).is_some()).await;
    assert!(shown(&b.fleet()).is_some_and(|refused| !refused.is_copy));
    let written = cluster.store.revision().await.unwrap().0 - before.0;
    assert!(written <= 2, "{written} revisions");
    for replica in [&a, &b] {
        assert!(replica.client.node(&env(), "web1").await.unwrap().refused_agent.is_some());
        let findings = replica.client.doctor().await.unwrap().findings;
        let found = findings.iter().filter(|finding| finding.detail.starts_with("web1: another agent with the name"));
        assert_eq!(found.count(), 1, "{findings:?}");
    }

    // A copy of the state directory has the incarnation of the first.
    let copy = SyncOpen { incarnation: Some(1), ..second.clone() };
    live.activity(&env(), &node("web1"), &Activity::Idle).await.unwrap();
    let error = b.client.sync(&env(), &node("web1"), &copy).await.err().unwrap();
    assert_eq!(refused(error), Some(ProblemCode::DuplicateAgent));
    b.sees("the copy", |fleet| shown(fleet).is_some_and(|refused| refused.is_copy)).await;

    // The first agent is not disturbed, and may move.
    let at_b = b.open("web1", &SyncOpen { incarnation: Some(1), ..first }).await;
    a.sees_presence("web1", Some(b.id())).await;
    drop((at_a, at_b));
    for replica in [&a, &b] {
        replica.sees_presence("web1", None).await;
    }
    let _second = a.open("web1", &second).await;
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
async fn activity_is_requested_from_the_replica_of_the_agent() {
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
async fn removed_node_has_no_presence_record() {
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
async fn wrong_clock_of_another_replica_makes_no_node_silent() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let now = cluster.time.load(Ordering::SeqCst);
    // A replica whose clock is one hour behind writes that web1 has just disconnected.
    let late = jiff::Timestamp::from_second(now - 3600).unwrap();
    let silent = PresenceRecord { since: late, ..PresenceRecord::default() };
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

#[tokio::test(flavor = "multi_thread")]
async fn any_replica_accepts_a_run_request_and_shows_its_log() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(&[("web1", "web")]).await;
    let mut agent = a.open("web1", &SyncOpen::default()).await;
    b.sees_presence("web1", Some(a.id())).await;

    let asked = b.client.request_run(&env(), "web1", "jo", &StartRunRequest::default()).await.unwrap();
    assert_eq!(asked.silent_since, None, "it is connected to the other one");
    loop {
        if let Some(SyncEvent::Run(RequestedRun { id, .. })) = agent.next().await.unwrap() {
            assert_eq!(id, asked.id);
            break;
        }
    }
    let (web1, run) = (node("web1"), RunId::new("r1").unwrap());
    let since = jiff::Timestamp::UNIX_EPOCH;
    let applying = Activity::Applying { run: run.clone(), version: version("v1"), since };
    a.client.activity(&env(), &web1, &applying).await.unwrap();
    let piece = |offset, text: &str, last| LogPiece { offset, text: text.into(), last, asked: vec![asked.id.clone()] };
    a.client.send_log(&env(), &web1, &run, &piece(0, "one\n", false)).await.unwrap();
    let progress = b.client.run_request(&env(), &web1, &asked.id, Duration::from_secs(20)).await.unwrap().progress;
    assert_eq!(progress, RunRequestProgress::Running { run: run.clone() });

    let mut reader = b.client.follow_log(&env(), &web1, &run, 0).await.unwrap();
    assert_eq!(reader.next().await.unwrap(), Some(LogEvent::Text { offset: 0, text: "one\n".into() }));
    assert_eq!(b.client.run_log(&env(), &web1, &run).await.unwrap().text, "one\n");
    a.client.send_log(&env(), &web1, &run, &piece(4, "two\n", true)).await.unwrap();
    assert_eq!(reader.next().await.unwrap(), Some(LogEvent::Text { offset: 4, text: "two\n".into() }));
    assert_eq!(reader.next().await.unwrap(), Some(LogEvent::End { end: LogEnd::Finished }));
    drop(agent);
    a.stop().await;
    b.stop().await;
}
