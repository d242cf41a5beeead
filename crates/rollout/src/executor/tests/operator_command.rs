//! Requests of operators, with concurrent changes in between.

use jiff::SignedDuration;
use muster_core::report::reason::RunReason;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::{PlanRequest, StartTarget};
use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{
    Amount, Gate, GateCheck, GateCheckKind, OnFailure, Promote, Reach, Strategy, Wave,
};

use super::host::{FakeHost, apply, commit, failed, granted, phase, record, started_rollout, started_with, strategy};
use crate::command::{CommandRefused, RetryTarget, RolloutCommand};
use crate::executor::{
    AlreadyAtVersion, CommitResult, Executor, IoRequest, IoResult, NextAction, OperatorCommand, OperatorCommandError,
    RequestExecutor, RollBackRollout, RollbackPlanError, StartOutcome, StartRollout, StartRolloutError, StartedRollout,
};
use crate::plan::PlanError;
use crate::start::{StartOptions, StartRefused};
use crate::testing::{FakeFleet, RunEnd, node, version};

fn pause() -> RolloutCommand {
    RolloutCommand::Pause { reason: "review".into() }
}

fn by(request: &str) -> StartOptions {
    StartOptions { request: request.into(), by: "ada".into(), supersede: false }
}

fn to(name: &str) -> StartRollout {
    StartRollout::new(StartTarget::Now(plan_to(name)), by("one"))
}

fn plan_to(name: &str) -> PlanRequest {
    PlanRequest::to(version(name))
}

fn idle() -> (FakeFleet, FakeHost) {
    let mut host = FakeHost::default();
    host.config.strategy = Some(strategy());
    (FakeFleet::with_roles(&[("web", 3, "a b")]), host)
}

fn started(outcome: Result<StartOutcome, StartRolloutError>) -> StartedRollout {
    match outcome {
        Ok(StartOutcome::Started(rollout)) => rollout,
        other => panic!("no rollout started: {other:?}"),
    }
}

fn request_of(command: RolloutCommand) -> OperatorCommand {
    OperatorCommand { id: RolloutId(1), command, by: "bob".into(), request: "w".into() }
}

#[test]
fn start_uses_the_environments_strategy() {
    let (mut world, mut host) = idle();
    let rollout = started(host.run(&mut world, to("v2")));
    assert_eq!(
        host.requests,
        ["revision", "view", "config", "save plan", "view"],
        "the plan is saved before a record names it"
    );
    assert!(rollout.changed && rollout.id == RolloutId(1) && rollout.revision == world.fleet.revision, "{rollout:?}");
    assert_eq!(host.blobs[&record(&world, 1).plan].plan().strategy, strategy());
    // The same request again is the same rollout; another one is refused.
    let same = started(host.run(&mut world, to("v2")));
    assert!(!same.changed && same.id == rollout.id && same.revision == rollout.revision, "{same:?}");
    let other = host.run(&mut world, StartRollout::new(StartTarget::Now(plan_to("v3")), by("two")));
    assert!(matches!(other, Err(StartRolloutError::Refused(StartRefused::Open { .. }))), "{other:?}");
}

#[test]
fn start_with_unknown_outcome_starts_once() {
    for committed_before in [true, false] {
        let (mut world, mut host) = idle();
        let (mut executor, txn) = host.until_written(&world, to("v2")).unwrap();
        if committed_before {
            world.commit(&txn).unwrap();
        }
        let rollout = started(host.resume_request(&mut world, &mut executor, IoResult::Commit(CommitResult::Unknown)));
        assert!(rollout.changed, "it committed, at the first or the second try");
        assert_eq!(world.fleet.rollouts().len(), 1);
        assert!(world.commit(&txn).is_err(), "the delayed write is refused");
    }
}

#[test]
fn crash_after_saving_the_plan_leaves_only_the_plan() {
    let (mut world, mut host) = idle();
    let (_, _) = host.until_written(&world, to("v2")).unwrap();
    assert_eq!((host.blobs.len(), world.fleet.rollouts().len()), (1, 0));
    assert!(started(host.run(&mut world, to("v2"))).changed);
}

