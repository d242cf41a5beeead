//! Reconciliations of the controller, with changes in between.

use jiff::SignedDuration;
use muster_core::rollout::record::{GateVerdict, PauseReason, RolloutPhase, RolloutRecord};
use muster_core::rollout::strategy::{Amount, Gate, GateCheck, GateCheckKind, Strategy};
use muster_core::txn::Revision;

use super::host::{
    FakeHost, apply, commit, failed, granted, grants, phase, record, started_nodes, started_rollout, started_with,
    strategy, to_commit,
};
use crate::command::RolloutCommand;
use crate::executor::{CommitResult, Executor, IoRequest, IoResult, NextAction, ReconcileResult, WriteKind};
use crate::testing::{FakeFleet, RunEnd};

fn pause() -> RolloutCommand {
    RolloutCommand::Pause { reason: "review".into() }
}

/// Completes the rollout: every granted node validates.
fn complete(world: &mut FakeFleet, host: &mut FakeHost, executor: &mut Executor) {
    while phase(world) == RolloutPhase::Running {
        host.reconcile(world, executor);
        for node in granted(world) {
            world.answers(&node, RunEnd::Validated);
        }
    }
}

#[test]
fn stale_view_grants_nothing() {
    let (mut world, mut host) = started_rollout();
    let mut executor = Executor::checked();
    let NextAction::Io(io) = world.with_input(|input| executor.next(input, IoResult::Start)) else {
        panic!("expected a request for the plan")
    };
    let result = host.perform(&world, io);
    let NextAction::Io(IoRequest::StoreRevision) = world.with_input(|input| executor.next(input, result)) else {
        panic!("expected a read of the revision")
    };
    // The view is behind: the executor waits for it, and meanwhile the first node of the plan is paused.
    let newest = Revision(world.fleet.revision.0 + 1);
    let next = world.with_input(|input| executor.next(input, IoResult::StoreRevision(newest)));
    assert!(matches!(next, NextAction::Io(IoRequest::AwaitView(revision)) if revision == newest), "{next:?}");
    let first = host.blobs["plan-0"].plan().waves[0].nodes[0].node.to_string();
    world.pause(&first);
    let write = to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::ViewReached));
    assert_eq!(grants(&write).len(), 1, "the budget is one");
    assert_ne!(grants(&write), [first], "the decision was made again");
    // The next step is decided on the commit, and does not read the store's revision again.
    host.requests.clear();
    let committed = commit(&mut world, &write.txn);
    assert!(matches!(
        host.finish(&mut world, &mut executor, IoResult::Commit(committed)),
        ReconcileResult::WaitUntil(_)
    ));
    assert_eq!(host.requests, ["plan"]);
}

#[test]
fn freshness_of_a_view_expires() {
    let (mut world, mut host) = started_rollout();
    let mut executor = Executor::checked();
    let write = to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::Start));
    let committed = commit(&mut world, &write.txn);
    // The view shows the commit after a minute, and the first node has validated by then.
    world.answers(&granted(&world)[0], RunEnd::Validated);
    world.pass(SignedDuration::from_mins(1));
    host.requests.clear();
    let next = to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::Commit(committed)));
    assert_eq!(grants(&next).len(), 1);
    assert_eq!(host.requests, ["plan", "revision", "view", "plan"], "it reads the revision before the next grant");
}

#[test]
fn pause_needs_no_fresh_view() {
    let (mut world, mut host) = started_rollout();
    let mut executor = Executor::checked();
    let plan = host.blobs.remove("plan-0").unwrap();
    assert_eq!(host.reconcile(&mut world, &mut executor), ReconcileResult::Idle);
    assert_eq!(host.requests, ["plan", "view"]);
    let RolloutPhase::Paused { why: PauseReason::Blocked { problem } } = phase(&world) else {
        panic!("{:?}", phase(&world))
    };
    assert!(problem.starts_with("plan-0 is missing; restore the blob"), "{problem}");
    // Once the plan is back, a resume is enough.
    host.blobs.insert("plan-0".into(), plan);
    apply(&mut world, &RolloutCommand::Resume);
    assert!(matches!(host.reconcile(&mut world, &mut executor), ReconcileResult::WaitUntil(_)));
    assert_eq!(granted(&world).len(), 1);
}

