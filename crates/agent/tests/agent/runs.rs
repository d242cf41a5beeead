//! Runs, from the events of the server to the reports of the agent: their live log, and the automatic rollback of versions
//! that no server confirmed in time.

use std::fs;
use std::path::Path;

use jiff::SignedDuration;
use muster_core::node::status::Activity;
use muster_core::report::reason::{Need, RunReason};
use muster_core::report::{Cause, Outcome, RunResult, Verdict};
use muster_testkit::wait::until;
use muster_wire::sync::{DesiredState, RequestedRun, SyncEvent};

use crate::fake_server::FakeServer;
use crate::fixture::{AgentFixture, AgentProcess, first_events, news, with_dbs};

#[tokio::test]
async fn run_is_configured_validated_and_reported() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let script = "test \"$MUSTER_ROLE $MUSTER_VERSION $MUSTER_ADDRESS\" = 'web v1 127.0.0.1' || exit 9\n\
                  echo active_roles::db >> $MUSTER_LOOKUPS_FILE; echo fine; exit 2";
    let desired = fixture.release("v1", script, "");
    server.set_first_events(first_events(&desired, with_dbs(7, &["db1"])));
    let _agent = fixture.start();

    let open = server.opened().await;
    assert_eq!((open.incarnation, open.generation, open.has_snapshot), (None, None, false));
    let configured = server.report().await;
    assert_eq!(configured.outcome, Outcome::Configured(RunResult::Changed));
    assert_eq!((configured.incarnation, configured.seq), (1, 1));
    assert_eq!(configured.causes, [Cause::AgentStarted, Cause::Version { version: desired.version.clone() }]);
    assert_eq!(configured.digest, desired.digest);
    assert_eq!(configured.log, "fine\n");
    assert_eq!(configured.lookups["active_roles::db"], with_dbs(7, &["db1"]).tag("active_roles::db"));
    let validated = server.report().await;
    assert_eq!(validated.outcome, Outcome::Validated(Verdict::Passed));
    assert_eq!((validated.seq, &validated.run), (2, &configured.run));
    assert_eq!(validated.log, "version v1 has no checks for role web: there is nothing to validate\n");
    assert_eq!(validated.lookups, configured.lookups);
}

#[tokio::test]
async fn services_are_reported_when_their_checks_pass() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let spec = "services:\n  http: {port: 8080, tags: [blue], check: web-answers}\n  sql: {port: 3306, check: db-answers}\n\
                validate:\n  - {name: web-answers, file: {path: \"{root}/up\"}, roles: [web], deadline: 50ms}\n  \
                - {name: db-answers, file: {path: \"{root}/db\"}, roles: [db]}\nvalidate_every: 10s\n";
    let desired = fixture.release("v1", "touch $MUSTER_ROOT/up; exit 2", spec);
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();

    assert!(server.report().await.services.is_empty(), "the checks have not run yet");
    let validated = server.report().await;
    assert_eq!(validated.outcome, Outcome::Validated(Verdict::Passed));
    let offered = serde_json::json!({"http": {"address": "127.0.0.1", "port": 8080, "tags": ["blue"]}});
    assert_eq!(serde_json::to_value(&validated.services).unwrap(), offered);

    let broken = fixture.release("v2", "rm $MUSTER_ROOT/up; exit 2", spec);
    server.send(SyncEvent::Desired(DesiredState { generation: fixture.desired("v2", 2).generation, ..broken })).await;
    assert_eq!(server.report().await.outcome, Outcome::Configured(RunResult::Changed));
    let failed = server.report().await;
    assert_eq!((failed.outcome, failed.services.len()), (Outcome::Validated(Verdict::Failed), 0));
}

#[tokio::test]
async fn pending_node_runs_when_its_needs_are_met() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let script = "grep -q '\"db2\"' $MUSTER_SNAPSHOT && exit 2\n\
                  echo '{\"kind\":\"role\",\"role\":\"db\",\"want\":2,\"have\":0}' >> $MUSTER_PENDING_FILE; exit 75";
    let desired = fixture.release("v1", script, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();

    let pending = server.report().await;
    assert_eq!(pending.outcome, Outcome::Configured(RunResult::Pending));
    let Some(RunReason::Waiting { needs }) = &pending.reason else { panic!("{:?}", pending.reason) };
    assert!(matches!(&needs[..], [Need::Role { want: 2, .. }]), "{needs:?}");

    // One node is not enough. The next run reads both, so no run was started in between.
    server.send(news(with_dbs(2, &["db1"]))).await;
    server.send(news(with_dbs(3, &["db1", "db2"]))).await;
    let configured = server.report().await;
    assert_eq!(configured.outcome, Outcome::Configured(RunResult::Changed));
    assert!(matches!(&configured.causes[..], [Cause::LookedUp { changes }] if changes[0].key == "active_roles::db"));
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
}

