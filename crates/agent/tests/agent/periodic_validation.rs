//! Tests of periodic validations, hooks and previews.

use std::fs;

use muster_core::node::service_state::{ServiceState, ValidationResult};
use muster_core::node::status::Activity;
use muster_core::report::reason::RunReason;
use muster_core::report::{Cause, LookupChange, Outcome, Report, RunOptions, RunResult, Verdict};
use muster_testkit::wait::until;
use muster_wire::sync::{DesiredState, RequestedRun, SyncEvent};

use crate::fake_server::{AgentRequest, FakeServer};
use crate::fixture::{AgentFixture, first_events, news, with_dbs};

const HOOK: &str = "hooks: [{name: members, on: \"active_roles::db\", run: hook}]\n";

fn preview(id: &str) -> SyncEvent {
    SyncEvent::Run(RequestedRun { id: id.into(), noop: true, by: "ada".into(), ..RequestedRun::default() })
}

fn operator(id: &str) -> Cause {
    Cause::operator(id, "ada")
}

fn lines(fixture: &AgentFixture, file: &str) -> usize {
    fs::read_to_string(fixture.path().join("root").join(file)).unwrap_or_default().lines().count()
}

async fn validated(server: &mut FakeServer) -> Report {
    loop {
        let report = server.report().await;
        if report.outcome == Outcome::Validated(Verdict::Passed) {
            return report;
        }
    }
}

#[tokio::test]
async fn broken_node_is_reported_once_and_run_again() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    fixture.release(
        "v1",
        "touch $MUSTER_ROOT/well; exit 2",
        "validate_every: 10s\nvalidate: [{name: well, exec: check}]\n",
    );
    fixture.executable("v1", "check", "echo x >> $MUSTER_ROOT/checks; test -e $MUSTER_ROOT/well");
    server.set_first_events(first_events(&fixture.desired("v1", 1), with_dbs(1, &[])));
    let _agent = fixture.start();
    validated(&mut server).await;
    server.activity(|now| *now == Activity::Idle).await;

    until("the node is validated between runs", || lines(&fixture, "checks") >= 2).await;
    fs::remove_file(fixture.path().join("root/well")).unwrap();
    let reports = |requests: Vec<AgentRequest>| {
        requests.iter().filter(|request| matches!(request, AgentRequest::Report(_))).count()
    };
    assert_eq!(reports(server.queued_requests()), 0, "when all is as it was, nothing is said");
    let broken = server.report().await;
    assert_eq!(broken.outcome, Outcome::Validated(Verdict::Failed));
    assert_eq!(broken.causes, [Cause::Schedule]);
    assert_eq!(broken.reason, Some(RunReason::ChecksFailed { names: vec!["well".into()] }));
    let again = server.report().await;
    assert_eq!(again.outcome, Outcome::Configured(RunResult::Changed));
    assert_eq!(again.causes, [Cause::Retry { attempt: 1 }]);
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
}

#[tokio::test]
async fn changed_key_runs_its_hook_and_no_run() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    fixture.release("v1", "echo x >> $MUSTER_ROOT/runs; exit 2", HOOK);
    fixture.executable("v1", "hook", "echo \"$MUSTER_HOOK: $MUSTER_HOOK_KEY\"; grep -c db2 $MUSTER_SNAPSHOT; true");
    server.set_first_events(first_events(&fixture.desired("v1", 1), with_dbs(1, &["db1"])));
    let agent = fixture.start();
    let configured = server.report().await;
    assert_eq!(configured.lookups["active_roles::db"], with_dbs(1, &["db1"]).tag("active_roles::db"), "it is watched");
    assert_eq!(server.report().await.hooks, [], "the run itself knows of no hooks");
    let first = server.report().await;
    assert_eq!((first.outcome, first.hooks.len()), (Outcome::Validated(Verdict::Passed), 1));

    server.send(news(with_dbs(2, &["db1", "db2"]))).await;
    let reacted = server.report().await;
    let changes = vec![LookupChange { key: "active_roles::db".into(), what: "db2 added".into() }];
    assert_eq!(reacted.causes, [Cause::LookedUp { changes }]);
    assert_eq!(reacted.outcome, Outcome::Validated(Verdict::Passed));
    assert_eq!(reacted.hooks[0].message, "members: active_roles::db\n1");
    assert!(reacted.log.starts_with("hook members succeeded after "), "{}", reacted.log);
    assert_eq!(reacted.lookups["active_roles::db"], with_dbs(2, &["db1", "db2"]).tag("active_roles::db"));
    assert_eq!(lines(&fixture, "runs"), 1);
    server.activity(|now| *now == Activity::Idle).await;

    // The restart causes a run, but the hook has already handled all changes.
    agent.killed().await;
    server.set_first_events(first_events(&fixture.desired("v1", 1), with_dbs(2, &["db1", "db2"])));
    let _agent = fixture.start();
    let open = server.opened().await;
    assert!(open.lookups.contains_key("active_roles::db"));
    assert_eq!(server.report().await.outcome, Outcome::Configured(RunResult::Changed));
    assert_eq!(validated(&mut server).await.hooks, []);
    server.activity(|now| *now == Activity::Idle).await;
    server.send(SyncEvent::Ping).await;
    server.activity(|now| *now == Activity::Idle).await;
    assert!(!server.queued_requests().iter().any(|request| matches!(request, AgentRequest::Report(_))));
}

