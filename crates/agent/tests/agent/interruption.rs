//! Agents that are stopped during a run, runs that are lost, and agents with a full disk. On a full disk an agent does nothing that it
//! cannot record, and loses nothing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use muster_core::names::RunId;
use muster_core::node::status::Activity;
use muster_core::report::reason::RunReason;
use muster_core::report::{Cause, Outcome, RunResult, Verdict};
use muster_testkit::wait::until;
use muster_testkit::{SmallDisk, passed_in_a_namespace};
use muster_wire::sync::SyncEvent;
use rustix::process::Signal;

use crate::fake_server::{AgentRequest, FakeServer};
use crate::fixture::{AgentFixture, first_events, with_dbs};

/// A run that waits for the file `go`, with a grandchild that leaves its session.
const WAITS: &str = "echo run >> $MUSTER_ROOT/runs; setsid sleep 0.01 &\n\
    echo begun > $MUSTER_ROOT/begun; until test -e $MUSTER_ROOT/go; do sleep 0.01; done; echo said; exit 2";

/// The first run hangs, with a grandchild that leaves its session and ignores SIGTERM. Later runs succeed.
const HANGS_ONCE: &str = "test -e $MUSTER_ROOT/begun && exit 0\n\
    setsid sh -c 'trap \"\" TERM; touch $MUSTER_ROOT/begun; while :; do sleep 1; done' &\n\
    sleep 1000";

fn processes_of(run: &RunId) -> Vec<u32> {
    muster_marked::find("MUSTER_RUN_ID", run.as_str()).unwrap().iter().map(muster_marked::Process::pid).collect()
}

/// Waits until the agent applies, and until its script has created the file `begun`.
async fn run_that_waits(server: &mut FakeServer, fixture: &AgentFixture) -> RunId {
    let Activity::Applying { run, .. } = server.activity(|now| matches!(now, Activity::Applying { .. })).await else {
        unreachable!()
    };
    let begun = fixture.path().join("root/begun");
    until("the run has begun", || begun.exists()).await;
    run
}

fn supervisor_of(fixture: &AgentFixture, run: &RunId) -> muster_marked::Process {
    let lock = fixture.state().join("runs").join(run.as_str()).join("applier/lock");
    muster_marked::Process::open(fs::read_to_string(lock).unwrap().parse().unwrap()).unwrap().unwrap()
}

/// Lets the run end, and asserts that it is reported as if nothing had happened, once.
async fn reported_once(server: &mut FakeServer, fixture: &AgentFixture, run: &RunId) {
    fs::write(fixture.path().join("root/go"), "").unwrap();
    reported(server, run).await;
    server.activity(|now| *now == Activity::Idle).await;
    not_repeated(server, fixture);
}

/// Asserts that the agent reports a run that has ended, as if nothing had happened.
async fn reported(server: &mut FakeServer, run: &RunId) {
    let configured = server.report().await;
    assert_eq!((&configured.run, configured.seq), (run, 1));
    assert_eq!(configured.outcome, Outcome::Configured(RunResult::Changed));
    assert_eq!(configured.log, "said\n");
    let validated = server.report().await;
    assert_eq!((&validated.run, validated.seq), (run, 2));
    assert_eq!(validated.outcome, Outcome::Validated(Verdict::Passed));
}

fn not_repeated(server: &mut FakeServer, fixture: &AgentFixture) {
    assert!(!server.queued_requests().iter().any(|request| matches!(request, AgentRequest::Report(_))), "once");
    assert_eq!(runs(&fixture.path().join("root")), 1, "it was made once");
}

#[tokio::test]
async fn stopped_agent_leaves_its_run_and_the_next_one_reports_it() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let mut server = FakeServer::start().await;
        let fixture = AgentFixture::new(server.address);
        let desired = fixture.release("v1", WAITS, "");
        server.set_first_events(first_events(&desired, with_dbs(1, &[])));
        let agent = fixture.start();
        let run = run_that_waits(&mut server, &fixture).await;
        agent.signal(signal);
        let code = agent.ended().await;
        assert_eq!(code, if signal == Signal::KILL { None } else { Some(0) });
        assert!(processes_of(&run).len() >= 2, "{signal:?}: the run and its supervisor outlive the agent");

        // Twice: an agent that adopts a run may be stopped too.
        let agent = fixture.start();
        server.activity(|now| matches!(now, Activity::Applying { .. })).await;
        agent.signal(signal);
        agent.ended().await;
        let _agent = fixture.start();
        server.activity(|now| matches!(now, Activity::Applying { .. })).await;
        reported_once(&mut server, &fixture, &run).await;
    }
}

