//! Servers that are unreachable, return, send duplicate or outdated events, or do not know the node, and the
//! failover to another replica.

use std::fs;

use muster_core::node::status::Activity;
use muster_core::report::{Cause, Outcome, RunResult, Verdict};
use muster_core::txn::Generation;
use muster_testkit::wait::until;
use muster_wire::problem::ProblemCode;
use muster_wire::sync::{DesiredState, RequestedRun, SyncEvent};

use crate::fake_server::{AgentRequest, FakeServer, ScriptedAnswer};
use crate::fixture::{AgentFixture, AgentProcess, first_events, news, with_dbs};

const FINE: &str = "echo active_roles::db >> $MUSTER_LOOKUPS_FILE; exit 0";

/// A node that has been validated at v1.
async fn validated(server: &mut FakeServer, fixture: &AgentFixture) -> DesiredState {
    let desired = fixture.release("v1", FINE, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    desired
}

/// Number of reports in the agent's outbox.
fn waiting_reports(fixture: &AgentFixture) -> usize {
    let files = fs::read_dir(fixture.state().join("outbox")).unwrap().flatten();
    files.filter(|file| file.path().extension().is_some_and(|extension| extension == "json")).count()
}

async fn both_reports(server: &mut FakeServer) -> [u64; 2] {
    let (one, two) = (server.report().await, server.report().await);
    assert_eq!(one.outcome.phase(), "configured");
    assert_eq!(two.outcome, Outcome::Validated(Verdict::Passed));
    [one.seq, two.seq]
}

#[tokio::test]
async fn second_agent_of_a_node_makes_no_runs() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = fixture.release("v1", "echo x >> $MUSTER_ROOT/ran; exit 0", "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let runs = || fs::read_to_string(fixture.path().join("root/ran")).unwrap_or_default().lines().count();
    let agent = fixture.start();
    let holder = server.opened().await.holder;
    assert!(holder.is_some());
    both_reports(&mut server).await;
    server.activity(|now| *now == Activity::Idle).await;
    agent.killed().await;

    // It has a desired state of its own, as a copy of the state directory has.
    server.refuse_streams(Some(ProblemCode::DuplicateAgent));
    let _agent = fixture.start();
    for _ in 0..2 {
        assert_eq!(server.opened().await.holder, holder, "a restarted agent is the same one");
    }
    assert_eq!(runs(), 1, "later than an agent without a server would start its run");
    server.refuse_streams(None);
    both_reports(&mut server).await;
    assert_eq!(runs(), 2);
}

#[tokio::test]
async fn reconnection_is_no_cause_for_a_run() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = validated(&mut server, &fixture).await;
    let _agent = fixture.start();
    both_reports(&mut server).await;
    server.activity(|now| *now == Activity::Idle).await;

    server.cut_stream();
    let open = server.opened().await;
    assert_eq!((open.incarnation, open.generation, open.has_snapshot), (Some(1), Some(desired.generation), true));
    assert_eq!(open.lookups["active_roles::db"], with_dbs(1, &[]).tag("active_roles::db"));
    assert_eq!(open.activity, Activity::Idle);

    // The server sends everything again, and an outdated state. Only the new state causes a run.
    let old = DesiredState { generation: Generation { epoch: 0, number: 9 }, ..desired.clone() };
    server.send(SyncEvent::Desired(old)).await;
    server.send(SyncEvent::Desired(desired)).await;
    server.send(news(with_dbs(1, &[]))).await;
    server.send(news(with_dbs(2, &["db1"]))).await;
    let second = server.report().await;
    assert!(matches!(&second.causes[..], [Cause::LookedUp { changes }] if changes[0].key == "active_roles::db"));
    assert_eq!(second.seq, 3);
}

#[tokio::test]
async fn requested_run_is_made_once() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    validated(&mut server, &fixture).await;
    let _agent = fixture.start();
    both_reports(&mut server).await;
    for id in ["a", "a"] {
        server.send(SyncEvent::Run(RequestedRun { id: id.into(), by: "ada".into(), ..RequestedRun::default() })).await;
    }
    let asked = server.report().await;
    assert_eq!(asked.causes, [Cause::operator("a", "ada")]);
    server.report().await;
    server.send(SyncEvent::Run(RequestedRun { id: "b".into(), by: "ada".into(), ..RequestedRun::default() })).await;
    assert_eq!(server.report().await.seq, 5);
}

