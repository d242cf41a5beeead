//! Lookups of a node, and the origin of their values.

use muster_core::lookup::config_data::Layer;
use muster_core::lookup::explain::LookupSource;
use muster_core::lookup::published::PUBLISHED_LIMIT;
use muster_core::names::{DataKey, Role};
use muster_wire::client::DatumPrecondition;
use muster_wire::data::SetDatum;
use muster_wire::sync::SyncOpen;
use serde_json::json;

use crate::fixture::{CHANGED, Fixture, next, node};

#[tokio::test(flavor = "multi_thread")]
async fn lookup_shows_the_origin_of_every_kind_of_key() {
    let fixture = Fixture::start(&[("db1", "db"), ("web1", "web")]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let seen = fixture.app.view.fleets()[env].tag("leader::db", None);
    let open = SyncOpen { lookups: [("leader::db".to_owned(), seen)].into(), ..SyncOpen::default() };
    let mut web1 = fixture.open("web1", &open).await;
    let mut db1 = fixture.open("db1", &SyncOpen::default()).await;
    next(&mut web1).await;
    next(&mut db1).await;
    let mut report = fixture.report("db1", 1, 1, CHANGED);
    report.published = Some([(DataKey::new("db::binlog").unwrap(), json!("bin.7"))].into());
    fixture.send(&report).await;
    fixture.validate("db1", 2).await;
    fixture.wait_for("db1 leads", |fleet| fleet.leader("db").is_some_and(|leader| !leader.interfaces.is_empty())).await;
    let ask = async |key: &str| client.lookup(env, "web1", key).await.unwrap();

    let role = ask("etcdlookup::active_roles::db").await;
    let found = role.found.unwrap();
    assert_eq!(found.value, json!({"db1": {"eth0": "addr-of-db1"}}));
    let LookupSource::ActiveRole { nodes, .. } = found.source else { panic!() };
    assert_eq!(nodes[0].store_key, "/muster/test/active_roles/v1/db1/address");
    assert_eq!(role.looked_up, Some(false));
    let addresses = ask("etcdlookup::active_roles::db::eth0").await.found.unwrap();
    assert_eq!(addresses.value, json!(["addr-of-db1"]));
    assert_eq!(ask("etcdlookup::active_roles::db::eth9").await.found.unwrap().value, json!([]));

    let leader = ask("etcdlookup::leader::db").await;
    assert_eq!(leader.looked_up, Some(true));
    let found = leader.found.unwrap();
    assert_eq!((&found.value["node"], &found.value["epoch"]), (&json!("db1"), &json!(7)));
    assert!(matches!(found.source, LookupSource::Leader { epoch: 7, .. }));

    let published = ask("etcdlookup::published::db::binlog").await.found.unwrap();
    assert_eq!(published.value, json!({"db1": "bin.7"}));
    assert_eq!(ask("etcdlookup::published::nothing").await.found.unwrap().value, json!({}));
    assert_eq!(client.node(env, "db1").await.unwrap().published.len(), 1);

    let port = DataKey::new("port").unwrap();
    for (layer, value) in [(Layer::Global, 1), (Layer::Role { role: Role::new("web").unwrap() }, 2)] {
        let set = SetDatum { value: json!(value), secret: false, message: Some("because".into()), force: false };
        client.set_datum(env, (&layer, &port), &set, DatumPrecondition::Anything, "ann").await.unwrap();
    }
    let datum = ask("port").await.found.unwrap();
    let LookupSource::Data { set, hides } = datum.source else { panic!() };
    assert_eq!((datum.value, set.by.as_str(), set.message.as_deref()), (json!(2), "ann", Some("because")));
    assert_eq!(set.store_key, "/muster/test/data/role/web/port");
    assert_eq!(hides.iter().map(|hidden| hidden.is.clone()).collect::<Vec<_>>(), [json!(1)]);

    for (asked, near) in [
        ("prot", Some("port")),
        ("active_roles::db", Some("etcdlookup::active_roles::db")),
        ("etcdlookup::active_roles::bd", Some("etcdlookup::active_roles::db")),
        ("etcdlookup::leader::bd", Some("etcdlookup::leader::db")),
        ("etcdlookup::leaders::db", Some("etcdlookup::leader::db")),
        ("something::else", None),
    ] {
        let answer = ask(asked).await;
        assert_eq!((answer.found, answer.near.as_deref()), (None, near), "{asked}");
    }
    assert_eq!(client.lookup(env, "db1", "port").await.unwrap().found.unwrap().value, json!(1));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_publication_keeps_the_previous_values() {
    let fixture = Fixture::start(&[("db1", "db"), ("web1", "web")]).await;
    let publish = |seq, text: String| {
        let mut report = fixture.report("db1", 1, seq, CHANGED);
        report.published = Some([(DataKey::new("k").unwrap(), json!(text))].into());
        report
    };
    fixture.send(&publish(1, "first".into())).await;
    let taken = fixture.send(&publish(2, "x".repeat(PUBLISHED_LIMIT))).await;
    fixture.app.view.reach(taken.revision).await.unwrap();
    let seen = fixture.client.lookup(&fixture.env, "web1", "etcdlookup::published::k").await.unwrap();
    assert_eq!(seen.found.unwrap().value, json!({"db1": "first"}));
    let node = fixture.app.view.fleets()[&fixture.env].get(&node("db1")).unwrap().observed.clone().unwrap().0;
    assert_eq!(node.seq, 2, "the rest of its report counts");
    fixture.stop().await;
}