#[tokio::test]
async fn node_with_a_local_need_retries() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = fixture.release("v1", "test -e $MUSTER_ROOT/licence && exit 2; echo a licence; exit 75", "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();

    let pending = server.report().await;
    let needs = vec![Need::Other { reason: "a licence".into() }];
    assert_eq!(pending.reason, Some(RunReason::Waiting { needs }));
    server.activity(|now| matches!(now, Activity::Retrying { attempt: 1, .. })).await;
    std::fs::write(fixture.path().join("root/licence"), "").unwrap();
    loop {
        let report = server.report().await;
        assert_eq!(report.causes, [Cause::Retry { attempt: 1 }]);
        if report.outcome == Outcome::Validated(Verdict::Passed) {
            break;
        }
    }
}

#[tokio::test]
async fn failed_run_is_retried_until_it_succeeds() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let script = "echo x >> $MUSTER_ROOT/tries; test $(wc -l < $MUSTER_ROOT/tries) -ge 3";
    let desired = fixture.release("v1", script, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();

    let mut first = None;
    for attempt in [1, 2] {
        let failed = server.report().await;
        assert_eq!(failed.outcome, Outcome::Configured(RunResult::Failed));
        let began_with = failed.first_failure.expect("the first failure is reported").run;
        assert_eq!(first.get_or_insert(failed.run), &began_with, "attempt {attempt}");
        assert_eq!(failed.reason, Some(RunReason::ExitCode { program: "apply".into(), code: 1 }));
        assert_eq!(failed.attempt, attempt);
    }
    let third = server.report().await;
    assert_eq!(third.outcome, Outcome::Configured(RunResult::Unchanged));
    assert_eq!(third.causes, [Cause::Retry { attempt: 2 }]);
    assert_eq!((third.attempt, third.first_failure), (0, None));
}

#[tokio::test]
async fn unvalidated_version_is_not_the_local_version() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let log = fixture.path().join("log");
    let desired = fixture.release("v1", "exit 2", "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start_with_log(&log);
    server.report().await;
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
    server.activity(|now| *now == Activity::Idle).await;
    agent.killed().await;
    assert!(std::fs::read_to_string(&log).unwrap().contains("no version has been validated on this node yet"));

    fixture.release("v2", "exit 2", "validate: [{name: no, exec: check}]\n");
    fixture.executable("v2", "check", "exit 1");
    server.set_first_events(first_events(&fixture.desired("v2", 2), with_dbs(1, &[])));
    let agent = fixture.start_with_log(&log);
    assert_eq!(server.report().await.outcome, Outcome::Configured(RunResult::Changed));
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Failed));
    agent.killed().await;

    let _agent = fixture.start_with_log(&log);
    server.opened().await;
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("last validated version version=v1"), "{said}");
}

/// Opens a gate at which a script waits: `until test -e GATE; do …; done`.
fn open(gate: &Path) {
    std::fs::write(gate, "").unwrap();
}

fn waits_for(gate: &Path) -> String {
    format!("until test -e {}; do sleep 0.02; done", gate.display())
}

#[tokio::test]
async fn log_line_arrives_during_the_run() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let (first, second) = (fixture.path().join("first"), fixture.path().join("second"));
    let script = format!("echo begun; {}; echo continued; exit 2", waits_for(&first));
    let check = "validate: [{name: looks, exec: looks}, {name: waits, exec: waits}]\n";
    let desired = fixture.release("v1", &script, check);
    fixture.executable("v1", "looks", "echo well");
    fixture.executable("v1", "waits", &waits_for(&second));
    let desired = fixture.desired("v1", desired.generation.number);
    server.set_first_events(first_events(&desired, with_dbs(7, &["db1"])));
    let _agent = fixture.start();

    // The script waits for the gate, which is opened only after its line was received.
    let (run, begun) = server.log().await;
    assert_eq!((begun.offset, begun.text.as_str(), begun.last), (0, "begun\n", false));
    open(&first);
    let mut text = begun.text;
    while !text.contains("check looks passed") {
        let (of, piece) = server.log().await;
        assert_eq!((&of, piece.offset, piece.last), (&run, text.len() as u64, false));
        text.push_str(&piece.text);
    }
    // The result of a check is streamed too, while another check runs.
    open(&second);
    loop {
        let (_, piece) = server.log().await;
        assert_eq!(piece.offset, text.len() as u64);
        text.push_str(&piece.text);
        if piece.last {
            break;
        }
    }
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["begun", "continued"]);
    assert!(lines[2].starts_with("check looks passed after ") && lines[3].starts_with("check waits passed"), "{text}");
}