#[tokio::test]
async fn run_that_ended_without_an_agent_is_reported_by_the_next() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = fixture.release("v1", WAITS, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    let run = run_that_waits(&mut server, &fixture).await;
    agent.killed().await;
    let supervisor = supervisor_of(&fixture, &run);
    fs::write(fixture.path().join("root/go"), "").unwrap();
    supervisor.wait().await.unwrap();
    let _agent = fixture.start();
    reported_once(&mut server, &fixture, &run).await;
}

/// Every shop upgrades its agent with a run of that agent.
#[tokio::test]
async fn run_that_replaces_and_stops_its_own_agent_completes() {
    let mut server = FakeServer::start().await;
    let mut fixture = AgentFixture::new(server.address);
    let binary = fixture.copy_binary();
    let script = format!(
        "cp {0} {0}.new && mv {0}.new {0}; until test -s $MUSTER_ROOT/agent; do sleep 0.01; done\n\
         kill -TERM $(cat $MUSTER_ROOT/agent)\n{WAITS}",
        binary.display()
    );
    let desired = fixture.release("v1", &script, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let root = fixture.path().join("root");
    fs::create_dir_all(&root).unwrap();
    let agent = fixture.start_with_pid_file(&root.join("agent"));
    assert_eq!(agent.ended().await, Some(0));
    let run = run_that_waits(&mut server, &fixture).await;
    let _agent = fixture.start();
    reported_once(&mut server, &fixture, &run).await;
}

#[tokio::test]
async fn lost_run_fails_and_a_full_run_follows() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = fixture.release("v1", HANGS_ONCE, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    let run = run_that_waits(&mut server, &fixture).await;
    agent.killed().await;
    let supervisor = supervisor_of(&fixture, &run);
    supervisor.signal(Signal::KILL).unwrap();
    supervisor.wait().await.unwrap();
    assert!(processes_of(&run).len() >= 2, "the applier is left without a supervisor");

    let _agent = fixture.start();
    let lost = server.report().await;
    assert_eq!(lost.outcome, Outcome::Configured(RunResult::Failed));
    assert_eq!(lost.reason, Some(RunReason::Lost { run: run.clone(), refreshes: Vec::new() }));
    assert_eq!((&lost.run, lost.seq, lost.attempt), (&run, 1, 1));
    assert_eq!(processes_of(&run), [0; 0], "no process of a lost run is left when it is reported");
    let again = server.report().await;
    assert_eq!(again.outcome, Outcome::Configured(RunResult::Unchanged));
    assert_eq!(again.causes, [Cause::AgentStarted, Cause::Interrupted { run: run.clone() }]);
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
}

#[tokio::test]
async fn run_lost_beside_its_agent_is_retried() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = fixture.release("v1", HANGS_ONCE, "");
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let _agent = fixture.start();
    let run = run_that_waits(&mut server, &fixture).await;
    supervisor_of(&fixture, &run).signal(Signal::KILL).unwrap();
    let lost = server.report().await;
    assert_eq!(lost.reason, Some(RunReason::Lost { run: run.clone(), refreshes: Vec::new() }));
    assert_eq!(processes_of(&run), [0; 0]);
    let again = server.report().await;
    assert_eq!(again.causes, [Cause::Retry { attempt: 1 }]);
    assert_eq!(server.report().await.outcome, Outcome::Validated(Verdict::Passed));
}