#[test]
fn slower_of_two_concurrent_starts_is_refused() {
    let (mut world, mut host) = idle();
    let (mut slower, txn) = host.until_written(&world, to("v2")).unwrap();
    host.run(&mut world, StartRollout::new(StartTarget::Now(plan_to("v3")), by("two"))).unwrap();
    let committed = commit(&mut world, &txn);
    let refused = host.resume_request(&mut world, &mut slower, IoResult::Commit(committed));
    assert!(matches!(refused, Err(StartRolloutError::Refused(StartRefused::Open { .. }))), "{refused:?}");
}

#[test]
fn plan_is_remade_after_another_rollout_started() {
    let (mut world, mut host) = idle();
    let instead = |request| StartOptions { supersede: true, ..by(request) };
    let slower = StartRollout::new(StartTarget::Now(plan_to("v2")), instead("one"));
    let (mut executor, first) = RequestExecutor::new(slower);
    let mut io = first;
    let save = loop {
        if let IoRequest::SavePlan(_) = &io {
            break io;
        }
        let result = host.perform(&world, io);
        io = match world.with_input(|input| executor.next(input, result)).unwrap() {
            NextAction::Io(io) => io,
            NextAction::Commit(_) | NextAction::Done(_) => panic!("the plan is not saved yet"),
        };
    };
    // A concurrent start of a newer version commits first.
    host.run(&mut world, StartRollout::new(StartTarget::Now(plan_to("v3")), instead("two"))).unwrap();
    let saved = host.perform(&world, save);
    let refused = host.resume_request(&mut world, &mut executor, saved);
    assert!(matches!(refused, Err(StartRolloutError::Plan(PlanError::OlderRelease { .. }))), "{refused:?}");
}

#[test]
fn request_fails_after_eight_conflicts() {
    let (world, mut host) = idle();
    let (mut executor, _) = host.until_written(&world, to("v2")).unwrap();
    let mut refused = 0;
    let error = loop {
        refused += 1;
        let mut result = IoResult::Commit(CommitResult::Conflict(world.fleet.revision));
        let next = loop {
            match world.with_input(|input| executor.next(input, result)) {
                Ok(crate::executor::NextAction::Io(io)) => result = host.perform(&world, io),
                other => break other,
            }
        };
        if let Err(error) = next {
            break error;
        }
    };
    assert!(matches!(error, StartRolloutError::Contended(_)) && refused == 8, "{refused}: {error}");
}

#[test]
fn gate_command_outside_the_environment_file_is_refused() {
    let (mut world, mut host) = idle();
    let check = GateCheck {
        name: "mine".into(),
        kind: GateCheckKind::Command(vec!["rm".into()]),
        timeout: GateCheck::TIMEOUT,
        retries: 0,
        every: GateCheck::EVERY,
    };
    let gate = Gate { checks: vec![check], ..Gate::default() };
    let sent = Strategy { gate, ..Strategy::one_wave(Amount::Nodes(1)) };
    let request = || {
        StartRollout::new(StartTarget::Now(PlanRequest { strategy: Some(sent.clone()), ..plan_to("v2") }), by("one"))
    };
    let refused = host.run(&mut world, request());
    assert!(matches!(&refused, Err(StartRolloutError::ForeignCommand { check }) if check == "mine"), "{refused:?}");
    host.config.strategy = Some(sent.clone());
    assert!(host.run(&mut world, request()).is_ok());
}

#[test]
fn stale_plan_is_refused() {
    let (mut world, mut host) = idle();
    host.run(&mut world, to("v2")).unwrap();
    let plan = host.blobs[&record(&world, 1).plan].plan().clone();
    let (mut world, mut host) = idle();
    world.node("web4", "web", "a", &[]);
    let what = || StartTarget::Plan(Box::new(plan.clone()));
    let refused = host.run(&mut world, StartRollout::new(what(), by("one")));
    assert!(matches!(refused, Err(StartRolloutError::StalePlan(_))), "{refused:?}");
    world.remove("web4");
    assert!(host.run(&mut world, StartRollout::new(what(), by("one"))).is_ok());
}