#[tokio::test]
async fn failed_hook_is_reported_and_retried() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    fixture.release("v1", "exit 2", HOOK);
    fixture.executable("v1", "hook", "echo x >> $MUSTER_ROOT/tries; echo no; test $(wc -l < $MUSTER_ROOT/tries) -ge 3");
    server.set_first_events(first_events(&fixture.desired("v1", 1), with_dbs(1, &[])));
    let _agent = fixture.start();
    validated(&mut server).await;
    for attempt in [1, 2] {
        let failed = server.report().await;
        assert_eq!(failed.outcome, Outcome::Configured(RunResult::Failed));
        assert_eq!(failed.reason, Some(RunReason::HooksFailed { names: vec!["members".into()] }));
        assert_eq!((failed.attempt, failed.hooks[0].verdict), (attempt, Verdict::Failed));
        assert_eq!(failed.hooks[0].message, "hook ended with exit code 1: no");
    }
    assert_eq!(validated(&mut server).await.hooks[0].verdict, Verdict::Passed);
}

#[tokio::test]
async fn validation_clears_a_failed_hook_without_a_trigger() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    fixture.release("v1", "exit 2", &format!("validate_every: 10s\n{HOOK}"));
    fixture.executable("v1", "hook", "! grep -q db2 $MUSTER_SNAPSHOT");
    server.set_first_events(first_events(&fixture.desired("v1", 1), with_dbs(1, &["db1"])));
    let _agent = fixture.start();
    while validated(&mut server).await.hooks.is_empty() {}
    server.send(news(with_dbs(2, &["db1", "db2"]))).await;
    assert_eq!(server.report().await.outcome, Outcome::Configured(RunResult::Failed));
    server.send(news(with_dbs(3, &["db1"]))).await;
    let well = validated(&mut server).await;
    assert_eq!(well.causes, [Cause::Schedule], "the hook has succeeded with these values, and does not run again");
    let well = Some(ServiceState::Validated { result: ValidationResult::Success, version: well.version });
    assert_eq!(server.observed().state, well);
    let forgotten = || {
        let ledger = fs::read(fixture.state().join("ledger.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&ledger).unwrap()["hooks"]["members"]["attempt"] == 0
    };
    until("the failure is forgotten", forgotten).await;
}

#[tokio::test]
async fn preview_reports_changes_once_per_request() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let script = "test -n \"$MUSTER_NOOP\" && { echo would; exit 2; }; echo x >> $MUSTER_ROOT/runs; exit 0";
    let desired = fixture.release("v1", script, "noop: true\n");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    validated(&mut server).await;
    let state = server.observed().state;
    server.send(preview("1")).await;
    let said = server.report().await;
    assert_eq!(said.outcome, Outcome::Previewed(RunResult::Changed));
    assert_eq!((&said.causes[..], said.log.as_str()), (&[operator("1")][..], "would\n"));
    assert_eq!(server.observed().state, state, "a preview moves nothing");
    server.activity(|now| *now == Activity::Idle).await;

    agent.killed().await;
    let _agent = fixture.start();
    server.opened().await;
    server.send(preview("1")).await;
    server.send(preview("2")).await;
    let mut reports = Vec::new();
    while reports.last().is_none_or(|report: &Report| report.causes != [operator("2")]) {
        reports.push(server.report().await);
    }
    let previews = reports.iter().filter(|report| matches!(report.outcome, Outcome::Previewed(_)));
    assert_eq!(previews.count(), 1, "a request is answered once");
    until("the run after the restart is made", || lines(&fixture, "runs") == 2).await;
}

