//! Failures of nodes, their limits and their consequences.

use muster_core::names::RunId;
use muster_core::report::reason::RunReason;
use muster_core::rollout::record::{FailureKind, PauseReason, RolloutPhase, Threshold};
use muster_core::rollout::strategy::{Amount, Deadlines, FailureLimits, OnFailure, Strategy};

use crate::command::{MAX_NAMED_NODES, RetryTarget, RolloutCommand};
use crate::testing::{FakeFleet, RunEnd, node};

use super::RolloutHarness;
use super::harness::{budget, failed, invalid, minutes, pending, percents, seconds};

fn halt(harness: &RolloutHarness) -> (Threshold, u32, u32, FailureKind) {
    let phase = harness.phase();
    let RolloutPhase::Paused { why: PauseReason::Failures { threshold, failed, tolerated, nodes } } = phase else {
        panic!("it was not paused because of failures: {phase:?}")
    };
    (threshold, failed, tolerated, nodes[0].how)
}

fn tolerating(canary: u32, wave: u32, total: u32, strategy: Strategy) -> Strategy {
    let [canary, wave, total] = [canary, wave, total].map(Amount::Nodes);
    Strategy { failures: FailureLimits { canary, wave, total }, ..strategy }
}

#[test]
fn canary_failure_stops_the_rollout() {
    for (ended, how) in [(failed(), FailureKind::NotConfigured), (invalid(), FailureKind::NotValidated)] {
        let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), percents(&[25, 100]));
        let first = harness.settle();
        assert_eq!(harness.report(&first[0], ended), Vec::<String>::new());
        assert_eq!(halt(&harness), (Threshold::Canary, 1, 0, how));
        let RolloutPhase::Paused { why } = harness.phase() else { panic!("the rollout is not paused") };
        let expected =
            if how == FailureKind::NotValidated { "its validation failed: checks failed: port" } else { "failed: 1 " };
        assert!(why.to_string().contains(expected), "{why}");
        assert_eq!(harness.decide(), super::super::Step::default(), "no further grant, and no further wait");
        assert_eq!(harness.desired_version(&first[0]), "v2");
    }
}

#[test]
fn failure_of_a_node_that_was_unreachable_before_counts() {
    let mut world = FakeFleet::with_roles(&[("web", 2, "a b")]);
    world.silent("web2", minutes(5));
    let mut harness = RolloutHarness::start(world, budget(1, None));
    harness.world.connected("web2");
    assert_eq!(harness.settle(), ["web1"]);
    harness.validate("web1");
    assert_eq!(harness.granted, ["web1", "web2"], "nodes that could not be reached come last");
    harness.report("web2", failed());
    assert_eq!(halt(&harness), (Threshold::Canary, 1, 0, FailureKind::NotConfigured));
}

#[test]
fn node_that_stays_unreachable_does_not_count() {
    let mut world = FakeFleet::with_roles(&[("web", 2, "a b")]);
    world.silent("web2", minutes(5));
    let mut harness = RolloutHarness::start(world, budget(2, None));
    harness.settle();
    harness.validate("web1");
    harness.advance(minutes(31));
    assert_eq!(harness.phase(), RolloutPhase::Completed);
}

#[test]
fn reaching_a_failure_limit_does_not_stop() {
    let strategy = tolerating(1, 1, 2, budget(4, None));
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 8, "a b")]), strategy);
    let granted = harness.settle();
    assert_eq!(granted.len(), 4);
    harness.report(&granted[0], failed());
    assert_eq!(harness.phase(), RolloutPhase::Running, "one is tolerated");
    harness.report(&granted[1], failed());
    assert_eq!(halt(&harness), (Threshold::Canary, 2, 1, FailureKind::NotConfigured));
}

