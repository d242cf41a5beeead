//! A node whose agent goes away is taken out of its role, and put back when it returns.

use muster_core::names::Role;
use muster_core::node::status::Reason;
use muster_wire::sync::SyncOpen;

use crate::fixture::{Fixture, PASSED, next, node};

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_leaves_its_role_and_comes_back() {
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
    assert_eq!(running, 1, "what it has proved to run is still true");

    let mut stream = fixture.open("db1", &SyncOpen { incarnation: Some(1), ..SyncOpen::default() }).await;
    next(&mut stream).await;
    fixture.wait_for("db1 is back", |fleet| fleet.active_count(&db) == 1).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_was_started_again_proves_itself_again() {
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
