//! A node whose agent goes away is taken out of its role, and put back when it returns.

use muster_core::names::Role;
use muster_wire::sync::SyncOpen;

use crate::fixture::{Fixture, next};

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_leaves_its_role_and_comes_back() {
    // Nothing is waited for here but the controller's own pace: the fixture declares a node lost at once.
    let fixture = Fixture::start(&[("db1", "db"), ("web1", "web"), ("web2", "web")]).await;
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