#[test]
fn command_with_unknown_outcome_applies_once() {
    for committed_before in [true, false] {
        let (mut world, mut host) = started_rollout();
        let (mut executor, txn) = host.until_written(&world, request_of(pause())).unwrap();
        if committed_before {
            world.commit(&txn).unwrap();
        }
        let outcome = host.resume_request(&mut world, &mut executor, IoResult::Commit(CommitResult::Unknown)).unwrap();
        assert!(outcome.changed && matches!(&outcome.phase, RolloutPhase::Paused { .. }), "{outcome:?}");
        assert!(world.commit(&txn).is_err());
    }
}

#[test]
fn retried_promotion_does_not_promote_the_next_wave() {
    let wave = |percent| Wave { reach: Reach::Percent(percent), soak: None, promote: Promote::Manual };
    let mut strategy = Strategy { waves: vec![wave(30), wave(60), wave(100)], ..strategy() };
    strategy.max_unavailable.default = Amount::Nodes(3);
    let (mut world, mut host) = started_with(strategy);
    let mut executor = Executor::checked();
    let mut to_promotion = |world: &mut FakeFleet, host: &mut FakeHost| {
        host.reconcile(world, &mut executor);
        granted(world).iter().for_each(|node| world.answers(node, RunEnd::Validated));
        for _ in 0..3 {
            world.pass(SignedDuration::from_mins(10));
            host.reconcile(world, &mut executor);
        }
    };
    to_promotion(&mut world, &mut host);
    let promote = || request_of(RolloutCommand::Promote { full: false });
    let (mut executor, txn) = host.until_written(&world, promote()).unwrap();
    world.commit(&txn).unwrap();
    // The answer is late, and the next wave waits for its own promotion by now.
    to_promotion(&mut world, &mut host);
    let now = record(&world, 1);
    assert!(now.waves.len() == 2 && now.waves[1].gate.is_some(), "{now:?}");
    let outcome = host.resume_request(&mut world, &mut executor, IoResult::Commit(CommitResult::Unknown)).unwrap();
    assert!(outcome.changed, "{outcome:?}");
    assert_eq!(record(&world, 1), now, "the second wave is not promoted");
    // A later promotion has another request id.
    let other = OperatorCommand { request: "x".into(), ..promote() };
    assert!(host.run(&mut world, other).unwrap().changed);
    assert!(record(&world, 1).waves[1].promoted.is_some());
}

#[test]
fn last_sixteen_request_ids_are_remembered() {
    let (mut world, mut host) = started_rollout();
    for number in 0..20 {
        let command = if number % 2 == 0 { pause() } else { RolloutCommand::Resume };
        let outcome =
            host.run(&mut world, OperatorCommand { request: format!("w{number}"), ..request_of(command) }).unwrap();
        assert!(outcome.changed);
    }
    let ids = record(&world, 1).operator.command_ids;
    assert_eq!((ids.len(), ids.first().unwrap().as_str(), ids.last().unwrap().as_str()), (16, "w4", "w19"));
    // The last pause, retried: the rollout stays resumed.
    let again = host.run(&mut world, OperatorCommand { request: "w18".into(), ..request_of(pause()) }).unwrap();
    assert!(again.changed && again.phase == RolloutPhase::Running, "{again:?}");
}

#[test]
fn two_concurrent_commands_both_apply() {
    let (mut world, mut host) = started_rollout();
    let (mut executor, txn) =
        host.until_written(&world, request_of(RolloutCommand::Abort { reason: "no".into() })).unwrap();
    apply(&mut world, &pause());
    let committed = commit(&mut world, &txn);
    let outcome = host.resume_request(&mut world, &mut executor, IoResult::Commit(committed)).unwrap();
    assert!(outcome.changed && matches!(phase(&world), RolloutPhase::Aborted { .. }), "{outcome:?}");
    // The same command of another operator, a moment before, made the change.
    let (mut world, mut host) = started_rollout();
    let (mut executor, txn) = host.until_written(&world, request_of(pause())).unwrap();
    apply(&mut world, &pause());
    let committed = commit(&mut world, &txn);
    let outcome = host.resume_request(&mut world, &mut executor, IoResult::Commit(committed)).unwrap();
    assert!(!outcome.changed, "{outcome:?}");
}