#[tokio::test]
async fn reports_arrive_once_and_in_order_after_an_outage() {
    let server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let wait = "touch $MUSTER_ROOT/begun; while ! test -e $MUSTER_ROOT/go; do sleep 0.01; done; exit 0";
    let desired = fixture.release("v1", wait, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    until("the run has begun", || fixture.path().join("root/begun").exists()).await;
    let address = server.stop();
    fs::write(fixture.path().join("root/go"), "").unwrap();
    until("both reports are kept", || waiting_reports(&fixture) == 2).await;

    let mut server = FakeServer::start_at(address).await;
    assert_eq!(both_reports(&mut server).await, [1, 2]);
    server.send(SyncEvent::Run(RequestedRun { id: "a".into(), by: "ada".into(), ..RequestedRun::default() })).await;
    assert_eq!(both_reports(&mut server).await, [3, 4]);
}

#[tokio::test]
async fn unanswered_report_is_sent_again_with_its_number() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    validated(&mut server, &fixture).await;
    server.answer([
        ScriptedAnswer::AcceptAndCut,
        ScriptedAnswer::Refuse(ProblemCode::StoreUnavailable),
        ScriptedAnswer::Refuse(ProblemCode::StoreFull),
    ]);
    let _agent = fixture.start();
    let mut seqs = Vec::new();
    while seqs.last() != Some(&2) {
        seqs.push(server.report().await.seq);
    }
    assert_eq!(seqs, [1, 1, 1, 1, 2]);
}

#[tokio::test]
async fn refused_report_does_not_block_later_ones() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    validated(&mut server, &fixture).await;
    server.answer([ScriptedAnswer::Refuse(ProblemCode::InvalidRequest)]);
    let _agent = fixture.start();
    assert_eq!(both_reports(&mut server).await, [1, 2]);
    assert!(fixture.state().join("outbox/refused/00000000000000000001.json").exists());
}

#[tokio::test]
async fn unknown_node_keeps_its_reports_until_it_is_known() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    validated(&mut server, &fixture).await;
    server.refuse_streams(Some(ProblemCode::UnknownNode));
    let _agent = fixture.start();
    server.opened().await;
    server.opened().await;
    server.answer([ScriptedAnswer::Refuse(ProblemCode::UnknownNode)]);
    server.refuse_streams(None);
    let mut seqs = Vec::new();
    while seqs.last() != Some(&2) {
        seqs.push(server.report().await.seq);
    }
    assert_eq!(seqs, [1, 1, 2]);
}

/// A node that is restored from a backup reuses the sequence numbers of its reports.
#[tokio::test]
async fn restored_node_gets_a_new_incarnation() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    validated(&mut server, &fixture).await;
    let agent = fixture.start();
    both_reports(&mut server).await;
    server.activity(|now| *now == Activity::Idle).await;
    agent.killed().await;
    server.set_accepted_up_to(100);
    let old = server.observed();
    assert_eq!(old.incarnation, 1);
    server.queued_requests();

    let _agent = fixture.start();
    let mut received: Vec<String> = Vec::new();
    while received.last().is_none_or(|last| last != "report 2 4") {
        match server.next_request().await {
            AgentRequest::Open(open) => received.push(format!("opened {:?}", open.incarnation)),
            AgentRequest::Report(report) => received.push(format!("report {} {}", report.incarnation, report.seq)),
            AgentRequest::Activity(_) => {}
        }
    }
    let expected = ["opened Some(1)", "report 1 3", "opened None", "report 2 3", "report 2 4"];
    assert_eq!(received, expected, "the report of the old number is kept, and sent again under the new incarnation");
    until("the server has accepted the report", || server.observed().seq == 4).await;
    let now = server.observed();
    assert_eq!(now.incarnation, 2);
    assert_ne!(now.last, old.last, "the server shows the state of now");
    until("all reports are sent", || waiting_reports(&fixture) == 0).await;
}

