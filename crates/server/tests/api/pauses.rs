//! Pauses through the API: agents receive them, status shows them, and time ends them.

use muster_core::keys::Keys;
use muster_core::names::Role;
use muster_core::node::pause::{PauseRecord, PauseScope};
use muster_core::node::status::Reason;
use muster_core::txn::{Op, Txn};
use muster_wire::client::SyncStream;
use muster_wire::data::SetPause;
use muster_wire::problem::ProblemCode;
use muster_wire::sync::{SyncEvent, SyncOpen};

use crate::fixture::{Fixture, next, node, version};

fn db() -> PauseScope {
    PauseScope::Role { role: Role::new("db").unwrap() }
}

fn because(reason: &str, seconds: Option<u64>) -> SetPause {
    SetPause { reason: reason.into(), seconds, force: false }
}

async fn next_pause(stream: &mut SyncStream) -> Option<String> {
    loop {
        if let SyncEvent::Pause { pause } = next(stream).await {
            return pause.map(|paused| paused.pause.reason);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_node_stays_in_service_and_shows_the_pause() {
    let fixture = Fixture::start(&[("db1", "db"), ("web1", "web")]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let mut db1 = fixture.open("db1", &SyncOpen::default()).await;
    next(&mut db1).await;
    fixture.validate("db1", 1).await;
    let set = client.pause(env, &db(), &because("disk swap", Some(7200)), "jo").await.unwrap();
    assert_eq!((set.pause.nodes, set.before.is_none()), (1, true));
    assert_eq!(next_pause(&mut db1).await.as_deref(), Some("disk swap"));
    let shown = client.node(env, "db1").await.unwrap();
    assert!(shown.row.active && shown.row.reason.is_none(), "it runs what it should, and others count on it");
    assert_eq!(shown.row.paused.unwrap().pause.by, "jo");

    // A new version, which the paused node does not run.
    client.trigger_at_once(env, version("v2")).await.unwrap();
    let shown = client.node(env, "db1").await.unwrap();
    let Some(Reason::Paused { version: should, paused }) = shown.row.reason else { panic!("{:?}", shown.row.reason) };
    assert_eq!((should, paused.scope), (version("v2"), db()));
    let other = client.node(env, "web1").await.unwrap();
    assert_eq!(other.row.paused, None);
    assert_eq!(client.status(env).await.unwrap().pauses.len(), 1);

    // A second pause with a wider scope. Ending one pause leaves the other.
    client.pause(env, &PauseScope::Global, &because("network", None), "ann").await.unwrap();
    assert_eq!(next_pause(&mut db1).await.as_deref(), Some("network"), "the one that lasts longer");
    let ended = client.resume(env, &PauseScope::Global, "ann").await.unwrap();
    assert_eq!(ended.before.unwrap().pause.reason, "network");
    assert_eq!(ended.remaining.len(), 1);
    assert_eq!(next_pause(&mut db1).await.as_deref(), Some("disk swap"));
    client.resume(env, &db(), "ann").await.unwrap();
    assert_eq!(next_pause(&mut db1).await, None);
    let again = client.resume(env, &db(), "ann").await.unwrap();
    assert_eq!((again.before, again.remaining.len()), (None, 0));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_pause_is_removed() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let mut db1 = fixture.open("db1", &SyncOpen::default()).await;
    next(&mut db1).await;
    client.pause(env, &db(), &because("a moment", Some(1)), "jo").await.unwrap();
    assert_eq!(next_pause(&mut db1).await.as_deref(), Some("a moment"));
    // The server ends the pause by a timer, without a request.
    assert_eq!(next_pause(&mut db1).await, None);
    fixture.wait_for("its key is gone", |fleet| fleet.pauses().is_empty()).await;
    // A pause that had already ended when the server read it has no effect and is removed too.
    let since = "2026-01-01T00:00:00Z".parse().unwrap();
    let over = PauseRecord { by: "jo".into(), reason: "old".into(), since, until: Some(since) };
    let key = Keys::new(env).pause(&PauseScope::Global);
    fixture.store.commit(Txn::new().op(Op::put_json(key, &over).unwrap())).await.unwrap();
    fixture.wait_for("it is there", |fleet| !fleet.pauses().is_empty()).await;
    assert_eq!(client.pauses(env).await.unwrap().items, []);
    fixture.wait_for("it is gone", |fleet| fleet.pauses().is_empty()).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_without_reason_or_nodes_is_refused() {
    let fixture = Fixture::start(&[("db1", "db")]).await;
    let (client, env) = (&fixture.client, &fixture.env);
    let code = |answer: Result<_, muster_wire::client::ClientError>| {
        answer.map(|_: muster_wire::data::SetPauseResponse| ()).unwrap_err().problem().unwrap().code
    };
    assert_eq!(code(client.pause(env, &db(), &because(" \n", None), "jo").await), ProblemCode::InvalidRequest);
    assert_eq!(code(client.pause(env, &db(), &because("x", Some(0)), "jo").await), ProblemCode::InvalidRequest);
    let web = PauseScope::Role { role: Role::new("web").unwrap() };
    assert_eq!(code(client.pause(env, &web, &because("x", None), "jo").await), ProblemCode::UnknownRole);
    let web1 = PauseScope::Host { node: node("web1") };
    assert_eq!(code(client.pause(env, &web1, &because("x", None), "jo").await), ProblemCode::UnknownNode);
    let ahead = SetPause { force: true, ..because("before it comes", None) };
    assert_eq!(client.pause(env, &web1, &ahead, "jo").await.unwrap().pause.nodes, 0);
    fixture.stop().await;
}
