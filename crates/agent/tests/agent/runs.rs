//! Runs, from the events of the server to the reports of the agent.

use muster_core::node::status::Activity;
use muster_core::report::reason::{Need, RunReason};
use muster_core::report::{Cause, Outcome, RunResult, Verdict};

use crate::fake_server::FakeServer;
use crate::fixture::{Fixture, greeting, news, with_dbs};

#[tokio::test]
async fn a_node_is_configured_validated_and_reported() {
    let mut server = FakeServer::start().await;
    let fixture = Fixture::new(server.address);
    let script = "test \"$MUSTER_ROLE $MUSTER_VERSION $MUSTER_ADDRESS\" = 'web v1 127.0.0.1' || exit 9\n\
                  echo active_roles::db >> $MUSTER_LOOKUPS_FILE; echo fine; exit 2";
    let desired = fixture.release("v1", script, "");
    server.greet_with(greeting(&desired, with_dbs(7, &["db1"])));
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
async fn pending_node_runs_when_its_needs_are_met() {
    let mut server = FakeServer::start().await;
    let fixture = Fixture::new(server.address);
    let script = "grep -q '\"db2\"' $MUSTER_SNAPSHOT && exit 2\n\
                  echo '{\"kind\":\"role\",\"role\":\"db\",\"want\":2,\"have\":0}' >> $MUSTER_PENDING_FILE; exit 75";
    let desired = fixture.release("v1", script, "");
    server.greet_with(greeting(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();

    let pending = server.report().await;
    assert_eq!(pending.outcome, Outcome::Configured(RunResult::Pending));
    let Some(RunReason::Waiting { needs }) = &pending.reason else { panic!("{:?}", pending.reason) };
    assert!(matches!(&needs[..], [Need::Role { want: 2, .. }]), "{needs:?}");

    // One node is not enough. The next run reads both, so no run was started in between.
    server.say(news(with_dbs(2, &["db1"]))).await;
    server.say(news(with_dbs(3, &["db1", "db2"]))).await;
    let configured = server.report().await;
    assert_eq!(configured.outcome, Outcome::Configured(RunResult::Changed));
    assert!(matches!(&configured.causes[..], [Cause::LookedUp { changes }] if changes[0].key == "active_roles::db"));
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
}

#[tokio::test]
async fn a_node_that_waits_for_what_only_it_can_see_looks_again() {
    let mut server = FakeServer::start().await;
    let fixture = Fixture::new(server.address);
    let desired = fixture.release("v1", "test -e $MUSTER_ROOT/licence && exit 2; echo a licence; exit 75", "");
    server.greet_with(greeting(&desired, with_dbs(1, &[])));
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
async fn a_failed_run_is_made_again_until_it_works() {
    let mut server = FakeServer::start().await;
    let fixture = Fixture::new(server.address);
    let script = "echo x >> $MUSTER_ROOT/tries; test $(wc -l < $MUSTER_ROOT/tries) -ge 3";
    let desired = fixture.release("v1", script, "");
    server.greet_with(greeting(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();

    let mut first = None;
    for attempt in [1, 2] {
        let failed = server.report().await;
        assert_eq!(failed.outcome, Outcome::Configured(RunResult::Failed));
        let began_with = failed.first_failure.expect("how the failures began is told").run;
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
async fn only_what_was_validated_counts_as_proved() {
    let mut server = FakeServer::start().await;
    let fixture = Fixture::new(server.address);
    let log = fixture.path().join("log");
    let desired = fixture.release("v1", "exit 2", "");
    server.greet_with(greeting(&desired, with_dbs(1, &[])));
    let agent = fixture.start_with_log(&log);
    server.report().await;
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
    server.activity(|now| *now == Activity::Idle).await;
    agent.killed().await;
    assert!(std::fs::read_to_string(&log).unwrap().contains("no version has been validated on this node yet"));

    fixture.release("v2", "exit 2", "validate: [{name: no, exec: check}]\n");
    fixture.executable("v2", "check", "exit 1");
    server.greet_with(greeting(&fixture.desired("v2", 2), with_dbs(1, &[])));
    let agent = fixture.start_with_log(&log);
    assert_eq!(server.report().await.outcome, Outcome::Configured(RunResult::Changed));
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Failed));
    agent.killed().await;

    let _agent = fixture.start_with_log(&log);
    server.opened().await;
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("last validated version version=v1"), "{said}");
}
