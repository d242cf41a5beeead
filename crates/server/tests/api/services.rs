//! Services of active nodes: offered after a passed validation, gone with the node, and sent to the nodes that looked them up.

use muster_core::fleet::Fleet;
use muster_core::lookup::services::Service;
use muster_core::names::{NodeName, ServiceName};
use muster_core::report::{Outcome, Report, RunResult, Verdict};
use muster_wire::sync::{SyncEvent, SyncOpen};

use crate::fixture::{Fixture, PASSED, next};
use crate::sync::caught_up;

const FLEET: [(&str, &str); 4] = [("db1", "db"), ("web1", "web"), ("web2", "web"), ("lb1", "lb")];

#[tokio::test(flavor = "multi_thread")]
async fn services_of_active_nodes_are_offered_and_wake_their_readers() {
    let fixture = Fixture::start(&FLEET).await;
    let mut lb = fixture.open("lb1", &caught_up(&fixture, &["services::http"])).await;
    next(&mut lb).await;
    // A service of another name, and a node without services, are no news.
    fixture.send(&offering(&fixture, "db1", 1, "sql", 3306)).await;
    fixture.validate("web2", 1).await;
    fixture.send(&offering(&fixture, "web1", 1, "http", 8080)).await;
    let SyncEvent::Snapshot { changed, snapshot } = next(&mut lb).await else { panic!("lb1 looked it up") };
    assert_eq!(changed, ["services::http"]);
    let http = &snapshot.services["http"];
    assert_eq!(http.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["web1"]);
    assert_eq!((http["web1"].address.as_str(), http["web1"].port), ("addr-of-web1", 8080));

    // Validated again with the same result: nothing that was looked up has changed.
    let before = fixture.app.view.fleets()[&fixture.env].tag("services::http", None);
    fixture.send(&offering(&fixture, "web1", 2, "http", 8080)).await;
    fixture.send(&fixture.report("web1", 1, 3, Outcome::Configured(RunResult::Changed))).await;
    let rows = fixture.client.services(&fixture.env, None).await.unwrap().items;
    let listed: Vec<String> = rows.iter().map(|row| format!("{} {}", row.service, row.offer.node)).collect();
    assert_eq!(listed, ["http web1", "sql db1"]);
    assert_eq!(fixture.app.view.fleets()[&fixture.env].tag("services::http", None), before);

    fixture.send(&fixture.report("web1", 1, 4, Outcome::Validated(Verdict::Failed))).await;
    let SyncEvent::Snapshot { changed, snapshot } = next(&mut lb).await else { panic!("its check failed") };
    assert_eq!((changed, snapshot.services.contains_key("http")), (vec!["services::http".to_owned()], false));
    let name = ServiceName::new("http").unwrap();
    assert_eq!(fixture.client.services(&fixture.env, Some(&name)).await.unwrap().items, []);
    fixture.stop().await;
}

/// A passed validation that proves one service.
fn offering(fixture: &Fixture, name: &str, seq: u64, service: &str, port: u16) -> Report {
    let offered = Service { address: format!("addr-of-{name}"), port, tags: vec!["blue".into()] };
    let services = [(ServiceName::new(service).unwrap(), offered)].into();
    Report { services, ..fixture.report(name, 1, seq, PASSED) }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_node_offers_no_service_until_it_is_back() {
    let fixture = Fixture::start_impatient(&FLEET).await;
    let mut others = Vec::new();
    for name in ["db1", "web2", "lb1"] {
        let mut stream = fixture.open(name, &SyncOpen::default()).await;
        next(&mut stream).await;
        others.push(stream);
    }
    let mut web = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut web).await;
    fixture.send(&offering(&fixture, "web1", 1, "http", 8080)).await;
    let offered = |fleet: &Fleet| fleet.services().at("http").is_some();
    fixture.wait_for("web1 offers http", offered).await;
    drop(web);
    fixture.wait_for("web1 is lost", |fleet| !offered(fleet)).await;
    let _web = fixture.open("web1", &SyncOpen { incarnation: Some(1), ..SyncOpen::default() }).await;
    fixture.wait_for("web1 offers http again", offered).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_of_all_roles_is_woken_by_each() {
    let fixture = Fixture::start(&FLEET).await;
    let mut lb = fixture.open("lb1", &caught_up(&fixture, &["active_roles"])).await;
    next(&mut lb).await;
    for name in ["db1", "web1"] {
        fixture.validate(name, 1).await;
        let SyncEvent::Snapshot { changed, .. } = next(&mut lb).await else { panic!("{name} is news") };
        assert_eq!(changed, ["active_roles"]);
    }
    let found = fixture.client.lookup(&fixture.env, "lb1", "muster::active_roles").await.unwrap().found.unwrap();
    assert_eq!(found.value["db"], serde_json::json!({"db1": {"eth0": "addr-of-db1"}}));
    fixture.stop().await;
}
