//! Paused nodes.

use std::fs;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use muster_core::names::Role;
use muster_core::node::pause::{NodePause, PauseRecord, PauseScope};
use muster_core::node::status::Activity;
use muster_core::report::{Cause, LookupChange, Outcome, RunResult, Verdict};
use muster_testkit::wait::until;
use muster_wire::sync::{RequestedRun, SyncEvent};

use crate::fake_server::{AgentRequest, FakeServer};
use crate::fixture::{AgentFixture, first_events, news, with_dbs};

const SCRIPT: &str = "echo x >> $MUSTER_ROOT/runs; echo active_roles::db >> $MUSTER_LOOKUPS_FILE; exit 2";

fn paused(until: Option<Timestamp>) -> NodePause {
    let pause = PauseRecord { by: "ada".into(), reason: "disk swap".into(), since: Timestamp::UNIX_EPOCH, until };
    NodePause { scope: PauseScope::Role { role: Role::new("web").unwrap() }, pause }
}

fn run_request(id: &str) -> SyncEvent {
    SyncEvent::Run(RequestedRun { id: id.into(), by: "bob".into(), ..RequestedRun::default() })
}

fn runs(fixture: &AgentFixture) -> usize {
    fs::read_to_string(fixture.path().join("root/runs")).unwrap_or_default().lines().count()
}

/// Waits until the agent is idle.
async fn validated(server: &mut FakeServer) {
    while server.report().await.outcome != Outcome::Validated(Verdict::Passed) {}
    server.activity(|now| *now == Activity::Idle).await;
}

#[tokio::test]
async fn events_in_a_pause_wait_for_its_end_across_restarts() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let check = "echo x >> $MUSTER_ROOT/checks";
    fixture.release("v1", SCRIPT, "validate: [{name: looks, exec: check}]\n");
    fixture.executable("v1", "check", check);
    let desired = fixture.desired("v1", 1);
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    validated(&mut server).await;

    server.send(SyncEvent::Pause { pause: Some(paused(None)) }).await;
    server.send(news(with_dbs(2, &["db1"]))).await;
    server.send(run_request("1")).await;
    let ledger = || fs::read_to_string(fixture.state().join("ledger.json")).unwrap_or_default();
    until("the requested run is in the ledger", || ledger().contains("\"by\":\"bob\"")).await;
    agent.killed().await;

    server.set_first_events(first_events(&desired, with_dbs(2, &["db1"])));
    let _agent = fixture.start();
    let open = server.opened().await;
    assert_eq!((open.pause, open.asked.as_deref()), (Some(paused(None)), Some("1")));
    // A paused node is still validated. The result is unchanged, so it is not reported.
    let checks = || fs::read_to_string(fixture.path().join("root/checks")).unwrap_or_default().lines().count();
    until("a paused node is validated", || checks() >= 2).await;
    // A duplicate, as after a reconnect: the request was accepted before.
    server.send(run_request("1")).await;
    assert_eq!(runs(&fixture), 1, "nothing runs in a pause");
    server.send(SyncEvent::Pause { pause: None }).await;

    let configured = server.report().await;
    let changes = vec![LookupChange { key: "active_roles::db".into(), what: "db1 added".into() }];
    let operator = Cause::operator("1", "bob");
    assert_eq!(configured.outcome, Outcome::Configured(RunResult::Changed));
    assert_eq!(configured.causes, [Cause::LookedUp { changes }, operator, Cause::AgentStarted]);
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
    server.send(run_request("1")).await;
    server.send(run_request("2")).await;
    let again = server.report().await;
    assert_eq!(again.causes, [Cause::operator("2", "bob")], "and what was asked once is done once");
    assert_eq!(runs(&fixture), 3);
}

/// By the node's clock these pauses would have ended long ago, or last for years.
#[tokio::test]
async fn pause_ends_by_the_time_of_the_server() {
    let ends = async |server_now: Timestamp| {
        let mut server = FakeServer::start().await;
        let fixture = AgentFixture::new(server.address);
        let mut events = first_events(&fixture.release("v1", SCRIPT, ""), with_dbs(1, &[]));
        let SyncEvent::Hello { now, .. } = &mut events[0] else { unreachable!() };
        *now = server_now;
        server.set_first_events(events);
        let _agent = fixture.start();
        validated(&mut server).await;
        let begun = Instant::now();
        let until = server_now + SignedDuration::from_secs(120);
        server.send(SyncEvent::Pause { pause: Some(paused(Some(until))) }).await;
        server.send(run_request("1")).await;
        // The same server, almost two minutes later.
        server.send(SyncEvent::Ping).await;
        let hello = SyncEvent::Hello {
            incarnation: 1,
            role: Role::new("web").unwrap(),
            host_name: None,
            now: until - SignedDuration::from_millis(1500),
            // A server of the first protocol.
            protocol: None,
        };
        server.send(hello).await;
        let configured = server.report().await;
        assert_eq!(configured.causes, [Cause::operator("1", "bob")]);
        assert!(begun.elapsed() >= Duration::from_millis(1500), "it left early, after {:?}", begun.elapsed());
    };
    let ahead = "2200-01-01T00:00:00Z".parse().unwrap();
    tokio::join!(ends(Timestamp::UNIX_EPOCH), ends(ahead));
}

