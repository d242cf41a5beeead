//! Automatic rollback of versions that no server confirmed in time.

use std::fs;

use jiff::SignedDuration;

use muster_core::report::{Cause, Outcome, RunResult, Verdict};
use muster_testkit::wait::until;
use muster_wire::sync::{DesiredState, SyncEvent};

use crate::fake_server::FakeServer;
use crate::fixture::{Agent, Fixture, greeting, with_dbs};

const WITHIN: SignedDuration = SignedDuration::from_millis(1500);

/// Script that appends the version to a file on the node.
fn says(version: &str) -> String {
    format!("echo {version} >> $MUSTER_ROOT/versions; exit 2")
}

/// The same script, which first waits for the file `go`.
fn says_when_let(version: &str) -> String {
    let wait = "touch $MUSTER_ROOT/applying; while ! test -e $MUSTER_ROOT/go; do sleep 0.02; done";
    format!("test -e $MUSTER_ROOT/go || {{ {wait}; }}\n{}", says(version))
}

/// Versions that were applied on the node, in order.
fn versions_on(fixture: &Fixture) -> Vec<String> {
    let said = fs::read_to_string(fixture.path().join("root/versions")).unwrap_or_default();
    said.lines().map(str::to_owned).collect()
}

/// A node that runs v1 and is sent v2. The server is stopped before the applier of v2 ends.
async fn cut_off(confirm_within: Option<SignedDuration>) -> (Fixture, Agent, std::net::SocketAddr, DesiredState) {
    let mut server = FakeServer::start().await;
    let fixture = Fixture::new(server.address);
    let first = fixture.release("v1", &says("v1"), "");
    fixture.release("v2", &says_when_let("v2"), "");
    let second = DesiredState { confirm_within, ..fixture.desired("v2", 2) };
    server.greet_with(greeting(&first, with_dbs(1, &[])));
    let agent = fixture.start();
    for outcome in [Outcome::Configured(RunResult::Changed), Outcome::Validated(Verdict::Passed)] {
        assert_eq!(server.report().await.outcome, outcome);
    }
    server.say(SyncEvent::Desired(second.clone())).await;
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
    server.greet_with(greeting(&second, with_dbs(1, &[])));
    let mut told = Vec::new();
    for _ in 0..4 {
        let report = server.report().await;
        assert_eq!(report.generation.number, 2);
        told.push((report.version.to_string(), report.outcome.phase()));
        let went_back = Cause::AutoRollback { version: second.version.clone(), within: WITHIN };
        assert_eq!(report.causes.contains(&went_back), report.version.as_str() == "v1", "{:?}", report.causes);
    }
    let phases = [("v2", "configured"), ("v2", "validated"), ("v1", "configured"), ("v1", "validated")];
    assert_eq!(told, phases.map(|(version, phase)| (version.to_owned(), phase)));
    // v2 is not retried, not even for a run that an operator requests.
    server.say(SyncEvent::Run { id: "a".into(), noop: false, by: "ada".into() }).await;
    let report = server.report().await;
    assert_eq!((report.version.as_str(), report.generation.number), ("v1", 2), "{:?}", report.causes);
    assert_eq!(report.causes, [Cause::Operator { id: "a".into(), by: "ada".into() }]);

    let mut other = FakeServer::start_at(other_address).await;
    other.greet_with(greeting(&unarmed, with_dbs(1, &[])));
    other.say(SyncEvent::Run { id: "a".into(), noop: false, by: "ada".into() }).await;
    for _ in 0..4 {
        assert_eq!(other.report().await.version.as_str(), "v2");
    }
    assert_eq!(versions_on(&stays), ["v1", "v2", "v2"], "by the person's word alone");
}
