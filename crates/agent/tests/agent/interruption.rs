//! Agents that are ended during a run or have a full disk, and their recovery. On a full disk an agent does nothing that it
//! cannot record, and loses nothing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use muster_core::names::RunId;
use muster_core::node::status::Activity;
use muster_core::report::reason::RunReason;
use muster_core::report::{Cause, Outcome, Report, RunResult, Verdict};
use muster_testkit::wait::until;
use muster_testkit::{SmallDisk, passed_in_a_namespace};
use muster_wire::sync::SyncEvent;
use rustix::process::Signal;

use crate::fake_server::{AgentRequest, FakeServer};
use crate::fixture::{AgentFixture, first_events, with_dbs};

/// The first run hangs, with a grandchild that leaves its session and ignores SIGTERM. Later runs succeed.
const HANGS_ONCE: &str = "test -e $MUSTER_ROOT/hung && exit 0\n\
    setsid sh -c 'trap \"\" TERM; touch $MUSTER_ROOT/hung; while :; do sleep 1; done' &\n\
    sleep 1000";

fn processes_of(run: &RunId) -> Vec<u32> {
    muster_marked::find("MUSTER_RUN_ID", run.as_str()).unwrap().iter().map(muster_marked::Process::pid).collect()
}

/// Waits until the agent applies, and until its script has created the file `hung`.
async fn run_that_hangs(server: &mut FakeServer, fixture: &AgentFixture) -> RunId {
    let Activity::Applying { run, .. } = server.activity(|now| matches!(now, Activity::Applying { .. })).await else {
        unreachable!()
    };
    let hung = fixture.path().join("root/hung");
    until("the run has begun", || hung.exists()).await;
    run
}

async fn reported_as_interrupted(server: &mut FakeServer, run: &RunId) -> Report {
    let interrupted = server.report().await;
    assert_eq!(interrupted.outcome, Outcome::Configured(RunResult::Failed));
    assert_eq!(interrupted.reason, Some(RunReason::Interrupted { run: run.clone() }));
    assert_eq!(interrupted.run, *run);
    assert_eq!((interrupted.seq, interrupted.attempt), (2, 1));
    assert_eq!(processes_of(run), [0; 0], "no process of an interrupted run is left when it is reported");
    let again = server.report().await;
    assert_eq!(again.outcome, Outcome::Configured(RunResult::Unchanged));
    assert_eq!(again.causes, [Cause::AgentStarted, Cause::Interrupted { run: run.clone() }]);
    assert_eq!(again.seq, 3);
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
    interrupted
}

#[tokio::test]
async fn killed_agent_reports_its_run_as_interrupted_and_repeats_it() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = fixture.release("v1", HANGS_ONCE, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    let run = run_that_hangs(&mut server, &fixture).await;
    agent.killed().await;
    assert!(processes_of(&run).len() >= 2, "the run outlives its agent");

    let _agent = fixture.start();
    reported_as_interrupted(&mut server, &run).await;
}

#[tokio::test]
async fn signalled_agent_ends_its_run_first() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = fixture.release("v1", HANGS_ONCE, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    let run = run_that_hangs(&mut server, &fixture).await;
    agent.signal(Signal::TERM);
    assert_eq!(agent.ended().await, Some(0));
    assert_eq!(processes_of(&run), [0; 0]);

    #[expect(clippy::disallowed_methods, reason = "the test compares with what the agent read from the same clock")]
    let restarted = jiff::Timestamp::now();
    let _agent = fixture.start();
    let interrupted = reported_as_interrupted(&mut server, &run).await;
    assert!(interrupted.ended < restarted, "it has the time at which the run was ended, and not of the restart");
}

/// SIGTERM is sent by cron jobs with a timeout, SIGINT by an operator.
#[tokio::test]
async fn signal_ends_a_cron_run_with_all_its_processes() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = FakeServer::start().await;
        let fixture = AgentFixture::new(server.address);
        let desired = fixture.release("v1", HANGS_ONCE, "");
        server.set_first_events(first_events(&desired, with_dbs(1, &[])));
        let once = fixture.start_once();
        let run = run_that_hangs(&mut server, &fixture).await;
        once.signal(signal);
        assert_eq!(once.ended().await, Some(1));
        assert_eq!(processes_of(&run), [0; 0], "{signal:?}");
        assert_eq!(fixture.start_once().ended().await, Some(0), "it is due still, and is made");
        reported_as_interrupted(&mut server, &run).await;
    }
}