#[tokio::test]
async fn lost_log_piece_is_sent_again_without_blocking_the_run() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = fixture.release("v1", "echo one; exit 2", "");
    server.set_first_events(first_events(&desired, with_dbs(7, &["db1"])));
    server.refuse_logs(1);
    let _agent = fixture.start();
    let (_, lost) = server.log().await;
    let (_, again) = server.log().await;
    assert_eq!((lost.offset, lost.text.starts_with("one\n")), (0, true), "{lost:?}");
    assert_eq!((again.offset, again.text.starts_with("one\n")), (0, true), "{again:?}");
    server.report().await;
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
}

const WITHIN: SignedDuration = SignedDuration::from_millis(1500);

/// Script that appends the version to a file on the node.
fn prints(version: &str) -> String {
    format!("echo {version} >> $MUSTER_ROOT/versions; exit 2")
}

/// The same script, which first waits for the file `go`.
fn prints_after_the_gate(version: &str) -> String {
    let wait = "touch $MUSTER_ROOT/applying; while ! test -e $MUSTER_ROOT/go; do sleep 0.02; done";
    format!("test -e $MUSTER_ROOT/go || {{ {wait}; }}\n{}", prints(version))
}

/// Versions that were applied on the node, in order.
fn versions_on(fixture: &AgentFixture) -> Vec<String> {
    let said = fs::read_to_string(fixture.path().join("root/versions")).unwrap_or_default();
    said.lines().map(str::to_owned).collect()
}

/// A node that runs v1 and is sent v2. The server is stopped before the applier of v2 ends.
async fn cut_off(
    confirm_within: Option<SignedDuration>,
) -> (AgentFixture, AgentProcess, std::net::SocketAddr, DesiredState) {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let first = fixture.release("v1", &prints("v1"), "");
    fixture.release("v2", &prints_after_the_gate("v2"), "");
    let second = DesiredState { confirm_within, ..fixture.desired("v2", 2) };
    server.set_first_events(first_events(&first, with_dbs(1, &[])));
    let agent = fixture.start();
    for outcome in [Outcome::Configured(RunResult::Changed), Outcome::Validated(Verdict::Passed)] {
        assert_eq!(server.report().await.outcome, outcome);
    }
    server.send(SyncEvent::Desired(second.clone())).await;
    let applying = fixture.path().join("root/applying");
    until("v2 is being applied", || applying.exists()).await;
    let address = server.stop();
    fs::write(fixture.path().join("root/go"), "").unwrap();
    (fixture, agent, address, second)
}

#[tokio::test]
async fn unconfirmed_release_is_rolled_back_only_if_required() {
    let (asked, _agent, address, second) = cut_off(Some(WITHIN)).await;
    let (stays, _other_agent, other_address, unarmed) = cut_off(None).await;
    until("the node rolls back", || versions_on(&asked) == ["v1", "v2", "v1"]).await;
    until("v2 was applied", || versions_on(&stays) == ["v1", "v2"]).await;

    // The server is back with the same desired state.
    let mut server = FakeServer::start_at(address).await;
    server.set_first_events(first_events(&second, with_dbs(1, &[])));
    let mut reported = Vec::new();
    for _ in 0..4 {
        let report = server.report().await;
        assert_eq!(report.generation.number, 2);
        reported.push((report.version.to_string(), report.outcome.phase()));
        let went_back = Cause::AutoRollback { version: second.version.clone(), within: WITHIN };
        assert_eq!(report.causes.contains(&went_back), report.version.as_str() == "v1", "{:?}", report.causes);
    }
    let phases = [("v2", "configured"), ("v2", "validated"), ("v1", "configured"), ("v1", "validated")];
    assert_eq!(reported, phases.map(|(version, phase)| (version.to_owned(), phase)));
    // v2 is not retried, not even for a run that an operator requests.
    server.send(SyncEvent::Run(RequestedRun { id: "a".into(), by: "ada".into(), ..RequestedRun::default() })).await;
    let report = server.report().await;
    assert_eq!((report.version.as_str(), report.generation.number), ("v1", 2), "{:?}", report.causes);
    assert_eq!(report.causes, [Cause::operator("a", "ada")]);

    let mut other = FakeServer::start_at(other_address).await;
    other.set_first_events(first_events(&unarmed, with_dbs(1, &[])));
    other.send(SyncEvent::Run(RequestedRun { id: "a".into(), by: "ada".into(), ..RequestedRun::default() })).await;
    for _ in 0..4 {
        assert_eq!(other.report().await.version.as_str(), "v2");
    }
    assert_eq!(versions_on(&stays), ["v1", "v2", "v2"], "by the person's word alone");
}