/// The first preview, hook or check hangs until the agent is killed. Later ones succeed.
const HANGS_ONCE: &str = "test -e $MUSTER_ROOT/hung && exit 0; touch $MUSTER_ROOT/hung; setsid sleep 1000 & sleep 1000";

/// Kills the agent while a script hangs. Returns the id of that run.
async fn killed_while_it_hangs(fixture: &AgentFixture, agent: crate::fixture::AgentProcess) -> String {
    until("the script hangs", || fixture.path().join("root/hung").exists()).await;
    let ledger: serde_json::Value =
        serde_json::from_slice(&fs::read(fixture.state().join("ledger.json")).unwrap()).unwrap();
    let run = ledger["running"]["run"].as_str().expect("something runs").to_owned();
    agent.killed().await;
    assert!(!muster_marked::find("MUSTER_RUN_ID", &run).unwrap().is_empty(), "it outlives its agent");
    run
}

fn nothing_is_left_of(run: &str) {
    assert!(muster_marked::find("MUSTER_RUN_ID", run).unwrap().is_empty(), "something is left of {run}");
}

#[tokio::test]
async fn killed_preview_is_made_again() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let script = format!("test -z \"$MUSTER_NOOP\" && exit 0\n{HANGS_ONCE}");
    server.set_first_events(first_events(&fixture.release("v1", &script, "noop: true\n"), with_dbs(1, &[])));
    let agent = fixture.start();
    validated(&mut server).await;
    server.activity(|now| *now == Activity::Idle).await;
    server.send(preview("1")).await;
    let run = killed_while_it_hangs(&fixture, agent).await;
    let _agent = fixture.start();
    let again = server.report().await;
    assert_eq!((again.outcome, &again.causes[..]), (Outcome::Previewed(RunResult::Unchanged), &[operator("1")][..]));
    nothing_is_left_of(&run);
    assert_eq!(server.report().await.causes, [Cause::AgentStarted], "no run was interrupted");
}

/// A hook may install packages: it is not cut off. Its result is lost with the agent, so it runs again.
#[tokio::test]
async fn hook_of_a_killed_agent_completes_and_runs_again() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    fixture.release("v1", "exit 0", HOOK);
    let hook = "test -e $MUSTER_ROOT/completed && exit 0; touch $MUSTER_ROOT/hung\n\
                until test -e $MUSTER_ROOT/go; do sleep 0.01; done; touch $MUSTER_ROOT/completed";
    fixture.executable("v1", "hook", hook);
    server.set_first_events(first_events(&fixture.desired("v1", 1), with_dbs(1, &[])));
    let agent = fixture.start();
    validated(&mut server).await;
    let run = killed_while_it_hangs(&fixture, agent).await;
    let _agent = fixture.start();
    fs::write(fixture.path().join("root/go"), "").unwrap();
    // The last report of the first agent may be a duplicate: it was killed before it read the server's answer.
    let mut configured = server.report().await;
    while configured.causes != [Cause::AgentStarted] {
        configured = server.report().await;
    }
    nothing_is_left_of(&run);
    assert!(fixture.path().join("root/completed").exists());
    assert_eq!(
        (configured.outcome, &configured.causes[..]),
        (Outcome::Configured(RunResult::Unchanged), &[Cause::AgentStarted][..])
    );
    loop {
        let report = validated(&mut server).await;
        if let [hook] = &report.hooks[..] {
            assert_eq!(hook.verdict, Verdict::Passed);
            break;
        }
    }
}

