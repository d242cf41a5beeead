//! Silent nodes leave their role and return, and a lost leader of a role is replaced.

use muster_core::keys::Keys;
use muster_core::names::Role;
use muster_core::node::status::Reason;
use muster_core::report::{Outcome, Verdict};
use muster_core::txn::{Op, Txn};
use muster_wire::sync::{SyncEvent, SyncOpen};

use crate::fixture::{Fixture, PASSED, next, node};

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