#[test]
fn command_during_rollback_planning_wins() {
    for command in [pause(), RolloutCommand::Abort { reason: "enough".into() }] {
        // After each IO request of the rollback: the fresh view, the plans, and the saved plan.
        for after in 1..=6 {
            let (mut world, mut host, mut executor) = failed();
            let mut next = world.with_input(|input| executor.next(input, IoResult::Start));
            for _ in 0..after {
                let NextAction::Io(io) = next else { panic!("{after}: {next:?}") };
                let result = host.perform(&world, io);
                if host.requests.len() == after {
                    apply(&mut world, &command);
                }
                next = world.with_input(|input| executor.next(input, result));
            }
            let requests = host.requests.clone();
            let outcome = match next {
                NextAction::Done(outcome) => outcome,
                NextAction::Commit(write) => panic!("{requests:?}: {:?}", write.kind),
                NextAction::Io(io) => {
                    let result = host.perform(&world, io);
                    host.finish(&mut world, &mut executor, result)
                }
            };
            assert_eq!(outcome, ReconcileResult::Idle, "{requests:?}");
            assert_eq!(world.fleet.rollouts().len(), 1, "{command:?} after {requests:?}");
            assert_eq!(phase(&world).is_open(), command == pause(), "{requests:?}");
        }
    }
}

#[test]
fn rollback_saves_the_outcome_of_the_failed_rollout() {
    let (mut world, mut host, mut executor) = failed();
    let write = to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::Start));
    assert_eq!(host.requests, ["plan", "revision", "view", "plan", "plan", "save plan"]);
    assert!(matches!(write.kind, WriteKind::Rollback { .. }), "{:?}", write.kind);
    // The rollback starts. The outcome of the failed rollout is saved before the first grant.
    host.requests.clear();
    let committed = commit(&mut world, &write.txn);
    let write = to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::Commit(committed)));
    assert_eq!(host.requests, ["view", "plan", "save outcome"]);
    assert!(matches!(write.kind, WriteKind::Outcome { .. }), "{:?}", write.kind);
    let committed = commit(&mut world, &write.txn);
    assert_eq!(record(&world, 1).outcome.as_deref(), Some("outcome-1"));
    assert!(matches!(
        host.finish(&mut world, &mut executor, IoResult::Commit(committed)),
        ReconcileResult::WaitUntil(_)
    ));
    assert_eq!(granted(&world).len(), 1);
    assert_eq!(record(&world, 2).by, "muster");
}

#[test]
fn rollback_works_without_the_old_plan() {
    let (mut world, mut host, mut executor) = failed();
    let next = world.with_input(|input| executor.next(input, IoResult::Start));
    let NextAction::Io(io) = next else { panic!("{next:?}") };
    let mut result = host.perform(&world, io);
    // The plan was read for the step, and is missing when the rollback is planned.
    while host.requests.len() < 4 {
        let next = world.with_input(|input| executor.next(input, result));
        let NextAction::Io(io) = next else { panic!("{next:?}") };
        result = host.perform(&world, io);
    }
    host.blobs.clear();
    let write = to_commit(host.reconcile_to_write(&world, &mut executor, result));
    assert_eq!(host.requests, ["plan", "revision", "view", "plan", "plan", "config", "save plan"]);
    assert!(matches!(write.kind, WriteKind::Rollback { .. }), "{:?}", write.kind);
    assert_eq!(commit(&mut world, &write.txn), CommitResult::Committed(world.fleet.revision));
}