#[tokio::test]
async fn outdated_report_is_dropped_after_a_new_incarnation() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    validated(&mut server, &fixture).await;
    server.answer([ScriptedAnswer::Outdated, ScriptedAnswer::Outdated]);
    let _agent = fixture.start();
    let mut sent = Vec::new();
    while sent.last() != Some(&(2, 2)) {
        let report = server.report().await;
        sent.push((report.incarnation, report.seq));
    }
    assert_eq!(sent, [(1, 1), (2, 1), (2, 2)]);
    until("all reports are sent", || waiting_reports(&fixture) == 0).await;
}

#[tokio::test]
async fn idle_is_sent_after_the_report_of_a_run() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    validated(&mut server, &fixture).await;
    let _agent = fixture.start();
    let mut received = Vec::new();
    loop {
        let word = match server.next_request().await {
            AgentRequest::Report(report) => report.outcome.phase(),
            AgentRequest::Activity(Activity::Idle) => "idle",
            AgentRequest::Open(_) | AgentRequest::Activity(_) => continue,
        };
        received.push(word);
        if word == "idle" {
            break;
        }
    }
    assert_eq!(received, ["configured", "validated", "idle"]);
}

/// Asserts that the next request of the agent is such an activity, not a new stream or a report.
async fn expect_activity(server: &mut FakeServer, wanted: impl Fn(&Activity) -> bool) {
    match server.next_request().await {
        AgentRequest::Activity(activity) => assert!(wanted(&activity), "{activity:?}"),
        other @ (AgentRequest::Open(_) | AgentRequest::Report(_)) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn lost_activity_is_sent_again() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let script = "while ! test -e $MUSTER_ROOT/go; do sleep 0.01; done\n\
                  echo '{\"kind\":\"role\",\"role\":\"db\",\"want\":1,\"have\":0}' >> $MUSTER_PENDING_FILE; exit 75";
    let desired = fixture.release("v1", script, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    server.activity(|now| matches!(now, Activity::Applying { .. })).await;
    server.lose_activities(2);
    until("the run has begun", || fixture.path().join("root").exists()).await;
    fs::write(fixture.path().join("root/go"), "").unwrap();
    assert_eq!(server.report().await.outcome, Outcome::Configured(RunResult::Pending));
    expect_activity(&mut server, |now| *now == Activity::Idle).await;
}

#[tokio::test]
async fn ping_is_answered_during_a_run() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = fixture.release("v1", "while ! test -e $MUSTER_ROOT/go; do sleep 0.01; done; exit 3", "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    server.answer([ScriptedAnswer::Never]);
    let _agent = fixture.start();
    let is_applying = |now: &Activity| matches!(now, Activity::Applying { .. });
    server.activity(is_applying).await;
    for _ in 0..2 {
        server.send(SyncEvent::Ping).await;
        expect_activity(&mut server, is_applying).await;
    }
    until("the run has begun", || fixture.path().join("root").exists()).await;
    fs::write(fixture.path().join("root/go"), "").unwrap();
    server.report().await;
    // The report is not accepted. Until it is, the agent sends the previous activity.
    server.send(SyncEvent::Ping).await;
    expect_activity(&mut server, is_applying).await;
}

#[tokio::test]
async fn ping_is_answered_by_an_idle_agent() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    validated(&mut server, &fixture).await;
    let _agent = fixture.start();
    both_reports(&mut server).await;
    server.activity(|now| *now == Activity::Idle).await;
    for _ in 0..2 {
        server.send(SyncEvent::Ping).await;
        expect_activity(&mut server, |now| *now == Activity::Idle).await;
    }
}

#[tokio::test]
async fn corrupt_ledger_is_moved_and_rebuilt_from_the_server() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    validated(&mut server, &fixture).await;
    let agent = fixture.start();
    both_reports(&mut server).await;
    server.activity(|now| *now == Activity::Idle).await;
    agent.killed().await;
    fs::write(fixture.state().join("ledger.json"), "{\"half").unwrap();
    fs::write(fixture.state().join("snapshot.json"), "").unwrap();

    let _agent = fixture.start();
    let open = server.opened().await;
    assert_eq!((open.incarnation, open.generation, open.has_snapshot), (None, None, false));
    assert_eq!(server.report().await.outcome, Outcome::Configured(RunResult::Unchanged));
    assert!(fixture.state().join("ledger.json.broken").exists());
}

