//! Configuration data through the API: layers, conditions, secrets, limits, and lookups with the origin of their values.

use muster_core::keys::Keys;
use muster_core::lookup::config_data::{Layer, SECRET};
use muster_core::lookup::explain::LookupSource;
use muster_core::lookup::published::PUBLISHED_LIMIT;
use muster_core::names::{DataKey, Role};
use muster_core::txn::Revision;
use muster_wire::client::{ClientError, DataQuery, DatumPrecondition};
use muster_wire::data::{DatumRow, SetDatum};
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::sync::{SyncEvent, SyncOpen};
use serde_json::{Value, json};

use crate::fixture::{CHANGED, Fixture, next, node};

const NODES: [(&str, &str); 3] = [("db1", "db"), ("web1", "web"), ("web2", "web")];

fn key(text: &str) -> DataKey {
    DataKey::new(text).unwrap()
}

fn web() -> Layer {
    Layer::Role { role: Role::new("web").unwrap() }
}

fn to(value: Value) -> SetDatum {
    SetDatum { value, secret: false, message: None, force: false }
}

fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Problem {
    answer.unwrap_err().problem().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn narrower_layer_wins_and_nodes_get_their_value() {
    let fixture = Fixture::start(&NODES).await;
    let (client, env, port) = (&fixture.client, &fixture.env, key("port"));
    let seen = fixture.app.view.fleets()[env].tag("data::port", Some(&node("web1")));
    let open = SyncOpen { lookups: [("data::port".to_owned(), seen)].into(), ..SyncOpen::default() };
    let mut web1 = fixture.open("web1", &open).await;
    let next_value = async |stream: &mut muster_wire::client::SyncStream| loop {
        if let SyncEvent::Snapshot { changed, snapshot } = next(stream).await
            && changed == ["data::port"]
        {
            return snapshot.data.get(&key("port")).map(|datum| datum.value.clone());
        }
    };
    let host = Layer::Host { node: node("web1") };
    for (layer, value) in [(Layer::Global, 1), (web(), 2), (host.clone(), 3)] {
        let set = client
            .set_datum(env, (&layer, &port), &to(json!(value)), DatumPrecondition::Anything, "ann")
            .await
            .unwrap();
        assert!(set.changed && set.datum.by == "ann" && set.revision == set.datum.changed_at);
        assert_eq!(next_value(&mut web1).await, Some(json!(value)));
    }
    let effective = |of: &str| DataQuery { effective: Some(of.into()), ..DataQuery::default() };
    for (of, value) in [("web1", 3), ("web2", 2), ("db1", 1)] {
        let rows = client.data(env, &effective(of)).await.unwrap().items;
        assert_eq!(rows.iter().map(|row| row.value.clone()).collect::<Vec<_>>(), [json!(value)]);
    }
    assert_eq!(client.data(env, &DataQuery::default()).await.unwrap().items.len(), 3);
    let of_web = DataQuery { layer: Some(web()), ..DataQuery::default() };
    assert_eq!(client.data(env, &of_web).await.unwrap().items.len(), 1);

    let unset = client.unset_datum(env, (&host, &port), DatumPrecondition::Anything, "ann").await.unwrap();
    assert_eq!(unset.before.map(|row| row.value), Some(json!(3)));
    assert_eq!(next_value(&mut web1).await, Some(json!(2)));
    let again = client.unset_datum(env, (&host, &port), DatumPrecondition::Anything, "ann").await.unwrap();
    assert_eq!(again.before, None);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicting_datum_change_gets_the_current_value() {
    let fixture = Fixture::start(&NODES).await;
    let (client, env, port) = (&fixture.client, &fixture.env, key("port"));
    let place = (&web(), &port);
    let first = client.set_datum(env, place, &to(json!(1)), DatumPrecondition::Nothing, "ann").await.unwrap();
    // Both operators have read the value. bob writes first.
    let seen = DatumPrecondition::At(first.datum.changed_at);
    let bobs = client.set_datum(env, place, &to(json!(2)), seen, "bob").await.unwrap();
    let problem = refused(client.set_datum(env, place, &to(json!(3)), seen, "ann").await);
    assert_eq!((problem.code, problem.status), (ProblemCode::NotAsExpected, 412));
    let said = format!("port (role web) was changed by bob at {} to 2", bobs.datum.at.strftime("%F %T UTC"));
    assert!(problem.detail.starts_with(&said), "{}", problem.detail);
    let current: DatumRow = serde_json::from_value(*problem.current.unwrap()).unwrap();
    assert_eq!(current, bobs.datum);
    assert_eq!(refused(client.unset_datum(env, place, seen, "ann").await).code, ProblemCode::NotAsExpected);
    assert_eq!(
        refused(client.set_datum(env, place, &to(json!(3)), DatumPrecondition::Nothing, "ann").await).code,
        ProblemCode::NotAsExpected
    );
    let gone = (&Layer::Global, &port);
    let problem = refused(client.set_datum(env, gone, &to(json!(3)), DatumPrecondition::At(Revision(1)), "ann").await);
    assert!(problem.detail.contains("does not exist"), "{}", problem.detail);

    // Writing the same value again is a no-op: nothing is written, and no agent is notified.
    let before = fixture.state().await;
    let same = client.set_datum(env, place, &to(json!(2)), DatumPrecondition::Anything, "ann").await.unwrap();
    assert!(!same.changed && same.datum.by == "bob");
    assert_eq!(fixture.state().await, before);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_value_is_visible_to_nodes_only() {
    let fixture = Fixture::start(&NODES).await;
    let (client, env, password) = (&fixture.client, &fixture.env, key("db::password"));
    let layer = Layer::Global;
    let secret = SetDatum { secret: true, ..to(json!("hunter2")) };
    let set = client.set_datum(env, (&layer, &password), &secret, DatumPrecondition::Anything, "ann").await.unwrap();
    let mut answers = vec![serde_json::to_string(&set).unwrap()];
    answers.push(serde_json::to_string(&client.datum(env, &layer, &password).await.unwrap()).unwrap());
    answers.push(serde_json::to_string(&client.data(env, &DataQuery::default()).await.unwrap()).unwrap());
    let effective = DataQuery { effective: Some("web1".into()), ..DataQuery::default() };
    answers.push(serde_json::to_string(&client.data(env, &effective).await.unwrap()).unwrap());
    answers.push(serde_json::to_string(&client.lookup(env, "web1", "db::password").await.unwrap()).unwrap());
    let problem =
        refused(client.set_datum(env, (&layer, &password), &to(json!(1)), DatumPrecondition::Nothing, "bob").await);
    answers.push(serde_json::to_string(&problem).unwrap());
    let unset = client.unset_datum(env, (&layer, &password), DatumPrecondition::Anything, "ann").await.unwrap();
    answers.push(serde_json::to_string(&unset).unwrap());
    for answer in answers {
        assert!(!answer.contains("hunter2") && answer.contains(SECRET), "{answer}");
    }
    client.set_datum(env, (&layer, &password), &secret, DatumPrecondition::Anything, "ann").await.unwrap();
    let mut web1 = fixture.open("web1", &SyncOpen::default()).await;
    let snapshot = loop {
        if let SyncEvent::Snapshot { snapshot, .. } = next(&mut web1).await {
            break snapshot;
        }
    };
    assert_eq!((&snapshot.data[&password].value, snapshot.data[&password].secret), (&json!("hunter2"), true));
    drop(web1);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_datum_is_refused_with_the_reason() {
    let fixture = Fixture::start(&NODES).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let large = to(json!("x".repeat(15 * 1024)));
    let problem =
        refused(client.set_datum(env, (&Layer::Global, &key("a")), &large, DatumPrecondition::Anything, "ann").await);
    assert_eq!(problem.code, ProblemCode::TooLarge);
    let fits = SetDatum { message: Some("m".repeat(5000)), ..to(json!("x".repeat(15 * 1024 - 2))) };
    client
        .set_datum(env, (&Layer::Global, &key("a")), &fits, DatumPrecondition::Anything, &"b".repeat(500))
        .await
        .unwrap();
    let stored = fixture.store.get(&Keys::new(env).datum(&Layer::Global, &key("a"))).await.unwrap().unwrap();
    assert!(stored.value.len() <= 16 * 1024, "{}", stored.value.len());

    let role = Layer::Role { role: Role::new("wep").unwrap() };
    let problem =
        refused(client.set_datum(env, (&role, &key("a")), &to(json!(1)), DatumPrecondition::Anything, "ann").await);
    assert_eq!(problem.code, ProblemCode::UnknownRole);
    assert!(problem.hint.as_ref().unwrap().starts_with("did you mean web?"), "{problem:?}");
    let host = Layer::Host { node: node("web3") };
    let problem =
        refused(client.set_datum(env, (&host, &key("a")), &to(json!(1)), DatumPrecondition::Anything, "ann").await);
    assert_eq!(problem.code, ProblemCode::UnknownNode);
    let ahead = SetDatum { force: true, ..to(json!(1)) };
    let set = client.set_datum(env, (&host, &key("a")), &ahead, DatumPrecondition::Anything, "ann").await.unwrap();
    assert!(set.datum.matches_no_node);
    assert_eq!(refused(client.datum(env, &web(), &key("a")).await).code, ProblemCode::UnknownDatum);

    let http = crate::fixture::http();
    for path in ["data/lookup_options", "data/a.b", "data/a?role=Web", "data/a?role=web&host=web1"] {
        let answer = http.get(fixture.url(&format!("/v1/envs/{env}/{path}"))).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 400, "{path}");
    }
    fixture.stop().await;
}

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

    let role = ask("muster::active_roles::db").await;
    let found = role.found.unwrap();
    assert_eq!(found.value, json!({"db1": {"eth0": "addr-of-db1"}}));
    let LookupSource::ActiveRole { nodes, .. } = found.source else { panic!() };
    assert_eq!(nodes[0].store_key, "/muster/test/active_roles/v1/db1/address");
    assert_eq!(role.looked_up, Some(false));
    let addresses = ask("muster::active_roles::db::eth0").await.found.unwrap();
    assert_eq!(addresses.value, json!(["addr-of-db1"]));
    assert_eq!(ask("muster::active_roles::db::eth9").await.found.unwrap().value, json!([]));

    let leader = ask("muster::leader::db").await;
    assert_eq!(leader.looked_up, Some(true));
    let found = leader.found.unwrap();
    // The older prefix is the same key.
    let alias = ask("etcdlookup::leader::db").await;
    assert_eq!((alias.looked_up, alias.found.as_ref()), (Some(true), Some(&found)));
    assert_eq!((&found.value["node"], &found.value["epoch"]), (&json!("db1"), &json!(7)));
    assert!(matches!(found.source, LookupSource::Leader { epoch: 7, .. }));

    let published = ask("muster::published::db::binlog").await.found.unwrap();
    assert_eq!(published.value, json!({"db1": "bin.7"}));
    assert_eq!(ask("muster::published::nothing").await.found.unwrap().value, json!({}));
    assert_eq!(client.node(env, "db1").await.unwrap().published.len(), 1);

    let port = DataKey::new("port").unwrap();
    for (layer, value) in [(Layer::Global, 1), (Layer::Role { role: Role::new("web").unwrap() }, 2)] {
        let set = SetDatum { value: json!(value), secret: false, message: Some("because".into()), force: false };
        client.set_datum(env, (&layer, &port), &set, DatumPrecondition::Anything, "ann").await.unwrap();
    }
    let datum = ask("port").await.found.unwrap();
    let LookupSource::Data { set, overrides } = datum.source else { panic!() };
    assert_eq!((datum.value, set.by.as_str(), set.message.as_deref()), (json!(2), "ann", Some("because")));
    assert_eq!(set.store_key, "/muster/test/data/role/web/port");
    assert_eq!(overrides.iter().map(|datum| datum.is.clone()).collect::<Vec<_>>(), [json!(1)]);

    for (asked, near) in [
        ("prot", Some("port")),
        ("active_roles::db", Some("muster::active_roles::db")),
        ("muster::active_roles::bd", Some("muster::active_roles::db")),
        ("muster::leader::bd", Some("muster::leader::db")),
        ("muster::leaders::db", Some("muster::leader::db")),
        ("something::else", None),
    ] {
        let answer = ask(asked).await;
        assert_eq!((answer.found, answer.suggestion.as_deref()), (None, near), "{asked}");
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
    let seen = fixture.client.lookup(&fixture.env, "web1", "muster::published::k").await.unwrap();
    assert_eq!(seen.found.unwrap().value, json!({"db1": "first"}));
    let node = fixture.app.view.fleets()[&fixture.env].get(&node("db1")).unwrap().observed.clone().unwrap().0;
    assert_eq!(node.seq, 2, "the rest of its report counts");
    fixture.stop().await;
}