#[test]
fn outcome_is_saved_after_a_crash() {
    // The replica crashes before the outcome is saved, after that, and after its record is written.
    for lives in 0..3 {
        let (mut world, mut host) = started_rollout();
        complete(&mut world, &mut host, &mut Executor::checked());
        // The reconciliation that completed it has saved the outcome: remove it again.
        let mut ended = record(&world, 1);
        ended.outcome = None;
        world.put_json(world.keys.rollout(ended.id), &ended);
        host.outcomes = 0;
        let mut first = Executor::checked();
        let mut next = world.with_input(|input| first.next(input, IoResult::Start));
        for _ in 0..lives {
            let NextAction::Io(io) = next else { panic!("{next:?}") };
            let result = host.perform(&world, io);
            next = world.with_input(|input| first.next(input, result));
        }
        if let NextAction::Commit(write) = next {
            world.commit(&write.txn).unwrap();
        }
        assert_eq!(host.reconcile(&mut world, &mut Executor::checked()), ReconcileResult::Idle);
        let kept = format!("outcome-{}", host.outcomes);
        assert_eq!(record(&world, 1).outcome, Some(kept), "{lives}");
        host.requests.clear();
        assert_eq!(host.reconcile(&mut world, &mut Executor::checked()), ReconcileResult::Idle);
        assert!(host.requests.is_empty(), "it is saved once");
    }
}

#[test]
fn unsaveable_outcome_blocks_nothing() {
    let (mut world, mut host) = started_rollout();
    complete(&mut world, &mut host, &mut Executor::checked());
    let mut ended = record(&world, 1);
    ended.outcome = None;
    world.put_json(world.keys.rollout(ended.id), &ended);
    let mut executor = Executor::checked();
    host.is_full = true;
    let later = world.now + SignedDuration::from_mins(1);
    assert_eq!(
        host.reconcile(&mut world, &mut executor),
        ReconcileResult::WaitUntil(Some(later)),
        "it is retried later"
    );
    host.is_full = false;
    let write = to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::Start));
    assert!(matches!(write.kind, WriteKind::Outcome { .. }));
    let outcome = host.finish(&mut world, &mut executor, IoResult::Commit(CommitResult::Invalid("too big".into())));
    assert_eq!(outcome, ReconcileResult::Idle, "an invalid write is not retried");
    to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::Start));
    let outcome = host.finish(&mut world, &mut executor, IoResult::Commit(CommitResult::Unknown));
    assert_eq!(outcome, ReconcileResult::Failed, "an unknown outcome is retried");
}

#[test]
fn lost_controller_lock_stops_the_executor() {
    let (mut world, mut host) = started_rollout();
    let mut executor = Executor::checked();
    let write = to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::Start));
    assert_eq!(grants(&write).len(), 1);
    let outcome = host.finish(&mut world, &mut executor, IoResult::Commit(CommitResult::LockLost));
    assert_eq!(outcome, ReconcileResult::Idle);
    assert!(granted(&world).is_empty());
}

#[test]
fn grant_with_unknown_outcome_is_made_once() {
    for carried_out in [true, false] {
        let (mut world, mut host) = started_rollout();
        let mut executor = Executor::checked();
        let write = to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::Start));
        if carried_out {
            world.commit(&write.txn).unwrap();
        }
        let outcome = host.finish(&mut world, &mut executor, IoResult::Commit(CommitResult::Unknown));
        assert_eq!(outcome, ReconcileResult::Failed);
        // The next reconciliation reads the result. The delayed write is refused.
        assert!(matches!(host.reconcile(&mut world, &mut executor), ReconcileResult::WaitUntil(_)));
        assert_eq!(granted(&world), grants(&write));
        assert_eq!(record(&world, 1).steps.grants, 1);
        assert!(world.commit(&write.txn).is_err());
    }
}

#[test]
fn conflicting_decision_is_made_again() {
    let (mut world, mut host) = started_rollout();
    let mut executor = Executor::checked();
    let write = to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::Start));
    apply(&mut world, &pause());
    let committed = commit(&mut world, &write.txn);
    assert_eq!(committed, CommitResult::Conflict(world.fleet.revision));
    assert_eq!(host.finish(&mut world, &mut executor, IoResult::Commit(committed)), ReconcileResult::Idle);
    assert!(granted(&world).is_empty(), "a paused rollout grants nothing");
}