#[test]
fn invalid_command_is_refused() {
    let (mut world, mut host) = started_rollout();
    let refused = host.run(&mut world, request_of(RolloutCommand::Promote { full: false }));
    let expected =
        OperatorCommandError::Refused(CommandRefused::NothingToPromote { id: RolloutId(1), instead: String::new() });
    assert!(refused.is_err_and(|error| std::mem::discriminant(&error) == std::mem::discriminant(&expected)));
    let refused = host.run(&mut world, OperatorCommand { id: RolloutId(7), ..request_of(pause()) });
    assert!(matches!(refused, Err(OperatorCommandError::UnknownRollout(RolloutId(7)))), "{refused:?}");
}

#[test]
fn only_retry_needs_the_plan() {
    let retry = || request_of(RolloutCommand::Retry(RetryTarget::AllFailed));
    let strategy = Strategy { on_failure: OnFailure::Pause, ..strategy() };
    let (mut world, mut host) = started_with(strategy);
    let mut executor = Executor::checked();
    host.reconcile(&mut world, &mut executor);
    let failed = granted(&world).pop().unwrap();
    world.answers(&failed, RunEnd::Failed(RunReason::NotCompiled));
    host.reconcile(&mut world, &mut executor);
    assert!(matches!(phase(&world), RolloutPhase::Paused { .. }));
    let plans = std::mem::take(&mut host.blobs);
    let refused = host.run(&mut world, retry());
    assert!(matches!(refused, Err(OperatorCommandError::Refused(CommandRefused::NoPlan { .. }))), "{refused:?}");
    host.requests.clear();
    let other = ["web1", "web2"].into_iter().find(|name| *name != failed).unwrap();
    let skip = OperatorCommand { request: "skip".into(), ..request_of(RolloutCommand::Skip { node: node(other) }) };
    host.run(&mut world, skip).unwrap();
    assert_eq!(host.requests, ["revision", "view", "view"], "a skip needs no plan");
    (host.blobs, host.requests) = (plans, Vec::new());
    assert!(host.run(&mut world, retry()).unwrap().changed);
    assert_eq!(host.requests, ["revision", "view", "plan", "view"]);
    assert_eq!(phase(&world), RolloutPhase::Running);
}

#[test]
fn rollback_request_applies_once() {
    let back = || RollBackRollout::new(RolloutId(1), by("back"), PauseReason::by_operator("ada", ""));
    for committed_before in [true, false] {
        let (mut world, mut host, _) = failed();
        let (mut executor, txn) = host.until_written(&world, back()).unwrap();
        assert_eq!(host.requests, ["revision", "view", "plan", "save plan"]);
        if committed_before {
            world.commit(&txn).unwrap();
        }
        let rollout = host.resume_request(&mut world, &mut executor, IoResult::Commit(CommitResult::Unknown)).unwrap();
        assert!(rollout.changed && rollout.id == RolloutId(2) && rollout.to == version("v1"), "{rollout:?}");
        assert!(matches!(record(&world, 1).phase, RolloutPhase::RolledBack { .. }));
        let again = host.run(&mut world, back()).unwrap();
        assert!(!again.changed && again.id == RolloutId(2), "{again:?}");
    }
    let (mut world, mut host) = started_rollout();
    let nowhere = RollBackRollout::new(RolloutId(9), by("back"), PauseReason::by_operator("ada", ""));
    let refused = host.run(&mut world, nowhere);
    assert!(
        matches!(refused, Err(StartRolloutError::RollbackPlan(RollbackPlanError::UnknownRollout(_)))),
        "{refused:?}"
    );
}

#[test]
fn rollback_is_planned_again_after_a_grant() {
    let (mut world, mut host) = started_rollout();
    let request = RollBackRollout::new(RolloutId(1), by("back"), PauseReason::by_operator("ada", ""));
    let (mut executor, first) = RequestExecutor::new(request);
    let mut result = host.perform(&world, first);
    while host.requests.last() != Some(&"save plan") {
        let NextAction::Io(io) = world.with_input(|input| executor.next(input, result)).unwrap() else {
            panic!("the plan is stored before the rollback is committed")
        };
        result = host.perform(&world, io);
    }
    // The rollout grants its first node before the stored plan is used.
    host.reconcile(&mut world, &mut Executor::checked());
    let [moved] = &granted(&world)[..] else { panic!("one node is granted") };
    let (moved, back) = (moved.clone(), host.resume_request(&mut world, &mut executor, result).unwrap());
    let plan = host.blobs[&record(&world, back.id.0).plan].plan();
    let planned = plan.waves.iter().flat_map(|wave| &wave.nodes).any(|planned| planned.node == node(&moved));
    assert!(planned, "{moved} is in no wave of the rollback");
}

