//! Reconciliations of the controller, with changes in between.

use jiff::SignedDuration;
use muster_core::rollout::record::{GateVerdict, PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{Gate, GateCheck, GateCheckKind, Strategy};
use muster_core::txn::Revision;

use super::host::{
    FakeHost, begun, begun_with, commit, failed, granted, grants, phase, record, say, strategy, to_commit,
};
use crate::command::RolloutCommand;
use crate::executor::{CommitResult, Executor, IoRequest, IoResult, NextAction, ReconcileResult, WriteKind};
use crate::testing::{FakeFleet, RunEnd};

fn pause() -> RolloutCommand {
    RolloutCommand::Pause { reason: "a look".into() }
}

/// Completes the rollout: every granted node validates.
fn complete(world: &mut FakeFleet, host: &mut FakeHost, executor: &mut Executor) {
    while phase(world) == RolloutPhase::Running {
        host.look_once(world, executor);
        for node in granted(world) {
            world.answers(&node, RunEnd::Validated);
        }
    }
}

#[test]
fn stale_view_grants_nothing() {
    let (mut world, mut host) = begun();
    let mut executor = Executor::default();
    let NextAction::Io(need) = world.with_input(|input| executor.next(input, IoResult::Start)) else {
        panic!("it needs the plan")
    };
    let got = host.bring(&world, need);
    let NextAction::Io(IoRequest::StoreRevision) = world.with_input(|input| executor.next(input, got)) else {
        panic!("it does not ask")
    };
    // The view is behind: the executor waits for it, and meanwhile the first node of the plan is paused.
    let newest = Revision(world.fleet.revision.0 + 1);
    let next = world.with_input(|input| executor.next(input, IoResult::StoreRevision(newest)));
    assert!(matches!(next, NextAction::Io(IoRequest::AwaitView(revision)) if revision == newest), "{next:?}");
    let first = host.blobs["plan-0"].plan().waves[0].nodes[0].node.to_string();
    world.pause(&first);
    let write = to_commit(host.look(&world, &mut executor, IoResult::ViewReached));
    assert_eq!(grants(&write).len(), 1, "the budget is one");
    assert_ne!(grants(&write), [first], "it decided anew");
    // The next steps wait for the commit, and do not read the store's revision again.
    host.asked.clear();
    let wrote = commit(&mut world, &write.txn);
    assert!(matches!(host.finish(&mut world, &mut executor, IoResult::Commit(wrote)), ReconcileResult::WaitUntil(_)));
    assert_eq!(host.asked, ["view", "plan"]);
}

#[test]
fn freshness_of_a_view_expires() {
    let (mut world, mut host) = begun();
    let mut executor = Executor::default();
    let write = to_commit(host.look(&world, &mut executor, IoResult::Start));
    let wrote = commit(&mut world, &write.txn);
    // The view shows the commit after a minute, and the first node has validated by then.
    world.answers(&granted(&world)[0], RunEnd::Validated);
    world.pass(SignedDuration::from_mins(1));
    host.asked.clear();
    let next = to_commit(host.look(&world, &mut executor, IoResult::Commit(wrote)));
    assert_eq!(grants(&next).len(), 1);
    assert_eq!(host.asked, ["view", "plan", "newest", "view", "plan"], "it asks again before it grants again");
}

#[test]
fn pause_needs_no_fresh_view() {
    let (mut world, mut host) = begun();
    let mut executor = Executor::default();
    let plan = host.blobs.remove("plan-0").unwrap();
    assert_eq!(host.look_once(&mut world, &mut executor), ReconcileResult::Idle);
    assert_eq!(host.asked, ["plan", "view"]);
    let RolloutPhase::Paused { why: PauseReason::Blocked { problem } } = phase(&world) else {
        panic!("{:?}", phase(&world))
    };
    assert!(problem.starts_with("plan-0 is missing; restore the blob"), "{problem}");
    // Once the plan is back, a resume is enough.
    host.blobs.insert("plan-0".into(), plan);
    say(&mut world, &RolloutCommand::Resume);
    assert!(matches!(host.look_once(&mut world, &mut executor), ReconcileResult::WaitUntil(_)));
    assert_eq!(granted(&world).len(), 1);
}

#[test]
fn command_during_rollback_planning_wins() {
    for word in [pause(), RolloutCommand::Abort { reason: "enough".into() }] {
        // After each IO request of the rollback: the fresh view, the plans, and the saved plan.
        for after in 1..=6 {
            let (mut world, mut host, mut executor) = failed();
            let mut next = world.with_input(|input| executor.next(input, IoResult::Start));
            for _ in 0..after {
                let NextAction::Io(need) = next else { panic!("{after}: {next:?}") };
                let got = host.bring(&world, need);
                if host.asked.len() == after {
                    say(&mut world, &word);
                }
                next = world.with_input(|input| executor.next(input, got));
            }
            let needs = host.asked.clone();
            let looked = match next {
                NextAction::Done(looked) => looked,
                NextAction::Commit(write) => panic!("{needs:?}: {:?}", write.kind),
                NextAction::Io(need) => {
                    let got = host.bring(&world, need);
                    host.finish(&mut world, &mut executor, got)
                }
            };
            assert_eq!(looked, ReconcileResult::Idle, "{needs:?}");
            assert_eq!(world.fleet.rollouts().len(), 1, "{word:?} after {needs:?}");
            assert_eq!(phase(&world).is_open(), word == pause(), "{needs:?}");
        }
    }
}

#[test]
fn rollback_saves_the_outcome_of_the_failed_rollout() {
    let (mut world, mut host, mut executor) = failed();
    let write = to_commit(host.look(&world, &mut executor, IoResult::Start));
    assert_eq!(host.asked, ["plan", "newest", "view", "plan", "plan", "keep"]);
    assert!(matches!(write.kind, WriteKind::Rollback { .. }), "{:?}", write.kind);
    // The rollback starts. The outcome of the failed rollout is saved before the first grant.
    host.asked.clear();
    let wrote = commit(&mut world, &write.txn);
    let write = to_commit(host.look(&world, &mut executor, IoResult::Commit(wrote)));
    assert_eq!(host.asked, ["view", "plan", "keep outcome"]);
    assert!(matches!(write.kind, WriteKind::Outcome { .. }), "{:?}", write.kind);
    let wrote = commit(&mut world, &write.txn);
    assert_eq!(record(&world, 1).outcome.as_deref(), Some("outcome-1"));
    assert!(matches!(host.finish(&mut world, &mut executor, IoResult::Commit(wrote)), ReconcileResult::WaitUntil(_)));
    assert_eq!(granted(&world).len(), 1);
    assert_eq!(record(&world, 2).by, "muster");
}

#[test]
fn rollback_works_without_the_old_plan() {
    let (mut world, mut host, mut executor) = failed();
    let next = world.with_input(|input| executor.next(input, IoResult::Start));
    let NextAction::Io(need) = next else { panic!("{next:?}") };
    let mut got = host.bring(&world, need);
    // The plan was read for the step, and is gone when the rollback is planned.
    while host.asked.len() < 4 {
        let next = world.with_input(|input| executor.next(input, got));
        let NextAction::Io(need) = next else { panic!("{next:?}") };
        got = host.bring(&world, need);
    }
    host.blobs.clear();
    let write = to_commit(host.look(&world, &mut executor, got));
    assert_eq!(host.asked, ["plan", "newest", "view", "plan", "plan", "way", "keep"]);
    assert!(matches!(write.kind, WriteKind::Rollback { .. }), "{:?}", write.kind);
    assert_eq!(commit(&mut world, &write.txn), CommitResult::Committed(world.fleet.revision));
}

#[test]
fn outcome_is_saved_after_a_crash() {
    // The replica crashes before the outcome is saved, after that, and after its record is written.
    for lives in 0..3 {
        let (mut world, mut host) = begun();
        complete(&mut world, &mut host, &mut Executor::default());
        // The reconciliation that completed it has saved the outcome: remove it again.
        let mut ended = record(&world, 1);
        ended.outcome = None;
        world.put_json(world.keys.rollout(ended.id), &ended);
        host.outcomes = 0;
        let mut first = Executor::default();
        let mut next = world.with_input(|input| first.next(input, IoResult::Start));
        for _ in 0..lives {
            let NextAction::Io(need) = next else { panic!("{next:?}") };
            let got = host.bring(&world, need);
            next = world.with_input(|input| first.next(input, got));
        }
        if let NextAction::Commit(write) = next {
            world.commit(&write.txn).unwrap();
        }
        assert_eq!(host.look_once(&mut world, &mut Executor::default()), ReconcileResult::Idle);
        let kept = format!("outcome-{}", host.outcomes);
        assert_eq!(record(&world, 1).outcome, Some(kept), "{lives}");
        host.asked.clear();
        assert_eq!(host.look_once(&mut world, &mut Executor::default()), ReconcileResult::Idle);
        assert!(host.asked.is_empty(), "it is kept once");
    }
}

#[test]
fn unsaveable_outcome_blocks_nothing() {
    let (mut world, mut host) = begun();
    complete(&mut world, &mut host, &mut Executor::default());
    let mut ended = record(&world, 1);
    ended.outcome = None;
    world.put_json(world.keys.rollout(ended.id), &ended);
    let mut executor = Executor::default();
    host.is_full = true;
    let later = world.now + SignedDuration::from_mins(1);
    assert_eq!(
        host.look_once(&mut world, &mut executor),
        ReconcileResult::WaitUntil(Some(later)),
        "there may be room by then"
    );
    host.is_full = false;
    let write = to_commit(host.look(&world, &mut executor, IoResult::Start));
    assert!(matches!(write.kind, WriteKind::Outcome { .. }));
    let looked = host.finish(&mut world, &mut executor, IoResult::Commit(CommitResult::Invalid("too big".into())));
    assert_eq!(looked, ReconcileResult::Idle, "it is not tried for ever");
    to_commit(host.look(&world, &mut executor, IoResult::Start));
    let looked = host.finish(&mut world, &mut executor, IoResult::Commit(CommitResult::Unknown));
    assert_eq!(looked, ReconcileResult::Failed, "it is tried again");
}

#[test]
fn lost_controller_lock_stops_the_executor() {
    let (mut world, mut host) = begun();
    let mut executor = Executor::default();
    let write = to_commit(host.look(&world, &mut executor, IoResult::Start));
    assert_eq!(grants(&write).len(), 1);
    let looked = host.finish(&mut world, &mut executor, IoResult::Commit(CommitResult::LockLost));
    assert_eq!(looked, ReconcileResult::Idle);
    assert!(granted(&world).is_empty());
}

#[test]
fn grant_with_unknown_outcome_is_made_once() {
    for carried_out in [true, false] {
        let (mut world, mut host) = begun();
        let mut executor = Executor::default();
        let write = to_commit(host.look(&world, &mut executor, IoResult::Start));
        if carried_out {
            world.commit(&write.txn).unwrap();
        }
        let looked = host.finish(&mut world, &mut executor, IoResult::Commit(CommitResult::Unknown));
        assert_eq!(looked, ReconcileResult::Failed);
        // The next reconciliation reads the result. The delayed write is refused.
        assert!(matches!(host.look_once(&mut world, &mut executor), ReconcileResult::WaitUntil(_)));
        assert_eq!(granted(&world), grants(&write));
        assert_eq!(record(&world, 1).steps.grants, 1);
        assert!(world.commit(&write.txn).is_err());
    }
}

#[test]
fn conflicting_decision_is_made_again() {
    let (mut world, mut host) = begun();
    let mut executor = Executor::default();
    let write = to_commit(host.look(&world, &mut executor, IoResult::Start));
    say(&mut world, &pause());
    let wrote = commit(&mut world, &write.txn);
    assert_eq!(wrote, CommitResult::Conflict(world.fleet.revision));
    assert_eq!(host.finish(&mut world, &mut executor, IoResult::Commit(wrote)), ReconcileResult::Idle);
    assert!(granted(&world).is_empty(), "a pause is a pause");
}

#[test]
fn invalid_record_pauses_the_rollout() {
    let (mut world, mut host) = begun();
    let mut executor = Executor::default();
    to_commit(host.look(&world, &mut executor, IoResult::Start));
    let write = to_commit(host.look(&world, &mut executor, IoResult::Commit(CommitResult::Invalid("too big".into()))));
    let WriteKind::Step { change, .. } = &write.kind else { panic!("{:?}", write.kind) };
    assert!(
        matches!(&change.record.phase, RolloutPhase::Paused { why: PauseReason::Blocked { .. } }),
        "{:?}",
        change.record.phase
    );
    // If the pause cannot be written either, it is retried later and not at once.
    let looked = host.finish(&mut world, &mut executor, IoResult::Commit(CommitResult::Invalid("too big".into())));
    assert_eq!(looked, ReconcileResult::Failed);
}

#[test]
fn unexpected_io_result_fails() {
    let (world, _) = begun();
    let mut executor = Executor::default();
    let next = world.with_input(|input| executor.next(input, IoResult::ViewReached));
    assert!(matches!(next, NextAction::Done(ReconcileResult::Failed)), "{next:?}");
}

/// A rollout whose wave waits for its gate.
fn gated() -> (FakeFleet, FakeHost, Executor) {
    let check = GateCheck {
        name: "front door".into(),
        kind: GateCheckKind::Command(vec!["true".into()]),
        timeout: GateCheck::TIMEOUT,
        retries: 0,
        every: GateCheck::EVERY,
    };
    let gate = Gate { validated: true, checks: vec![check] };
    let (mut world, mut host) = begun_with(Strategy { gate, ..strategy() });
    let mut executor = Executor::default();
    while executor.gate_request().is_none() {
        host.look_once(&mut world, &mut executor);
        for node in granted(&world) {
            world.answers(&node, RunEnd::Validated);
        }
    }
    (world, host, executor)
}

#[test]
fn gate_runs_once_and_its_verdict_is_kept() {
    let (mut world, mut host, mut executor) = gated();
    let question = executor.gate_request().unwrap().clone();
    assert_eq!((question.wave_index, question.wave, question.to.as_str()), (0, 1, "v2"));
    host.look_once(&mut world, &mut executor);
    assert_eq!(executor.gate_request(), Some(&question), "it is the same question");
    let verdict = GateVerdict::Passed { at: world.now };
    assert!(executor.record_verdict(question.clone(), verdict.clone()));
    assert!(executor.gate_request().is_none());
    let write = to_commit(host.look(&world, &mut executor, IoResult::Start));
    let WriteKind::Step { change, .. } = &write.kind else { panic!("{:?}", write.kind) };
    assert_eq!(change.record.waves[0].gate, Some(verdict.clone()));
    // The verdict was not written, and the gate does not run again.
    assert_eq!(
        host.finish(&mut world, &mut executor, IoResult::Commit(CommitResult::Unknown)),
        ReconcileResult::Failed
    );
    assert!(executor.gate_request().is_none());
    assert_eq!(host.look_once(&mut world, &mut executor), ReconcileResult::Idle);
    assert_eq!(phase(&world), RolloutPhase::Completed);
    assert!(!executor.record_verdict(question, verdict), "nobody wants to know any more");
}

#[test]
fn verdict_of_a_changed_wave_is_dropped() {
    let (mut world, mut host, mut executor) = gated();
    let question = executor.gate_request().unwrap().clone();
    // The wave is not settled for a while, and then again.
    let node = granted(&world).pop().unwrap();
    world.pass(SignedDuration::from_secs(5));
    world.silent(&node, SignedDuration::from_mins(2));
    host.look_once(&mut world, &mut executor);
    assert!(executor.gate_request().is_none(), "who is silent cannot be well");
    world.connected(&node);
    host.look_once(&mut world, &mut executor);
    let again = executor.gate_request().unwrap().clone();
    assert_ne!(again, question);
    let verdict = GateVerdict::Passed { at: world.now };
    assert!(!executor.record_verdict(question, verdict.clone()));
    assert!(executor.record_verdict(again, verdict));
    // A pause stops the gate.
    let (mut world, mut host, mut executor) = gated();
    say(&mut world, &pause());
    assert_eq!(host.look_once(&mut world, &mut executor), ReconcileResult::Idle);
    assert!(executor.gate_request().is_none());
}