#[expect(clippy::disallowed_methods, reason = "the test compares with what the agent read from the same clock")]
fn clock() -> Timestamp {
    Timestamp::now()
}

/// Retries, pauses and validations depend on elapsed time. Reports contain the time of the node's clock.
#[tokio::test]
async fn wrong_clock_does_not_shift_pauses_and_retries() {
    let lives = async |server_is_ahead: SignedDuration| {
        let mut server = FakeServer::start().await;
        let fixture = AgentFixture::new(server.address);
        let fails_once = format!("test -e $MUSTER_ROOT/tried || {{ touch $MUSTER_ROOT/tried; exit 1; }}\n{SCRIPT}");
        fixture.release("v1", &fails_once, "validate_every: 10s\nvalidate: [{name: looks, exec: check}]\n");
        fixture.executable("v1", "check", "echo x >> $MUSTER_ROOT/checks");
        let mut events = first_events(&fixture.desired("v1", 1), with_dbs(1, &[]));
        let (begun_at, begun) = (clock(), Instant::now());
        let server_now = begun_at + server_is_ahead;
        let SyncEvent::Hello { now, .. } = &mut events[0] else { unreachable!() };
        *now = server_now;
        server.set_first_events(events);
        let _agent = fixture.start();

        let failed = server.report().await;
        assert_eq!((failed.outcome, failed.attempt), (Outcome::Configured(RunResult::Failed), 1));
        assert!(begun_at <= failed.started && failed.started <= failed.ended && failed.ended <= clock());
        let again = server.report().await;
        assert_eq!(again.causes, [Cause::Retry { attempt: 1 }]);
        assert!(failed.ended <= again.started && again.ended <= clock());
        validated(&mut server).await;

        let pause = Duration::from_secs(4);
        let end = server_now + SignedDuration::try_from(pause).unwrap();
        server.send(SyncEvent::Pause { pause: Some(paused(Some(end))) }).await;
        server.send(run_request("1")).await;
        let requested = server.report().await;
        assert_eq!(requested.causes, [Cause::operator("1", "bob")]);
        assert!(begun.elapsed() >= pause, "it left the pause early, after {:?}", begun.elapsed());
        validated(&mut server).await;

        let checks = || fs::read_to_string(fixture.path().join("root/checks")).unwrap_or_default().lines().count();
        until("the node is validated between runs", || checks() > runs(&fixture)).await;
        assert_eq!(runs(&fixture), 2);
    };
    tokio::join!(lives(SignedDuration::from_hours(1)), lives(SignedDuration::from_hours(-1)));
}

#[tokio::test]
async fn node_that_breaks_in_a_pause_is_repaired_after_it() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    fixture.release(
        "v1",
        "touch $MUSTER_ROOT/well; exit 2",
        "validate: [{name: well, file: {path: \"{root}/well\"}, deadline: 100ms}]\n",
    );
    let desired = fixture.desired("v1", 1);
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    validated(&mut server).await;
    server.send(SyncEvent::Pause { pause: Some(paused(None)) }).await;
    server.send(SyncEvent::Ping).await;
    server.activity(|now| *now == Activity::Idle).await;
    agent.signal(rustix::process::Signal::TERM);
    agent.ended().await;
    fs::remove_file(fixture.path().join("root/well")).unwrap();

    let _agent = fixture.start();
    let broken = server.report().await;
    assert_eq!(broken.outcome, Outcome::Validated(Verdict::Failed));
    assert_eq!((&broken.causes[..], broken.attempt), (&[Cause::Schedule][..], 1));
    let first = broken.first_failure.expect("the first failure is reported");
    assert_eq!(first.run, broken.run);
    assert!(first.error.message.contains("No such file or directory"), "{}", first.error.message);
    server.send(SyncEvent::Ping).await;
    server.activity(|now| *now == Activity::Idle).await;
    assert!(
        !server.queued_requests().iter().any(|request| matches!(request, AgentRequest::Report(_))),
        "it is reported once"
    );
    server.send(SyncEvent::Pause { pause: None }).await;
    let repaired = server.report().await;
    assert_eq!((repaired.outcome, repaired.attempt), (Outcome::Configured(RunResult::Changed), 0));
    assert_eq!(repaired.causes, [Cause::AgentStarted]);
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
}