#[test]
fn second_rollback_request_is_refused() {
    let (mut world, mut host, _) = failed();
    // As the command line does: each request rolls back the active rollout.
    let back = |world: &FakeFleet, request: &str| {
        let (record, _) = world.fleet.active_rollout_record().unwrap();
        RollBackRollout::new(record.id, by(request), PauseReason::by_operator("ada", ""))
    };
    let first = back(&world, "first");
    assert_eq!(host.run(&mut world, first).unwrap().id, RolloutId(2));
    let seen = world.fleet.revision;
    let second = back(&world, "second");
    let refused = host.run(&mut world, second).unwrap_err();
    let expected =
        "rollout 2 is itself the rollback of rollout 1, to v1; to leave v1, start another version, or use `--id 2`";
    assert_eq!(refused.to_string(), expected);
    // A request that was made before the first one committed.
    let late = RollBackRollout::new(RolloutId(1), by("late"), PauseReason::by_operator("ada", "")).undoing(true);
    let refused = host.run(&mut world, late).unwrap_err();
    assert_eq!(refused.to_string(), "rollout 1 was rolled back by rollout 2 already");
    assert_eq!((world.fleet.revision, world.fleet.rollouts().len()), (seen, 2), "nothing was written");
}

#[test]
fn rollback_of_a_rollback_needs_a_flag() {
    let (mut world, mut host) = idle();
    started(host.run(&mut world, to("v2")));
    let back = |id| RollBackRollout::new(RolloutId(id), by(&format!("back {id}")), PauseReason::by_operator("ada", ""));
    host.run(&mut world, back(1)).unwrap();
    let undone = host.run(&mut world, back(2).undoing(true));
    // There is no other stable version; but it is not refused for being a rollback.
    assert!(
        matches!(undone, Err(StartRolloutError::RollbackPlan(RollbackPlanError::NoStableVersion { .. }))),
        "{undone:?}"
    );
}

#[test]
fn start_of_the_running_version_is_a_no_op() {
    let (mut world, mut host) = idle();
    let seen = world.fleet.revision;
    let outcome = host.run(&mut world, to("v1")).unwrap();
    let there = AlreadyAtVersion { to: version("v1"), nodes: 3, by: None, revision: seen };
    assert_eq!(outcome, StartOutcome::NoOp(there));
    assert_eq!((world.fleet.revision, world.fleet.rollouts().len()), (seen, 0));
    assert!(!host.requests.contains(&"save plan"), "no plan is saved");
    // One of them needs a repair.
    world.answers("web1", RunEnd::Failed(RunReason::NotCompiled));
    assert!(started(host.run(&mut world, to("v1"))).changed);
}

#[test]
fn adding_allow_older_starts_a_rollout() {
    let (mut world, mut host) = idle();
    let wanted = PlanRequest { allow_older: true, ..plan_to("v1") };
    let allowed = host.run(&mut world, StartRollout::new(StartTarget::Now(wanted), by("one")));
    assert!(started(allowed).changed && world.fleet.desired().unwrap().allow_older);
}

#[test]
fn start_after_abort_is_not_a_no_op() {
    let (mut world, mut host) = idle();
    started(host.run(&mut world, to("v2")));
    for name in ["web1", "web2", "web3"] {
        world.grant(name, "v2", 1);
        world.answers(name, RunEnd::Validated);
    }
    apply(&mut world, &RolloutCommand::Abort { reason: String::new() });
    // Nodes that join later would get v1.
    let request = StartRollout::new(StartTarget::Now(plan_to("v2")), by("two"));
    assert_eq!(started(host.run(&mut world, request)).id, RolloutId(2));
}