#[test]
fn invalid_record_pauses_the_rollout() {
    let (mut world, mut host) = started_rollout();
    let mut executor = Executor::checked();
    to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::Start));
    let write = to_commit(host.reconcile_to_write(
        &world,
        &mut executor,
        IoResult::Commit(CommitResult::Invalid("too big".into())),
    ));
    let WriteKind::Step { change, .. } = &write.kind else { panic!("{:?}", write.kind) };
    assert!(
        matches!(&change.record.phase, RolloutPhase::Paused { why: PauseReason::Blocked { .. } }),
        "{:?}",
        change.record.phase
    );
    // If the pause cannot be written either, it is retried later and not at once.
    let outcome = host.finish(&mut world, &mut executor, IoResult::Commit(CommitResult::Invalid("too big".into())));
    assert_eq!(outcome, ReconcileResult::Failed);
}

/// The second step is decided on the first, before the view shows it: its record is not yet the one of the view.
#[test]
fn steps_know_the_values_that_they_replace() {
    let (mut world, mut host) = started_nodes(300, Strategy::one_wave(Amount::Percent(100)));
    let mut executor = Executor::checked();
    let first = to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::Start));
    let json = |record: &RolloutRecord| Some(serde_json::to_vec(record).unwrap());
    let known = first.before.clone().unwrap();
    assert_eq!((known.len(), &known[0]), (first.txn.ops.len(), &json(&record(&world, 1))));
    assert!(known[1..].iter().all(Option::is_none), "no node had a grant");

    let view = world.clone();
    let committed = commit(&mut world, &first.txn);
    let second = to_commit(host.reconcile_to_write(&view, &mut executor, IoResult::Commit(committed)));
    assert_eq!(second.before.unwrap()[0], json(&record(&world, 1)));
}

#[test]
fn unexpected_io_result_fails() {
    let (world, _) = started_rollout();
    let mut executor = Executor::checked();
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
    let gate = Gate { checks: vec![check], ..Gate::default() };
    let (mut world, mut host) = started_with(Strategy { gate, ..strategy() });
    let mut executor = Executor::checked();
    while executor.gate_request().is_none() {
        host.reconcile(&mut world, &mut executor);
        for node in granted(&world) {
            world.answers(&node, RunEnd::Validated);
        }
    }
    (world, host, executor)
}

#[test]
fn gate_runs_once_and_its_verdict_is_kept() {
    let (mut world, mut host, mut executor) = gated();
    let gate = executor.gate_request().unwrap().clone();
    assert_eq!((gate.wave_index, gate.wave, gate.to.as_str()), (0, 1, "v2"));
    host.reconcile(&mut world, &mut executor);
    assert_eq!(executor.gate_request(), Some(&gate), "the same request");
    let verdict = GateVerdict::Passed { at: world.now };
    assert!(executor.record_verdict(gate.clone(), verdict.clone()));
    assert!(executor.gate_request().is_none());
    let write = to_commit(host.reconcile_to_write(&world, &mut executor, IoResult::Start));
    let WriteKind::Step { change, .. } = &write.kind else { panic!("{:?}", write.kind) };
    assert_eq!(change.record.waves[0].gate, Some(verdict.clone()));
    // The verdict was not written, and the gate does not run again.
    assert_eq!(
        host.finish(&mut world, &mut executor, IoResult::Commit(CommitResult::Unknown)),
        ReconcileResult::Failed
    );
    assert!(executor.gate_request().is_none());
    assert_eq!(host.reconcile(&mut world, &mut executor), ReconcileResult::Idle);
    assert_eq!(phase(&world), RolloutPhase::Completed);
    assert!(!executor.record_verdict(gate, verdict), "the verdict is no longer needed");
}

