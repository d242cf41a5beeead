//! Silent nodes leave their role and return, and a lost leader of a role is replaced.

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::Role;
use muster_core::node::agent::CallInterval;
use muster_core::node::liveness::Link;
use muster_core::node::status::{NodeState, Reason};
use muster_core::report::{Outcome, Verdict};
use muster_core::txn::{Op, Txn};
use muster_wire::problem::ProblemCode;
use muster_wire::sync::{SyncEvent, SyncOpen};

use crate::fixture::{Fixture, PASSED, http, next, node, version};

#[tokio::test(flavor = "multi_thread")]
async fn silent_node_leaves_its_role_and_returns() {
    // The fixture declares a silent node lost at once: the test waits only for the controller.
    let fixture = Fixture::start_impatient(&[("db1", "db"), ("web1", "web"), ("web2", "web")]).await;
    let db = Role::new("db").unwrap();
    let mut streams = Vec::new();
    for name in ["db1", "web1", "web2"] {
        let mut stream = fixture.open(name, &SyncOpen::default()).await;
        next(&mut stream).await;
        streams.push(stream);
    }
    fixture.validate("db1", 1).await;
    fixture.wait_for("db1 is active", |fleet| fleet.active_count(&db) == 1).await;

    streams.remove(0);
    fixture.wait_for("db1 is lost", |fleet| fleet.active_count(&db) == 0).await;
    let running = fixture.app.view.fleets()[&fixture.env].running().len();
    assert_eq!(running, 1, "a lost node still runs the version that it has validated");

    let mut stream = fixture.open("db1", &SyncOpen { incarnation: Some(1), ..SyncOpen::default() }).await;
    next(&mut stream).await;
    fixture.wait_for("db1 is back", |fleet| fleet.active_count(&db) == 1).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_of_cron_stays_in_its_role_between_calls() {
    let fixture = Fixture::start_impatient(&[("db1", "db"), ("web1", "web"), ("web2", "web")]).await;
    let db = Role::new("db").unwrap();
    let every = |seconds| CallInterval::try_from(SignedDuration::from_secs(seconds)).ok();
    let call = |every| SyncOpen { protocol: Some(2), version: Some("0.9.1".into()), every, ..SyncOpen::default() };
    // A call that is shorter than a round of presence writes counts, too.
    let mut stream = fixture.open("db1", &call(every(1800))).await;
    next(&mut stream).await;
    fixture.validate("db1", 1).await;
    drop(stream);
    let agent = |fleet: &Fleet| fleet.get(&node("db1")).and_then(|node| node.agent().cloned());
    fixture
        .wait_for("its call is recorded", |fleet| agent(fleet).is_some_and(|agent| agent.every == every(1800)))
        .await;
    // A daemon that goes silent at the same time shows that the controller has decided.
    let mut daemon = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut daemon).await;
    fixture.validate("web1", 1).await;
    drop(daemon);
    let active = |fleet: &Fleet, name: &str| fleet.get(&node(name)).is_some_and(|node| node.active().is_some());
    fixture.wait_for("web1 is lost", |fleet| !active(fleet, "web1")).await;
    assert_eq!(fixture.app.view.fleets()[&fixture.env].active_count(&db), 1);

    let shown = fixture.client.node(&fixture.env, &node("db1")).await.unwrap().row;
    assert_eq!((shown.state, shown.not_counted), (NodeState::Validated, None));
    let Link::BetweenCalls { since, due, until, .. } = shown.link else { panic!("{:?}", shown.link) };
    let seconds = |time: Timestamp| time.duration_since(since).as_secs();
    assert_eq!((seconds(due), seconds(until)), (1800, 3660));
    let rows = fixture.client.nodes_of(&fixture.env, "liveness=between_calls").await.unwrap().items;
    assert_eq!(rows.iter().map(|row| row.node.as_str()).collect::<Vec<_>>(), ["db1"]);
    assert_eq!(rows[0].agent.as_ref().map(|agent| agent.version.as_str()), Some("0.9.1"));

    let counted = fixture.client.hosts_at_version(&fixture.env, &version("v1"), false).await.unwrap().items;
    assert_eq!(counted, ["db1"], "web1 is lost");

    // A new version is not due before the next call.
    fixture.client.trigger_update(&fixture.env, version("v2")).await.unwrap();
    fixture
        .wait_for("v2 is desired", |fleet| fleet.desired_of(&node("db1")).is_some_and(|it| it.version == version("v2")))
        .await;
    let shown = fixture.client.node(&fixture.env, &node("db1")).await.unwrap().row;
    assert!(matches!(shown.reason, Some(Reason::NotDue { .. })), "{:?}", shown.reason);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_of_a_distant_version_is_refused_and_shown() {
    let fixture = Fixture::start(&[("db1", "db"), ("web1", "web")]).await;
    let open = |protocol| SyncOpen { protocol, version: Some("9.0.0".into()), ..SyncOpen::default() };
    for near in [None, Some(1), Some(2), Some(3)] {
        let mut stream = fixture.open("web1", &open(near)).await;
        let SyncEvent::Hello { protocol, .. } = next(&mut stream).await else { panic!("no hello") };
        assert_eq!(protocol, Some(2));
    }
    let refused = fixture.client.sync(&fixture.env, &node("db1"), &open(Some(4))).await.unwrap_err();
    let problem = refused.problem().unwrap();
    assert_eq!(problem.code, ProblemCode::IncompatibleAgent);
    assert!(problem.hint.as_deref().is_some_and(|hint| hint.contains("upgrade the servers first")), "{problem}");
    fixture.wait_for("the refusal is recorded", |fleet| fleet.get(&node("db1")).unwrap().agent().is_some()).await;
    let shown = fixture.client.node(&fixture.env, &node("db1")).await.unwrap().row;
    let Some(Reason::Incompatible { version, protocols }) = shown.reason else { panic!("{:?}", shown.reason) };
    assert_eq!((version.as_str(), protocols.agent, protocols.server), ("9.0.0", 4, 2));
    // Its other requests are refused as well. The next one of the same version writes nothing.
    let distant = fixture.client.clone().with_protocol(4);
    let report = fixture.report("db1", 1, 1, PASSED);
    for refused in [
        distant.report(&fixture.env, &report).await.map(drop),
        distant.desired(&fixture.env, &node("db1")).await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().problem().map(|problem| problem.code), Some(ProblemCode::IncompatibleAgent));
    }
    let before = fixture.state().await;
    fixture.client.sync(&fixture.env, &node("db1"), &open(Some(4))).await.unwrap_err();
    assert_eq!(fixture.state().await, before);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_of_an_agent_are_ignored() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let post = async |path: &str, mut body: serde_json::Value| {
        body["from_a_newer_agent"] = serde_json::json!({"nested": [1, 2]});
        let request = http().post(fixture.url(path)).json(&body);
        request.send().await.unwrap().status().as_u16()
    };
    let open = serde_json::to_value(SyncOpen { protocol: Some(3), version: Some("2.0".into()), ..SyncOpen::default() });
    assert_eq!(post("/v1/envs/test/nodes/db1/sync", open.unwrap()).await, 200);
    let report = serde_json::to_value(fixture.report("db1", 1, 1, PASSED)).unwrap();
    assert_eq!(post("/v1/envs/test/nodes/db1/reports", report).await, 200);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rebooted_machine_is_validated_again() {
    let fixture = Fixture::start_impatient(&[("db1", "db"), ("web1", "web"), ("web2", "web")]).await;
    let db = Role::new("db").unwrap();
    let hello = |boot: &str| SyncOpen { incarnation: Some(1), boot: Some(boot.into()), ..SyncOpen::default() };
    let proof = |seq, boot: &str| {
        let mut report = fixture.report("db1", 1, seq, PASSED);
        report.facts.boot = Some(boot.into());
        report
    };
    let mut first = fixture.open("db1", &hello("monday")).await;
    next(&mut first).await;
    fixture.send(&proof(1, "monday")).await;
    fixture.wait_for("db1 is active", |fleet| fleet.active_count(&db) == 1).await;

    // Only the agent was restarted: the node stays active.
    let mut again = fixture.open("db1", &hello("monday")).await;
    next(&mut again).await;
    let fleet = fixture.app.view.fleets()[&fixture.env].clone();
    assert_eq!(fleet.active_count(&db), 1);

    // The machine was restarted: the node is not active. A late report from before the restart does not change that.
    let mut tuesday = fixture.open("db1", &hello("tuesday")).await;
    next(&mut tuesday).await;
    fixture.wait_for("db1 is not active", |fleet| fleet.active_count(&db) == 0).await;
    let late = fixture.send(&proof(2, "monday")).await;
    fixture.app.view.reach(late.revision).await.unwrap();
    assert_eq!(fixture.app.view.fleets()[&fixture.env].active_count(&db), 0);
    let shown = fixture.client.node(&fixture.env, &node("db1")).await.unwrap();
    assert_eq!(shown.row.reason, Some(Reason::Restarted));

    fixture.send(&proof(3, "tuesday")).await;
    fixture.wait_for("db1 is active again", |fleet| fleet.active_count(&db) == 1).await;
    fixture.stop().await;
}

/// The leader of `db` and its epoch.
fn leader(fleet: &muster_core::fleet::Fleet) -> Option<(String, u64)> {
    let leader = fleet.leader("db")?;
    Some((leader.node.to_string(), leader.epoch))
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_leader_is_replaced_and_its_lookups_are_notified() {
    let nodes = [("db1", "db"), ("db2", "db"), ("web1", "web"), ("web2", "web"), ("web3", "web")];
    let fixture = Fixture::start_impatient(&nodes).await;
    let mut db1 = fixture.open("db1", &SyncOpen::default()).await;
    next(&mut db1).await;
    fixture.wait_for("db1 leads", |fleet| leader(fleet) == Some(("db1".into(), 7))).await;
    let mut db2 = fixture.open("db2", &SyncOpen::default()).await;
    next(&mut db2).await;
    let seen = fixture.app.view.fleets()[&fixture.env].tag("leader::db", None);
    let asked = SyncOpen { lookups: [("leader::db".to_owned(), seen)].into(), ..SyncOpen::default() };
    let mut asking = fixture.open("web1", &asked).await;
    let mut silent = Vec::new();
    for name in ["web2", "web3"] {
        let mut stream = fixture.open(name, &SyncOpen::default()).await;
        next(&mut stream).await;
        silent.push(stream);
    }

    // Both nodes are validated: the leader stays.
    fixture.validate("db1", 1).await;
    let taken = fixture.validate("db2", 1).await;
    fixture.app.view.reach(taken.revision).await.unwrap();
    let before = leader(&fixture.app.view.fleets()[&fixture.env]);
    assert_eq!(before, Some(("db1".into(), 7)));

    drop(db1);
    fixture.wait_for("db2 leads", |fleet| leader(fleet) == Some(("db2".into(), 8))).await;
    loop {
        if let SyncEvent::Snapshot { changed, snapshot } = next(&mut asking).await {
            let seen = &snapshot.leaders[&Role::new("db").unwrap()];
            if (seen.node.as_str(), seen.epoch) == ("db2", 8) {
                assert_eq!(changed, ["leader::db"]);
                break;
            }
        }
    }

    // db1 is back. db2 stays the leader until its validation fails.
    let mut db1 = fixture.open("db1", &SyncOpen { incarnation: Some(1), ..SyncOpen::default() }).await;
    next(&mut db1).await;
    fixture.wait_for("db1 is active again", |fleet| fleet.get(&node("db1")).unwrap().active().is_some()).await;
    assert_eq!(leader(&fixture.app.view.fleets()[&fixture.env]), Some(("db2".into(), 8)));
    fixture.send(&fixture.report("db2", 1, 2, Outcome::Validated(Verdict::Failed))).await;
    fixture.wait_for("db1 leads again", |fleet| leader(fleet) == Some(("db1".into(), 9))).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_store_begins_with_higher_epochs() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let mut db1 = fixture.open("db1", &SyncOpen::default()).await;
    next(&mut db1).await;
    fixture.wait_for("db1 leads", |fleet| leader(fleet) == Some(("db1".into(), 7))).await;
    let epoch = Keys::new(&fixture.env).store_epoch();
    fixture.store.commit(Txn::new().op(Op::put(epoch, "1000"))).await.unwrap();
    fixture.wait_for("it leads at another epoch", |fleet| leader(fleet) == Some(("db1".into(), 1000))).await;
    fixture.stop().await;
}