struct TwoServers {
    fixture: AgentFixture,
    /// Server that the agent connects to first.
    first: FakeServer,
    second: FakeServer,
    agent: AgentProcess,
}

/// An agent with two servers. The first reports get these answers from either server.
async fn start_two_servers(answers: &[ScriptedAnswer]) -> TwoServers {
    let mut one = FakeServer::start().await;
    let mut other = one.start_beside().await;
    let fixture = AgentFixture::with_servers(&[one.address, other.address]);
    let desired = fixture.release("v1", FINE, "");
    for server in [&one, &other] {
        server.set_first_events(first_events(&desired, with_dbs(1, &[])));
        server.answer(answers.iter().copied());
    }
    let agent = fixture.start();
    // The choice of the server depends on the ports.
    let is_one = tokio::select! {
        open = one.opened() => { assert!(!open.away); true }
        open = other.opened() => { assert!(!open.away); false }
    };
    let (first, second) = if is_one { (one, other) } else { (other, one) };
    TwoServers { fixture, first, second, agent }
}

fn runs(fixture: &AgentFixture) -> usize {
    fs::read_dir(fixture.state().join("runs")).unwrap().count()
}

#[tokio::test]
async fn reports_fail_over_to_another_server_without_a_run() {
    let refused = [ScriptedAnswer::Refuse(ProblemCode::StoreUnavailable); 100];
    let TwoServers { fixture, first, mut second, agent: _agent } = start_two_servers(&refused).await;
    until("both reports are kept", || waiting_reports(&fixture) == 2).await;
    let address = first.stop();

    let open = second.opened().await;
    assert_eq!((open.incarnation, open.away, open.activity), (Some(1), true, Activity::Idle));
    second.accept_all();
    while second.report().await.seq != 2 {}
    until("all reports are sent", || waiting_reports(&fixture) == 0).await;
    assert_eq!(runs(&fixture), 1);
    assert_eq!(second.observed().seq, 2);

    // The first server is back, and the second stops: the agent returns to the first, and starts no run.
    let mut first = second.start_beside_at(address).await;
    second.stop();
    let open = first.opened().await;
    assert_eq!((open.incarnation, open.away), (Some(1), false));
    first.send(SyncEvent::Run(RequestedRun { id: "a".into(), by: "ada".into(), ..RequestedRun::default() })).await;
    assert_eq!(both_reports(&mut first).await, [3, 4]);
    assert_eq!(runs(&fixture), 2);
}

#[tokio::test]
async fn overloaded_server_moves_an_agent_to_another() {
    let TwoServers { fixture, mut first, mut second, agent: _agent } = start_two_servers(&[]).await;
    both_reports(&mut first).await;
    first.activity(|now| *now == Activity::Idle).await;
    first.send(SyncEvent::Move).await;

    let open = second.opened().await;
    assert_eq!((open.incarnation, open.away, open.activity), (Some(1), true, Activity::Idle));
    // The agent does not move back at once: the next event is received on the same stream.
    second.send(SyncEvent::Move).await;
    second.send(SyncEvent::Run(RequestedRun { id: "a".into(), by: "ada".into(), ..RequestedRun::default() })).await;
    assert_eq!(both_reports(&mut second).await, [3, 4]);
    assert_eq!(runs(&fixture), 2);
}

#[tokio::test]
async fn agent_with_one_server_ignores_a_move() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    server.set_first_events(first_events(&fixture.release("v1", FINE, ""), with_dbs(1, &[])));
    let _agent = fixture.start();
    both_reports(&mut server).await;
    server.activity(|now| *now == Activity::Idle).await;
    server.queued_requests();
    server.send(SyncEvent::Move).await;
    server.send(SyncEvent::Run(RequestedRun { id: "a".into(), by: "ada".into(), ..RequestedRun::default() })).await;
    assert_eq!(both_reports(&mut server).await, [3, 4]);
}
