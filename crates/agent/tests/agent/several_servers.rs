//! Replicas of a server: the agent connects to one of them, and fails over to another.

use std::fs;

use muster_core::node::status::Activity;
use muster_testkit::wait::until;
use muster_wire::problem::ProblemCode;
use muster_wire::sync::SyncEvent;

use crate::fake_server::{Answer, FakeServer};
use crate::fixture::{Agent, Fixture, greeting, with_dbs};
use crate::server_faults::{FINE, both_reports, waiting_reports};

struct Story {
    fixture: Fixture,
    /// Server that the agent connects to first.
    first: FakeServer,
    second: FakeServer,
    agent: Agent,
}

/// An agent with two servers. The first reports get these answers from either server.
async fn begin(answers: &[Answer]) -> Story {
    let mut one = FakeServer::start().await;
    let mut other = one.start_beside().await;
    let fixture = Fixture::with_servers(&[one.address, other.address]);
    let desired = fixture.release("v1", FINE, "");
    for server in [&one, &other] {
        server.greet_with(greeting(&desired, with_dbs(1, &[])));
        server.answer(answers.iter().copied());
    }
    let agent = fixture.start();
    // The choice of the server depends on the ports.
    let is_one = tokio::select! {
        open = one.opened() => { assert!(!open.away); true }
        open = other.opened() => { assert!(!open.away); false }
    };
    let (first, second) = if is_one { (one, other) } else { (other, one) };
    Story { fixture, first, second, agent }
}

fn runs(fixture: &Fixture) -> usize {
    fs::read_dir(fixture.state().join("runs")).unwrap().count()
}

#[tokio::test]
async fn reports_fail_over_to_another_server_without_a_run() {
    let refused = [Answer::Refuse(ProblemCode::StoreUnavailable); 100];
    let Story { fixture, first, mut second, agent: _agent } = begin(&refused).await;
    until("both reports are kept", || waiting_reports(&fixture) == 2).await;
    let address = first.stop();

    let open = second.opened().await;
    assert_eq!((open.incarnation, open.away, open.activity), (Some(1), true, Activity::Idle));
    second.take_all();
    while second.report().await.seq != 2 {}
    until("all reports are sent", || waiting_reports(&fixture) == 0).await;
    assert_eq!(runs(&fixture), 1);
    assert_eq!(second.observed().seq, 2);

    // The first server is back, and the second stops: the agent returns to the first, and starts no run.
    let mut first = second.start_beside_at(address).await;
    second.stop();
    let open = first.opened().await;
    assert_eq!((open.incarnation, open.away), (Some(1), false));
    first.say(SyncEvent::Run { id: "a".into(), noop: false, by: "ada".into() }).await;
    assert_eq!(both_reports(&mut first).await, [3, 4]);
    assert_eq!(runs(&fixture), 2);
}

#[tokio::test]
async fn overloaded_server_moves_an_agent_to_another() {
    let Story { fixture, mut first, mut second, agent: _agent } = begin(&[]).await;
    both_reports(&mut first).await;
    first.activity(|now| *now == Activity::Idle).await;
    first.say(SyncEvent::Move).await;

    let open = second.opened().await;
    assert_eq!((open.incarnation, open.away, open.activity), (Some(1), true, Activity::Idle));
    // The agent does not move back at once: the next event is received on the same stream.
    second.say(SyncEvent::Move).await;
    second.say(SyncEvent::Run { id: "a".into(), noop: false, by: "ada".into() }).await;
    assert_eq!(both_reports(&mut second).await, [3, 4]);
    assert_eq!(runs(&fixture), 2);
}

#[tokio::test]
async fn an_agent_with_one_server_stays_where_it_is() {
    let mut server = FakeServer::start().await;
    let fixture = Fixture::new(server.address);
    server.greet_with(greeting(&fixture.release("v1", FINE, ""), with_dbs(1, &[])));
    let _agent = fixture.start();
    both_reports(&mut server).await;
    server.activity(|now| *now == Activity::Idle).await;
    server.heard_already();
    server.say(SyncEvent::Move).await;
    server.say(SyncEvent::Run { id: "a".into(), noop: false, by: "ada".into() }).await;
    assert_eq!(both_reports(&mut server).await, [3, 4]);
}
