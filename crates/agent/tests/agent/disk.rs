//! Full disk: the agent does nothing that it cannot record, loses nothing, and recovers when there is space.

use std::fs;
use std::path::Path;

use muster_core::node::status::Activity;
use muster_core::report::{Outcome, Verdict};
use muster_testkit::wait::until;
use muster_testkit::{SmallDisk, passed_in_a_namespace};
use muster_wire::sync::SyncEvent;

use crate::fake_server::{FakeServer, Heard};
use crate::fixture::{Fixture, greeting, with_dbs};

fn runs(root: &Path) -> usize {
    fs::read_to_string(root.join("runs")).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn full_disk_blocks_the_agent_until_there_is_space() {
    if passed_in_a_namespace() {
        return;
    }
    let disk = SmallDisk::mount("1m");
    let mut server = FakeServer::start().await;
    let fixture = Fixture::new(server.address).with_state(disk.path().join("state"));
    let desired = fixture.release("v1", "echo x >> $MUSTER_ROOT/runs; exit 0", "");
    fixture.release("v2", "echo x >> $MUSTER_ROOT/runs; exit 0", "");
    server.greet_with(greeting(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    server.report().await;
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
    // No work is left whose end would free space.
    server.activity(|now| *now == Activity::Idle).await;

    disk.fill();
    server.say(SyncEvent::Desired(fixture.desired("v2", 2))).await;
    let blocked = server.activity(|now| matches!(now, Activity::Blocked { .. })).await;
    let Activity::Blocked { problem } = blocked else { unreachable!() };
    assert!(problem.contains("ledger.json") && problem.contains("No space left"), "{problem}");
    server.say(SyncEvent::Ping).await;
    server.activity(|now| matches!(now, Activity::Blocked { .. })).await;
    assert_eq!(runs(&fixture.path().join("root")), 1, "nothing runs that was not written down");
    let ledger = fs::read_to_string(disk.path().join("state/ledger.json")).unwrap();
    assert!(ledger.contains("\"version\":\"v1\""), "what was written before is still whole");

    disk.make_space();
    let configured = server.report().await;
    assert_eq!((configured.version.as_str(), configured.seq), ("v2", 3));
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
}

#[tokio::test]
async fn a_disk_that_fills_up_during_a_run_loses_no_report() {
    if passed_in_a_namespace() {
        return;
    }
    let disk = SmallDisk::mount("1m");
    let mut server = FakeServer::start().await;
    let fixture = Fixture::new(server.address).with_state(disk.path().join("state"));
    let script = "while ! test -e $MUSTER_ROOT/go; do sleep 0.01; done; exit 2";
    let desired = fixture.release("v1", script, "");
    server.greet_with(greeting(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    server.activity(|now| matches!(now, Activity::Applying { .. })).await;
    let root = fixture.path().join("root");
    until("the run has begun", || root.exists()).await;

    disk.fill();
    fs::write(root.join("go"), "").unwrap();
    server.activity(|now| matches!(now, Activity::Blocked { .. })).await;
    assert!(!server.heard_already().iter().any(|heard| matches!(heard, Heard::Report(_))));
    disk.make_space();
    // Two cases are possible. The applier began before the disk was full and has changed the node. Or it could not
    // start, which is reported as a failure; the next run succeeds.
    loop {
        if server.report().await.outcome == Outcome::Validated(Verdict::Passed) {
            break;
        }
    }
}