#[test]
fn pending_time_does_not_count_for_the_grant() {
    let deadlines = Deadlines { node: minutes(15), pending: minutes(30), progress: minutes(60) };
    let strategy = Strategy { deadlines, ..budget(2, None) };
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), strategy.clone());
    let granted = harness.settle();
    assert_eq!(harness.decide().recheck, Some(harness.world.now + minutes(15)));
    harness.advance(minutes(15));
    assert_eq!(halt(&harness), (Threshold::Canary, 2, 0, FailureKind::Expired));
    assert_eq!(granted.len(), 2);

    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 1, "a")]), strategy);
    harness.settle();
    harness.world.pass(minutes(14));
    harness.report("web1", pending());
    harness.advance(minutes(29));
    harness.report("web1", RunEnd::Configured);
    harness.advance(minutes(15) - seconds(1));
    assert_eq!(harness.phase(), RolloutPhase::Running, "its deadline restarts when it is no longer pending");
    harness.advance(seconds(1));
    assert_eq!(halt(&harness).3, FailureKind::Expired);
}

#[test]
fn pending_has_its_own_deadline() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), budget(1, None));
    let granted = harness.settle();
    harness.report(&granted[0], pending());
    assert_eq!(harness.decide().recheck, Some(harness.world.now + minutes(30)));
    harness.advance(minutes(30) - seconds(1));
    assert_eq!(harness.phase(), RolloutPhase::Running);
    harness.advance(seconds(1));
    assert_eq!(halt(&harness).3, FailureKind::PendingTooLong);
    // After the retry it is pending again, with its full time.
    assert!(harness.command(&RolloutCommand::Retry(RetryTarget::AllFailed)).unwrap());
    assert_eq!(harness.settle(), granted);
    harness.report(&granted[0], pending());
    assert_eq!(harness.decide().recheck, Some(harness.world.now + minutes(30)));
}

#[test]
fn resume_forgives_earlier_failures() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), budget(2, None));
    let granted = harness.settle();
    harness.report(&granted[0], failed());
    assert_eq!(halt(&harness).1, 1);
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    harness.settle();
    assert_eq!(harness.phase(), RolloutPhase::Running);
    let next = harness.validate(&granted[1]);
    assert_eq!(next.len(), 1, "the failed node uses one of two slots");
    harness.report(&next[0], failed());
    assert_eq!(halt(&harness).1, 1, "a failure after the resume");
}

#[test]
fn retry_grants_a_failed_node_again() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(1, None));
    let granted = harness.settle();
    assert!(harness.command(&RolloutCommand::Retry(RetryTarget::AllFailed)).is_err(), "no node has failed");
    harness.report(&granted[0], failed());
    assert!(harness.command(&RolloutCommand::Retry(RetryTarget::AllFailed)).unwrap());
    assert_eq!(harness.phase(), RolloutPhase::Running);
    assert_eq!(harness.settle(), granted, "a retry uses no budget: the node is unavailable already");
    assert!(harness.record().operator.retry.is_empty());
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
}

#[test]
fn failed_rollout_without_stable_version_pauses() {
    let strategy = Strategy { on_failure: OnFailure::Rollback, ..budget(1, None) };
    let mut world = FakeFleet::with_roles(&[("web", 2, "a b")]);
    world.answers("web2", failed());
    let mut harness = RolloutHarness::start(world, strategy);
    assert_eq!(harness.settle(), ["web2"], "it was unhealthy before, so not all nodes have validated v1");
    harness.report("web2", RunEnd::Validated);
    assert_eq!(harness.granted, ["web2", "web1"]);
    harness.report("web1", failed());
    assert!(
        matches!(harness.phase(), RolloutPhase::Paused { why: PauseReason::NoRollbackTarget { .. } }),
        "{:?}",
        harness.phase()
    );
}

#[test]
fn failure_after_resume_counts() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), budget(3, None));
    let granted = harness.settle();
    harness.report(&granted[0], failed());
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    harness.settle();
    harness.world.pass(seconds(1));
    harness.report(&granted[1], failed());
    assert_eq!(halt(&harness).1, 1);
    // A node that fails again without a grant is the reviewed failure.
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    harness.world.pass(seconds(60));
    harness.report(&granted[0], failed());
    assert_eq!(harness.phase(), RolloutPhase::Running);
}