/// SIGTERM is sent by cron jobs with a timeout, SIGINT by an operator.
#[tokio::test]
async fn signal_leaves_a_cron_run_to_the_next_call() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = FakeServer::start().await;
        let fixture = AgentFixture::new(server.address);
        let desired = fixture.release("v1", WAITS, "");
        server.set_first_events(first_events(&desired, with_dbs(1, &[])));
        let once = fixture.start_once();
        let run = run_that_waits(&mut server, &fixture).await;
        once.signal(signal);
        assert_eq!(once.ended().await, Some(1));
        assert!(!processes_of(&run).is_empty(), "{signal:?}");
        fs::write(fixture.path().join("root/go"), "").unwrap();
        assert_eq!(fixture.start_once().ended().await, Some(0), "it reports the run");
        // It has ended: all that it has sent is here. It may end before it sends its last activity.
        reported(&mut server, &run).await;
        not_repeated(&mut server, &fixture);
    }
}

#[tokio::test]
async fn checks_of_a_killed_agent_are_made_again() {
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
    let hung = fixture.path().join("root/hung");
    until("the check has begun", || hung.exists()).await;
    agent.killed().await;

    let _agent = fixture.start();
    let mut report = server.report().await;
    // Received twice if the agent was killed before it read the server's answer.
    while report.seq == 1 {
        assert_eq!(report.outcome, Outcome::Configured(RunResult::Changed));
        report = server.report().await;
    }
    assert_eq!((&report.run, report.seq, report.outcome), (&run, 2, Outcome::Validated(Verdict::Passed)));
    let service: u32 = fs::read_to_string(fixture.path().join("root/service")).unwrap().trim().parse().unwrap();
    assert_eq!(processes_of(&run), [service], "the service stays, the check goes");
    assert_eq!(server.report().await.causes, [Cause::AgentStarted]);
    muster_marked::terminate_all("MUSTER_RUN_ID", run.as_str(), Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn run_whose_applier_was_not_started_keeps_its_causes() {
    let mut server = FakeServer::start().await;
    let fixture = AgentFixture::new(server.address);
    let desired = fixture.release("v1", "exit 0", "");
    let bundles = fixture.path().join("bundles");
    let hidden = fixture.path().join("hidden");
    fs::rename(&bundles, &hidden).unwrap();
    server.set_first_events(first_events(&desired, with_dbs(1, &[])));
    let agent = fixture.start();
    server.activity(|now| matches!(now, Activity::Applying { .. })).await;
    agent.killed().await;
    fs::rename(&hidden, &bundles).unwrap();
    let _agent = fixture.start();
    let configured = server.report().await;
    assert_eq!(configured.outcome, Outcome::Configured(RunResult::Unchanged));
    assert!(configured.causes.iter().any(|cause| matches!(cause, Cause::Version { .. })), "{:?}", configured.causes);
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

/// The supervisor has reserved the space of the result, and the agent that finds it waits until it can write down the report.
#[tokio::test]
async fn disk_filled_during_a_run_loses_no_report() {
    if passed_in_a_namespace() {
        return;
    }
    for is_killed in [false, true] {
        let disk = SmallDisk::mount("1m");
        let mut server = FakeServer::start().await;
        let fixture = AgentFixture::new(server.address).with_state(disk.path().join("state"));
        let desired = fixture.release("v1", WAITS, "");
        server.set_first_events(first_events(&desired, with_dbs(1, &[])));
        let mut agent = Some(fixture.start());
        let run = run_that_waits(&mut server, &fixture).await;
        let supervisor = supervisor_of(&fixture, &run);
        disk.fill();
        if let Some(agent) = agent.take_if(|_| is_killed) {
            agent.killed().await;
        }
        fs::write(fixture.path().join("root/go"), "").unwrap();
        supervisor.wait().await.unwrap();
        let _agent = agent.unwrap_or_else(|| fixture.start());
        server.activity(|now| matches!(now, Activity::Blocked { .. })).await;
        assert!(!server.queued_requests().iter().any(|request| matches!(request, AgentRequest::Report(_))));
        disk.make_space();
        assert_eq!(server.report().await.outcome, Outcome::Configured(RunResult::Changed), "killed: {is_killed}");
        let validated = server.report().await;
        assert_eq!((&validated.run, validated.outcome), (&run, Outcome::Validated(Verdict::Passed)));
        assert_eq!(runs(&fixture.path().join("root")), 1, "it was made once");
    }
}
