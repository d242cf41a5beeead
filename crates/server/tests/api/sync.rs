//! The agents' stream: each agent receives the events that concern it, and no other events. Admission limits the streams that
//! are opened at once.

use std::sync::Arc;

use muster_core::keys::Keys;
use muster_core::lookup::Lookups;
use muster_core::names::{HostName, Role};
use muster_core::node::status::{Activity, NodeState};
use muster_core::txn::{Generation, Op, Txn};
use muster_testkit::records::{node_record, node_records};
use muster_testkit::wait::until_changed;
use muster_wire::client::{Client, SyncStream};
use muster_wire::problem::ProblemCode;
use muster_wire::sync::{SyncEvent, SyncOpen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::fixture::{Fixture, PASSED, next, node, release_record, token, version};

const FLEET: [(&str, &str); 4] = [("db1", "db"), ("web1", "web"), ("web2", "web"), ("lb1", "lb")];

/// An agent that has received the current state and has looked up some keys.
pub(crate) fn caught_up(fixture: &Fixture, keys: &[&str]) -> SyncOpen {
    let fleets = fixture.app.view.fleets();
    let fleet = &fleets[&fixture.env];
    let lookups: Lookups = keys.iter().map(|key| ((*key).to_owned(), fleet.tag(key, None))).collect();
    let generation = fleet.desired().map(|desired| desired.generation);
    SyncOpen { incarnation: Some(1), generation, lookups, has_snapshot: true, ..SyncOpen::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_agent_gets_full_state_and_current_agent_nothing() {
    let fixture = Fixture::start(&FLEET).await;
    let mut stream = fixture.open("web1", &SyncOpen::default()).await;
    let role = Role::new("web").unwrap();
    assert!(matches!(next(&mut stream).await, SyncEvent::Hello { incarnation: 1, role: to, .. } if to == role));
    let SyncEvent::Snapshot { changed, snapshot } = next(&mut stream).await else { panic!("a snapshot comes first") };
    assert_eq!(changed, Vec::<String>::new());
    let roles: Vec<&str> = snapshot.active_roles.keys().map(Role::as_str).collect();
    assert_eq!(roles, ["db", "lb", "web"], "roles without active nodes are there too");
    let SyncEvent::Desired(desired) = next(&mut stream).await else { panic!("then the desired state") };
    let asked = fixture.client.desired(&fixture.env, &node("web1")).await.unwrap();
    assert_eq!((asked.desired.as_ref(), asked.pause), (Some(&desired), None), "the response equals the event");
    assert_eq!(
        (desired.version, desired.digest, desired.generation.epoch),
        (version("v1"), release_record("v1", 1).digest, 7)
    );
    drop(stream);

    // The same agent connects again: nothing is written or sent. It receives the next change.
    let before = fixture.state().await;
    let mut stream = fixture.open("web1", &caught_up(&fixture, &["active_roles::db"])).await;
    assert!(matches!(next(&mut stream).await, SyncEvent::Hello { incarnation: 1, role: to, .. } if to == role));
    assert_eq!(fixture.state().await, before, "a reconnection writes nothing");
    fixture.validate("db1", 1).await;
    let SyncEvent::Snapshot { changed, .. } = next(&mut stream).await else { panic!("db1 is news") };
    assert_eq!(changed, ["active_roles::db"]);

    // An agent without state gets a new incarnation.
    let mut stream = fixture.open("web1", &SyncOpen::default()).await;
    assert!(matches!(next(&mut stream).await, SyncEvent::Hello { incarnation: 2, role: to, .. } if to == role));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_nodes_that_looked_a_key_up_are_woken() {
    let fixture = Fixture::start(&FLEET).await;
    let mut web = fixture.open("web1", &caught_up(&fixture, &["active_roles::db::eth0"])).await;
    let mut lb = fixture.open("lb1", &caught_up(&fixture, &["active_roles::web"])).await;
    next(&mut web).await;
    next(&mut lb).await;

    fixture.validate("db1", 1).await;
    let SyncEvent::Snapshot { changed, snapshot } = next(&mut web).await else { panic!("web1 looked it up") };
    assert_eq!(changed, ["active_roles::db::eth0"]);
    let db = &snapshot.active_roles[&Role::new("db").unwrap()];
    assert_eq!(db[&node("db1")].get("eth0").unwrap(), "addr-of-db1");

    // The first event for lb1 is about the web node, not about the earlier db node.
    fixture.validate("web2", 1).await;
    let SyncEvent::Snapshot { changed, .. } = next(&mut lb).await else { panic!("lb1 looked it up") };
    assert_eq!(changed, ["active_roles::web"]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_change_alone_wakes_no_lookups() {
    let fixture = Fixture::start(&FLEET).await;
    fixture.validate("db1", 1).await;
    fixture.wait_for("db1 is active", |fleet| fleet.active_count(&Role::new("db").unwrap()) == 1).await;
    let mut web = fixture.open("web1", &caught_up(&fixture, &["active_roles::db", "active_roles::lb"])).await;
    next(&mut web).await;

    let mut upgraded = fixture.report("db1", 1, 2, PASSED);
    upgraded.version = version("v2");
    fixture.send(&upgraded).await;
    fixture.validate("lb1", 1).await;
    let SyncEvent::Snapshot { changed, .. } = next(&mut web).await else { panic!("lb1 is news") };
    assert_eq!(changed, ["active_roles::lb"], "db1 at another version is no news");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_during_a_run_is_sent_after_its_report() {
    let fixture = Fixture::start(&FLEET).await;
    let mut web = fixture.open("web1", &caught_up(&fixture, &[])).await;
    next(&mut web).await;
    // The run looked up db before db1 became active, and its report arrives afterwards.
    let absent = fixture.app.view.fleets()[&fixture.env].tag("active_roles::db", None);
    fixture.validate("db1", 1).await;
    let mut report = fixture.report("web1", 1, 1, PASSED);
    report.lookups.insert("active_roles::db".into(), absent);
    fixture.send(&report).await;
    let SyncEvent::Snapshot { changed, .. } = next(&mut web).await else { panic!("it was missed") };
    assert_eq!(changed, ["active_roles::db"]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_change_is_sent_with_a_fresh_snapshot() {
    let fixture = Fixture::start(&FLEET).await;
    let mut web = fixture.open("web1", &caught_up(&fixture, &[])).await;
    next(&mut web).await;
    let triggered = fixture.client.trigger_at_once(&fixture.env, version("v2")).await.unwrap();
    assert_eq!((triggered.from, triggered.changed), (Some(version("v1")), true));
    assert!(matches!(next(&mut web).await, SyncEvent::Snapshot { .. }));
    let SyncEvent::Desired(desired) = next(&mut web).await else { panic!("the new version") };
    assert_eq!(desired.version, version("v2"));
    assert_eq!(desired.generation, Generation { epoch: 7, number: triggered.revision.0 });

    let before = fixture.state().await;
    let again = fixture.client.trigger_at_once(&fixture.env, version("v2")).await.unwrap();
    assert!(!again.changed, "asking again changes nothing");
    assert_eq!(fixture.state().await, before);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_snapshot_is_not_sent_again() {
    let fixture = Fixture::start(&FLEET).await;
    // A role gets a leader when one of its agents connects. The leader is part of the snapshot.
    let _web2 = fixture.open("web2", &caught_up(&fixture, &[])).await;
    fixture.wait_for("web2 leads", |fleet| fleet.leader("web").is_some()).await;
    let mut first = fixture.open("web1", &SyncOpen::default()).await;
    next(&mut first).await;
    let SyncEvent::Snapshot { snapshot, .. } = next(&mut first).await else { panic!("a snapshot comes first") };
    assert!(snapshot.tag.is_some());
    assert!(matches!(next(&mut first).await, SyncEvent::Desired(_)));

    // web2 has the snapshot from an earlier stream and sends its tag. The store changes, but the snapshot does not.
    let holding = SyncOpen { snapshot: snapshot.tag.clone(), ..caught_up(&fixture, &[]) };
    let mut second = fixture.open("web2", &holding).await;
    next(&mut second).await;
    fixture.client.trigger_at_once(&fixture.env, version("v2")).await.unwrap();
    for stream in [&mut first, &mut second] {
        let SyncEvent::Desired(desired) = next(stream).await else { panic!("it has the snapshot") };
        assert_eq!(desired.version, version("v2"));
    }

    // The snapshot changes. No agent looked up the change, so none is notified. An agent that gets another version gets
    // the new snapshot first.
    fixture.validate("db1", 1).await;
    fixture.wait_for("db1 is active", |fleet| fleet.active_count(&Role::new("db").unwrap()) == 1).await;
    let mut late = fixture.open("lb1", &holding).await;
    next(&mut late).await;
    let SyncEvent::Snapshot { snapshot: other, .. } = next(&mut late).await else { panic!("db1 is in it now") };
    assert_ne!(other.tag, snapshot.tag);
    assert_eq!(other.active_roles[&Role::new("db").unwrap()].len(), 1);
    assert!(matches!(next(&mut late).await, SyncEvent::Desired(_)));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_connection_of_a_node_replaces_older_ones() {
    let fixture = Fixture::start(&FLEET).await;
    let mut old = fixture.open("web1", &caught_up(&fixture, &[])).await;
    next(&mut old).await;
    let mut new = fixture.open("web1", &caught_up(&fixture, &[])).await;
    next(&mut new).await;
    assert_eq!(old.next().await.unwrap(), None, "the old stream ends");
    assert_eq!(fixture.app.agents.hub.connected(), 1);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn activity_is_shown_while_the_agent_is_connected() {
    let fixture = Fixture::start(&FLEET).await;
    let mut web = fixture.open("web1", &caught_up(&fixture, &[])).await;
    next(&mut web).await;
    let activity = Activity::Blocked { problem: "disk full".into() };
    fixture.client.activity(&fixture.env, &node("web1"), &activity).await.unwrap();
    let shown = fixture.client.node(&fixture.env, &node("web1")).await.unwrap();
    assert_eq!((shown.row.state, shown.activity), (NodeState::Blocked, activity));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_sends_its_activity_on_its_stream() {
    let fixture = Fixture::start(&FLEET).await;
    let mut stream = fixture.open("web1", &caught_up(&fixture, &[])).await;
    assert!(matches!(next(&mut stream).await, SyncEvent::Hello { .. }));
    let mut replies = stream.take_replies().expect("the server upgrades the connection");
    let activity = Activity::Blocked { problem: "disk full".into() };
    replies.send(&activity).await.unwrap();
    let shown = || fixture.app.agents.hub.session(&fixture.env, &node("web1")).map(|session| session.activity());
    until_changed("the activity", fixture.app.agents.hub.subscribe(), || shown().as_ref() == Some(&activity)).await;
    drop((stream, replies));
    until_changed("the end of the session", fixture.app.agents.hub.subscribe(), || shown().is_none()).await;
    fixture.stop().await;
}

/// Sends the request for a stream by hand, and returns the beginning of the response.
async fn raw_stream(fixture: &Fixture, headers: &str) -> (TcpStream, String) {
    let address = fixture.url("").replace("http://", "");
    let mut connection = TcpStream::connect(&address).await.unwrap();
    let (body, token) = (serde_json::to_string(&caught_up(fixture, &[])).unwrap(), token());
    let head = format!(
        "POST /v1/envs/test/nodes/web1/sync HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n{headers}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        token.as_str(),
        body.len()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !String::from_utf8_lossy(&response).contains("event: hello") {
        assert_ne!(connection.read_buf(&mut response).await.unwrap(), 0, "{}", String::from_utf8_lossy(&response));
    }
    (connection, String::from_utf8(response).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_without_the_upgrade_gets_a_response() {
    let fixture = Fixture::start(&FLEET).await;
    for other in ["", "connection: upgrade\r\nupgrade: websocket\r\n"] {
        let (_connection, response) = raw_stream(&fixture, other).await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        assert!(response.contains("content-type: text/event-stream\r\n"), "{response}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_message_of_an_agent_ends_its_stream() {
    let fixture = Fixture::start(&FLEET).await;
    for message in ["event: activity\ndata: {\n\n".to_owned(), "x".repeat(17 * 1024)] {
        let (mut connection, response) = raw_stream(&fixture, "connection: upgrade\r\nupgrade: muster-sync\r\n").await;
        assert!(response.starts_with("HTTP/1.1 101 "), "{response}");
        connection.write_all(message.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = connection.read_to_end(&mut rest).await;
        assert!(
            fixture.app.agents.hub.session(&fixture.env, &node("web1")).is_none(),
            "the session ends before its connection"
        );
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_outside_the_design_gets_no_stream() {
    let fixture = Fixture::start(&FLEET).await;
    let error = fixture.client.sync(&fixture.env, &node("db9"), &SyncOpen::default()).await.unwrap_err();
    assert_eq!(error.problem().unwrap().code, ProblemCode::UnknownNode);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_accepts_a_restored_store() {
    let fixture = Fixture::start(&FLEET).await;
    // The agent has a generation with a later epoch than the store.
    let later = Generation { epoch: 7, number: 99_999 };
    let open = SyncOpen { generation: Some(later), ..caught_up(&fixture, &[]) };
    let mut web = fixture.open("web1", &open).await;
    assert!(matches!(next(&mut web).await, SyncEvent::Hello { .. }));
    assert!(matches!(next(&mut web).await, SyncEvent::Snapshot { .. }));
    let SyncEvent::Desired(desired) = next(&mut web).await else { panic!("expected the desired state") };
    assert!(desired.generation > later, "{} would be refused after {later}", desired.generation);

    // The next agent finds the new epoch. No further epoch begins.
    let before = fixture.state().await;
    let mut web2 = fixture.open("web2", &open).await;
    next(&mut web2).await;
    assert_eq!(fixture.state().await, before);
    fixture.stop().await;
}

const DAY: u64 = 24 * 60 * 60;

/// An adopted epoch would be the end: all agents refuse earlier ones, and there may be none later.
#[tokio::test(flavor = "multi_thread")]
async fn epoch_of_an_agent_is_never_adopted() {
    let fixture = Fixture::start(&FLEET).await;
    let before = fixture.state().await;
    let now = u64::try_from(fixture.app.clock.now().as_second()).unwrap();
    for epoch in [68_719_476_736, u64::MAX, now + 2 * DAY] {
        let open = SyncOpen { generation: Some(Generation { epoch, number: 1 }), ..SyncOpen::default() };
        let refused = fixture.client.sync(&fixture.env, &node("web1"), &open).await.unwrap_err();
        let problem = refused.problem().unwrap();
        assert_eq!(problem.code, ProblemCode::InvalidRequest, "{problem}");
    }
    let mut report = fixture.report("web1", 1, 1, crate::fixture::PASSED);
    report.generation.epoch = 68_719_476_736;
    let refused = fixture.client.report(&fixture.env, &report).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, ProblemCode::InvalidRequest);
    assert_eq!(fixture.state().await, before, "nothing was written");

    // A time that a server may have had: the store went back, and begins an epoch of its own clock.
    let known = Generation { epoch: now - 1000, number: 1 };
    let _web = fixture.open("web1", &SyncOpen { generation: Some(known), ..caught_up(&fixture, &[]) }).await;
    let epoch = fixture.app.view.fleets()[&fixture.env].epoch();
    assert!((now..now + 3600).contains(&epoch), "{epoch} at {now}");

    // The clock of the server that had begun it may have been ahead.
    let known = Generation { epoch: now + 7200, number: 1 };
    let _web = fixture.open("web1", &SyncOpen { generation: Some(known), ..caught_up(&fixture, &[]) }).await;
    let epoch = fixture.app.view.fleets()[&fixture.env].epoch();
    assert!((now + DAY..now + DAY + 3600).contains(&epoch), "{epoch} at {now}: of the clock, not of the agent");

    // A server believes no more: the view notices a store that goes back now.
    for number in [1_000_000, u64::MAX] {
        let open = SyncOpen { generation: Some(Generation { epoch, number }), ..SyncOpen::default() };
        let refused = fixture.client.sync(&fixture.env, &node("web1"), &open).await.unwrap_err();
        assert_eq!(refused.problem().unwrap().code, ProblemCode::InvalidRequest, "{refused}");
        assert_eq!(fixture.app.view.fleets()[&fixture.env].epoch(), epoch);
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_role_wakes_nodes_that_looked_it_up() {
    let fixture = Fixture::start(&FLEET).await;
    let mut web = fixture.open("web1", &caught_up(&fixture, &["active_roles::cache::eth0"])).await;
    next(&mut web).await;
    let record = node_record("cache", "default", 9);
    let key = Keys::new(&fixture.env).node(&node("cache1"));
    fixture.store.commit(Txn::new().op(Op::put_json(key, &record).unwrap())).await.unwrap();
    let SyncEvent::Snapshot { changed, .. } = next(&mut web).await else { panic!("the role is there now") };
    assert_eq!(changed, ["active_roles::cache::eth0"]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outdated_report_does_not_change_lookups() {
    let fixture = Fixture::start(&FLEET).await;
    let mut web = fixture.open("web1", &caught_up(&fixture, &[])).await;
    next(&mut web).await;
    let tag = |key: &str| fixture.app.view.fleets()[&fixture.env].tag(key, None);
    let mut newest = fixture.report("web1", 1, 5, PASSED);
    newest.lookups.insert("active_roles::db".into(), tag("active_roles::db"));
    fixture.send(&newest).await;
    let mut old = fixture.report("web1", 1, 4, PASSED);
    old.lookups.insert("active_roles::lb".into(), tag("active_roles::lb"));
    fixture.send(&old).await;
    fixture.validate("lb1", 1).await;
    fixture.validate("db1", 1).await;
    let SyncEvent::Snapshot { changed, .. } = next(&mut web).await else { panic!("db1 is news") };
    assert_eq!(changed, ["active_roles::db"]);
    fixture.stop().await;
}

const AGENTS: usize = 500;

/// Opens a stream as an agent does, and retries when the server asks for it.
async fn connect(client: Client, fixture_env: muster_core::names::EnvName, name: String) -> SyncStream {
    loop {
        match client.sync(&fixture_env, &node(&name), &SyncOpen::default()).await {
            Ok(mut stream) => {
                next(&mut stream).await;
                return stream;
            }
            Err(error) => {
                let problem = error.problem().unwrap_or_else(|| panic!("{error:?}"));
                assert_eq!(problem.code, ProblemCode::Busy, "{problem}");
                assert!(problem.retry_after_seconds.is_some());
                tokio::task::yield_now().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_streams_open_within_the_admission_limit() {
    let names: Vec<String> = (1..=AGENTS).map(|number| format!("web{number}")).collect();
    let fleet: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "web")).collect();
    let fixture = Fixture::start(&fleet).await;
    let together = Arc::new(Barrier::new(AGENTS));
    let mut agents = JoinSet::new();
    for name in names {
        let (together, client, env) = (together.clone(), fixture.client.clone(), fixture.env.clone());
        agents.spawn(async move {
            together.wait().await;
            connect(client, env, name).await
        });
    }
    let connected = agents.join_all().await;
    assert_eq!((connected.len(), fixture.app.agents.hub.connected()), (AGENTS, AGENTS));
    let (_, most, _) = fixture.app.agents.admission.counts();
    assert!((1..=fixture.app.agents.admission.limit()).contains(&most), "{most} at once");
    drop(connected);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_host_name_reaches_the_agent() {
    let fixture = Fixture::start(&FLEET).await;
    let mut web = fixture.open("web1", &caught_up(&fixture, &[])).await;
    assert!(matches!(next(&mut web).await, SyncEvent::Hello { host_name: None, .. }));
    let host = HostName::new("www.example.org").unwrap();
    let mut design = node_records(&FLEET, "default");
    design.get_mut("web1").unwrap().host_name = Some(host.clone());
    muster_server::follow_design(&fixture.app, &fixture.env, &design).await.unwrap();
    let hello = next(&mut web).await;
    let expected = (1, Some(&host));
    let SyncEvent::Hello { incarnation, host_name, .. } = &hello else { panic!("{hello:?}") };
    assert_eq!((*incarnation, host_name.as_ref()), expected);

    // It is found by that name, and an agent that connects later gets it first.
    assert_eq!(fixture.client.node(&fixture.env, &host).await.unwrap().row.host, "www.example.org");
    drop(web);
    let mut web = fixture.open("web1", &caught_up(&fixture, &[])).await;
    let SyncEvent::Hello { host_name, .. } = next(&mut web).await else { panic!("hello is first") };
    assert_eq!(host_name, Some(host));
    fixture.stop().await;
}