#[test]
fn verdict_of_a_changed_wave_is_dropped() {
    let (mut world, mut host, mut executor) = gated();
    let gate = executor.gate_request().unwrap().clone();
    // The wave is not settled for a while, and then again.
    let node = granted(&world).pop().unwrap();
    world.pass(SignedDuration::from_secs(5));
    world.silent(&node, SignedDuration::from_mins(2));
    host.reconcile(&mut world, &mut executor);
    assert!(executor.gate_request().is_none(), "a disconnected node is not healthy");
    world.connected(&node);
    host.reconcile(&mut world, &mut executor);
    let again = executor.gate_request().unwrap().clone();
    assert_ne!(again, gate);
    let verdict = GateVerdict::Passed { at: world.now };
    assert!(!executor.record_verdict(gate, verdict.clone()));
    assert!(executor.record_verdict(again, verdict));
    // A pause stops the gate.
    let (mut world, mut host, mut executor) = gated();
    apply(&mut world, &pause());
    assert_eq!(host.reconcile(&mut world, &mut executor), ReconcileResult::Idle);
    assert!(executor.gate_request().is_none());
}

/// A rollout that may move 300 nodes, in a store whose watch has not delivered anything since the start.
fn lagging_view() -> (FakeFleet, FakeFleet, FakeHost) {
    let (store, host) = started_nodes(300, Strategy::one_wave(Amount::Nodes(300)));
    (store.clone(), store, host)
}

#[test]
fn grants_follow_without_waiting_for_the_view() {
    let (view, mut store, mut host) = lagging_view();
    let mut executor = Executor::checked();
    let (mut result, mut nodes) = (IoResult::Start, Vec::new());
    for count in [116, 116, 68] {
        let write = to_commit(host.reconcile_to_write(&view, &mut executor, result));
        let granted = grants(&write);
        assert_eq!(granted.len(), count);
        nodes.extend(granted);
        let committed = commit(&mut store, &write.txn);
        assert!(matches!(committed, CommitResult::Committed(_)));
        result = IoResult::Commit(committed);
    }
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes.len(), 300, "no node is granted twice");
    // Nothing is left to grant: the rest is decided on the view.
    let plan = view.with_input(|input| executor.next(input, result));
    let NextAction::Io(plan) = plan else { panic!("{plan:?} instead of a plan") };
    let plan = host.perform(&view, plan);
    let waits = view.with_input(|input| executor.next(input, plan));
    assert!(matches!(waits, NextAction::Io(IoRequest::AwaitView(at)) if at == store.fleet.revision), "{waits:?}");
    let next = host.reconcile_to_write(&store, &mut executor, IoResult::ViewReached);
    assert!(matches!(next, NextAction::Done(ReconcileResult::WaitUntil(Some(_)))), "{next:?}");
}

#[test]
fn pause_ends_grants_that_are_ahead_of_the_view() {
    let (view, mut store, mut host) = lagging_view();
    let mut executor = Executor::checked();
    let write = to_commit(host.reconcile_to_write(&view, &mut executor, IoResult::Start));
    let committed = commit(&mut store, &write.txn);
    apply(&mut store, &RolloutCommand::Pause { reason: "wait".into() });
    let write = to_commit(host.reconcile_to_write(&view, &mut executor, IoResult::Commit(committed)));
    let refused = commit(&mut store, &write.txn);
    assert!(matches!(refused, CommitResult::Conflict(_)));
    let result = host.finish(&mut store, &mut executor, IoResult::Commit(refused));
    assert_eq!(result, ReconcileResult::Idle);
    assert_eq!(granted(&store).len(), 116);
}

#[test]
fn step_ahead_waits_for_a_view_that_is_too_old() {
    let (mut view, mut store, mut host) = lagging_view();
    let mut executor = Executor::checked();
    let write = to_commit(host.reconcile_to_write(&view, &mut executor, IoResult::Start));
    let committed = commit(&mut store, &write.txn);
    view.pass(SignedDuration::from_secs(1));
    let plan = view.with_input(|input| executor.next(input, IoResult::Commit(committed)));
    let NextAction::Io(plan) = plan else { panic!("{plan:?} instead of a plan") };
    let plan = host.perform(&view, plan);
    let waits = view.with_input(|input| executor.next(input, plan));
    assert!(matches!(waits, NextAction::Io(IoRequest::AwaitView(at)) if at == store.fleet.revision), "{waits:?}");
}