#[test]
fn new_epoch_grants_nothing_before_all_reported() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), budget(2, None));
    let granted = harness.settle();
    harness.validate(&granted[0]);
    harness.world.pass(minutes(600));
    let second = harness.world.now.as_second().to_string();
    harness.world.put(harness.world.keys.store_epoch(), second);
    assert_eq!(harness.settle(), Vec::<String>::new());
    assert_eq!(harness.phase(), RolloutPhase::Running);
    for name in ["web1", "web2", "web3", "web4"] {
        harness.world.answers(name, RunEnd::Validated);
    }
    assert_eq!(harness.settle().len(), 1, "one is left: the others have reported again");
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
}

fn new_life(harness: &mut RolloutHarness) {
    harness.world.pass(minutes(1));
    let second = harness.world.now.as_second().to_string();
    harness.world.put(harness.world.keys.store_epoch(), second);
}

#[test]
fn forgiveness_ends_with_the_store_epoch() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(1, None));
    let granted = harness.settle();
    harness.report(&granted[0], failed());
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    harness.settle();
    assert_eq!(harness.phase(), RolloutPhase::Running);
    new_life(&mut harness);
    harness.report(&granted[0], failed());
    assert_eq!(halt(&harness).1, 1);
}

#[test]
fn retry_all_covers_earlier_failures_only() {
    let many = u32::try_from(MAX_NAMED_NODES).unwrap() + 3;
    for in_new_life in [false, true] {
        let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", many, "a b c")]), budget(many, None));
        let granted = harness.settle();
        let (late, early) = granted.split_at(2);
        early.iter().for_each(|name| harness.world.answers(name, failed()));
        harness.settle();
        assert!(harness.command(&RolloutCommand::Retry(RetryTarget::AllFailed)).unwrap());
        assert!(harness.record().operator.retry_before.is_some(), "too many nodes for a list");
        if in_new_life {
            new_life(&mut harness);
            granted.iter().for_each(|name| harness.world.answers(name, failed()));
            assert_eq!(harness.settle(), Vec::<String>::new(), "the retry from before the restore does not apply");
            assert_eq!(halt(&harness).1, many);
        } else {
            assert_eq!(harness.settle().len(), early.len());
            harness.world.pass(seconds(1));
            late.iter().for_each(|name| harness.world.answers(name, failed()));
            assert_eq!(harness.settle(), Vec::<String>::new(), "these failures are newer than the retry");
            assert_eq!(halt(&harness).1, 2);
        }
    }
}

#[test]
fn interrupted_run_is_no_answer() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), percents(&[50, 100]));
    let first = harness.settle();
    let cut_off = || RunEnd::Failed(RunReason::Interrupted { run: RunId::new("r1").unwrap() });
    harness.report(&first[0], cut_off());
    assert_eq!(harness.phase(), RolloutPhase::Running, "its agent repeats the run");
    harness.validate(&first[0]);
    assert_eq!(harness.record().waves[0].settled, Some(harness.world.now));
    // If the run never ends, the grant expires.
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), percents(&[50, 100]));
    let first = harness.settle();
    harness.report(&first[0], cut_off());
    harness.advance(minutes(15));
    assert!(
        matches!(harness.phase(), RolloutPhase::Paused { why: PauseReason::Failures { failed: 1, .. } }),
        "{:?}",
        harness.phase()
    );
}

#[test]
fn long_texts_keep_the_record_small() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 10, "a b")]), budget(10, None));
    harness.settle();
    for number in 1..=10 {
        let name = format!("web{number}");
        harness.world.answers(&name, failed());
        harness.world.reports_long_error(&name);
    }
    harness.settle();
    assert_eq!(halt(&harness).1, 10);
    let mut record = harness.record();
    let name = |number: usize| node(&format!("{}{number:02}_{}", "n".repeat(61), "s".repeat(20)));
    record.operator.skipped = (0..MAX_NAMED_NODES).map(name).collect();
    record.waves = vec![record.waves[0].clone(); 16];
    let size = serde_json::to_vec(&record).unwrap().len();
    assert!(size <= 16 * 1024, "{size}");
}