#[tokio::test]
async fn killed_periodic_validation_is_not_reported() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    fixture.release("v1", "exit 0", "validate_every: 10s\nvalidate: [{name: looks, exec: check}]\n");
    // The second check hangs: it is the first periodic validation.
    fixture.executable(
        "v1",
        "check",
        &format!("echo x >> $MUSTER_ROOT/checks; test $(wc -l < $MUSTER_ROOT/checks) -eq 2 || exit 0\n{HANGS_ONCE}"),
    );
    server.set_first_events(first_events(&fixture.desired("v1", 1), with_dbs(1, &[])));
    let agent = fixture.start();
    validated(&mut server).await;
    let run = killed_while_it_hangs(&fixture, agent).await;
    let _agent = fixture.start();
    assert_eq!(server.report().await.causes, [Cause::AgentStarted]);
    nothing_is_left_of(&run);
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
}

#[tokio::test]
async fn preview_of_another_release_keeps_nothing() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    fixture.release("v1", "echo 1 >> $MUSTER_ROOT/ran; exit 2", "noop: true\n");
    fixture.release("v9", "echo $MUSTER_VERSION $MUSTER_NOOP >> $MUSTER_ROOT/previewed; exit 2", "noop: true\n");
    // Without another generation: the desired version stays.
    let (v1, v9) = (fixture.desired("v1", 3), fixture.desired("v9", 1));
    server.set_first_events(first_events(&v1, with_dbs(1, &[])));
    let _agent = fixture.start();
    validated(&mut server).await;
    server.activity(|now| *now == Activity::Idle).await;
    let state = || fs::read_to_string(fixture.state().join("ledger.json")).unwrap();
    let releases = || {
        let entries = fs::read_dir(fixture.state().join("releases")).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with("evicted-")).collect();
        names.sort();
        names
    };
    let before = (releases(), fs::read_to_string(fixture.state().join("releases.json")).unwrap_or_default());

    let options = RunOptions { version: Some(v9.version.clone()), ..RunOptions::default() };
    let release = Some(Box::new(DesiredState { allow_older: true, ..v9 }));
    let request = RequestedRun { id: "a".into(), noop: true, by: "ada".into(), options: options.clone(), release };
    server.send(SyncEvent::Run(request)).await;
    let report = server.report().await;
    assert_eq!(report.outcome, Outcome::Previewed(RunResult::Changed), "{:?}", report.reason);
    assert_eq!((report.version.as_str(), report.generation.number), ("v9", 3));
    assert_eq!(report.causes, [Cause::Operator { id: "a".into(), by: "ada".into(), options }]);
    server.activity(|now| *now == Activity::Idle).await;
    assert_eq!(fs::read_to_string(fixture.path().join("root/previewed")).unwrap(), "v9 1\n");
    until("the release of the preview is removed", || releases() == before.0).await;
    assert_eq!(fs::read_to_string(fixture.state().join("releases.json")).unwrap_or_default(), before.1);
    assert!(!state().contains("v9"), "{}", state());
    assert_eq!(lines(&fixture, "ran"), 1);
}

#[tokio::test]
async fn tags_count_only_on_top_of_a_complete_run() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let script = "echo \"${MUSTER_TAGS:-all}${MUSTER_DEBUG:+ debug}\" >> $MUSTER_ROOT/ran; test -e $MUSTER_ROOT/good || exit 1; exit 2";
    fixture.release("v1", script, "");
    server.set_first_events(first_events(&fixture.desired("v1", 1), with_dbs(1, &[])));
    let _agent = fixture.start();
    let failed = server.report().await;
    assert_eq!(failed.outcome, Outcome::Configured(RunResult::Failed));
    let request = |id: &str| {
        let options = RunOptions { tags: vec!["a".into(), "b".into()], debug: true, version: None };
        SyncEvent::Run(RequestedRun { id: id.into(), by: "ada".into(), options, ..RequestedRun::default() })
    };
    let ran = || fs::read_to_string(fixture.path().join("root/ran")).unwrap();
    fs::write(fixture.path().join("root/good"), "").unwrap();
    server.send(request("a")).await;
    validated(&mut server).await;
    assert!(!ran().contains("a,b"), "a failed node makes a complete run: {}", ran());

    server.activity(|now| *now == Activity::Idle).await;
    server.send(request("b")).await;
    let report = validated(&mut server).await;
    assert_eq!(report.version.as_str(), "v1");
    assert!(ran().ends_with("a,b debug\n"), "{}", ran());
}