#[tokio::test]
async fn services_survive_an_agent_killed_during_checks() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let script = "test -e $MUSTER_ROOT/service && exit 0\n\
                  setsid sleep 1000 > /dev/null 2>&1 & echo $! > $MUSTER_ROOT/service; exit 2";
    fixture.release("v1", script, "validate: [{name: hangs, exec: check}]\n");
    fixture.executable("v1", "check", "test -e $MUSTER_ROOT/hung && exit 0; touch $MUSTER_ROOT/hung; sleep 1000");
    server.set_first_events(first_events(&fixture.desired("v1", 1), with_dbs(1, &[])));
    let agent = fixture.start();
    let Activity::Validating { run, .. } = server.activity(|now| matches!(now, Activity::Validating { .. })).await
    else {
        unreachable!()
    };
    agent.killed().await;

    let _agent = fixture.start();
    let mut report = server.report().await;
    // Received twice if the agent was killed before it read the server's answer.
    while report.seq == 1 {
        assert_eq!(report.outcome, Outcome::Configured(RunResult::Changed));
        report = server.report().await;
    }
    assert_eq!(report.reason, Some(RunReason::Interrupted { run: run.clone() }));
    let service: u32 = fs::read_to_string(fixture.path().join("root/service")).unwrap().trim().parse().unwrap();
    assert_eq!(processes_of(&run), [service], "the service stays, the check goes");
    assert_eq!(server.report().await.outcome, Outcome::Configured(RunResult::Unchanged));
    muster_marked::terminate_all("MUSTER_RUN_ID", run.as_str(), Duration::from_secs(5)).await.unwrap();
}

/// The service keeps the output of its run open, and writes to it continuously.
#[tokio::test]
async fn service_that_writes_to_its_run_output_survives_the_agent() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let script = "test -e $MUSTER_ROOT/alive && exit 0\n\
                  setsid sh -c 'while :; do echo tick || exit 1; echo >> $MUSTER_ROOT/alive; sleep 0.01; done' &\n\
                  exit 2";
    server.set_first_events(first_events(&fixture.release("v1", script, ""), with_dbs(1, &[])));
    let agent = fixture.start();
    let run = server.report().await.run;
    let alive = fixture.path().join("root/alive");
    let ticks = || fs::metadata(&alive).map(|file| file.len()).unwrap_or_default();
    let ticks_on = async || {
        let target = ticks() + 20;
        until("the service keeps running", || ticks() >= target).await;
    };
    ticks_on().await;
    agent.killed().await;
    ticks_on().await;
    let output = fs::read_to_string(fixture.state().join("runs").join(run.as_str()).join("output.log")).unwrap();
    assert!(output.ends_with("tick\n"));
    let _agent = fixture.start();
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
    assert_eq!(server.report().await.outcome, Outcome::Configured(RunResult::Unchanged));
    ticks_on().await;
    muster_marked::terminate_all("MUSTER_RUN_ID", run.as_str(), Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn orphans_that_end_are_reaped() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let script = "for n in 1 2 3; do setsid sh -c 'sleep 0.1' & done; echo $! > $MUSTER_ROOT/pid";
    let desired = fixture.release("v1", script, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    server.report().await;
    let parent = agent.child.id().unwrap();
    let children = || {
        let stats =
            fs::read_dir("/proc").unwrap().flatten().filter_map(|p| fs::read_to_string(p.path().join("stat")).ok());
        let ppid = |stat: &str| stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok();
        stats.filter(|stat| ppid(stat) == Some(parent)).count()
    };
    until("ended orphans are reaped", || children() == 0).await;
}

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
    let fixture = AgentFixture::new(server.address).with_state(disk.path().join("state"));
    let desired = fixture.release("v1", "echo x >> $MUSTER_ROOT/runs; exit 0", "");
    fixture.release("v2", "echo x >> $MUSTER_ROOT/runs; exit 0", "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    server.report().await;
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
    // No work is left whose end would free space.
    server.activity(|now| *now == Activity::Idle).await;

    disk.fill();
    server.send(SyncEvent::Desired(fixture.desired("v2", 2))).await;
    let blocked = server.activity(|now| matches!(now, Activity::Blocked { .. })).await;
    let Activity::Blocked { problem } = blocked else { unreachable!() };
    assert!(problem.contains("ledger.json") && problem.contains("No space left"), "{problem}");
    server.send(SyncEvent::Ping).await;
    server.activity(|now| matches!(now, Activity::Blocked { .. })).await;
    assert_eq!(runs(&fixture.path().join("root")), 1, "nothing runs that was not written down");
    let ledger = fs::read_to_string(disk.path().join("state/ledger.json")).unwrap();
    assert!(ledger.contains("\"version\":\"v1\""), "the ledger of before is intact");

    disk.make_space();
    let configured = server.report().await;
    assert_eq!((configured.version.as_str(), configured.seq), ("v2", 3));
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
}

#[tokio::test]
async fn disk_filled_during_a_run_loses_no_report() {
    if passed_in_a_namespace() {
        return;
    }
    let disk = SmallDisk::mount("1m");
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address).with_state(disk.path().join("state"));
    let script = "while ! test -e $MUSTER_ROOT/go; do sleep 0.01; done; exit 2";
    let desired = fixture.release("v1", script, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    server.activity(|now| matches!(now, Activity::Applying { .. })).await;
    let root = fixture.path().join("root");
    until("the run has begun", || root.exists()).await;

    disk.fill();
    fs::write(root.join("go"), "").unwrap();
    server.activity(|now| matches!(now, Activity::Blocked { .. })).await;
    assert!(!server.queued_requests().iter().any(|request| matches!(request, AgentRequest::Report(_))));
    disk.make_space();
    // Two cases are possible. The applier began before the disk was full and has changed the node. Or it could not
    // start, which is reported as a failure; the next run succeeds.
    loop {
        if server.report().await.outcome == Outcome::Validated(Verdict::Passed) {
            break;
        }
    }
}
