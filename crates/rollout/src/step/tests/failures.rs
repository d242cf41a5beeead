//! Failures of nodes, their limits and their consequences.

use muster_core::names::RunId;
use muster_core::report::reason::RunReason;
use muster_core::rollout::record::{FailureKind, PauseReason, RolloutPhase, Threshold};
use muster_core::rollout::strategy::{Amount, Deadlines, FailureLimits, OnFailure, Strategy};

use crate::command::{MAX_NAMED_NODES, RetryTarget, RolloutCommand};
use crate::testing::{FakeFleet, RunEnd, node};

use super::Ride;
use super::ride::{budget, failed, invalid, minutes, pending, percents, seconds};

fn halt(ride: &Ride) -> (Threshold, u32, u32, FailureKind) {
    let phase = ride.phase();
    let RolloutPhase::Paused { why: PauseReason::Failures { threshold, failed, tolerated, nodes } } = phase else {
        panic!("it did not stop because of failures: {phase:?}")
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
        let mut ride = Ride::begin(FakeFleet::of(&[("web", 4, "a b")]), percents(&[25, 100]));
        let first = ride.go();
        assert_eq!(ride.answers(&first[0], ended), Vec::<String>::new());
        assert_eq!(halt(&ride), (Threshold::Canary, 1, 0, how));
        let RolloutPhase::Paused { why } = ride.phase() else { panic!("it goes on") };
        let said =
            if how == FailureKind::NotValidated { "its validation failed: checks failed: port" } else { "failed: 1 " };
        assert!(why.to_string().contains(said), "{why}");
        assert_eq!(ride.look(), super::super::Step::default(), "nothing more is granted, and nothing is waited for");
        assert_eq!(ride.version_of(&first[0]), "v2");
    }
}

#[test]
fn failure_of_a_node_that_was_unreachable_before_counts() {
    let mut world = FakeFleet::of(&[("web", 2, "a b")]);
    world.silent("web2", minutes(5));
    let mut ride = Ride::begin(world, budget(1, None));
    ride.world.connected("web2");
    assert_eq!(ride.go(), ["web1"]);
    ride.well("web1");
    assert_eq!(ride.granted, ["web1", "web2"], "nodes that could not be reached come last");
    ride.answers("web2", failed());
    assert_eq!(halt(&ride), (Threshold::Canary, 1, 0, FailureKind::NotConfigured));
}

#[test]
fn node_that_stays_unreachable_does_not_count() {
    let mut world = FakeFleet::of(&[("web", 2, "a b")]);
    world.silent("web2", minutes(5));
    let mut ride = Ride::begin(world, budget(2, None));
    ride.go();
    ride.well("web1");
    ride.after(minutes(31));
    assert_eq!(ride.phase(), RolloutPhase::Completed);
}

#[test]
fn reaching_a_failure_limit_does_not_stop() {
    let strategy = tolerating(1, 1, 2, budget(4, None));
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 8, "a b")]), strategy);
    let granted = ride.go();
    assert_eq!(granted.len(), 4);
    ride.answers(&granted[0], failed());
    assert_eq!(ride.phase(), RolloutPhase::Running, "one is tolerated");
    ride.answers(&granted[1], failed());
    assert_eq!(halt(&ride), (Threshold::Canary, 2, 1, FailureKind::NotConfigured));
}

#[test]
fn pending_time_does_not_count_for_the_grant() {
    let deadlines = Deadlines { node: minutes(15), pending: minutes(30), progress: minutes(60) };
    let strategy = Strategy { deadlines, ..budget(2, None) };
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 4, "a b")]), strategy.clone());
    let granted = ride.go();
    assert_eq!(ride.look().recheck, Some(ride.world.now + minutes(15)));
    ride.after(minutes(15));
    assert_eq!(halt(&ride), (Threshold::Canary, 2, 0, FailureKind::Expired));
    assert_eq!(granted.len(), 2);

    let mut ride = Ride::begin(FakeFleet::of(&[("web", 1, "a")]), strategy);
    ride.go();
    ride.world.pass(minutes(14));
    ride.answers("web1", pending());
    ride.after(minutes(29));
    ride.answers("web1", RunEnd::Configured);
    ride.after(minutes(15) - seconds(1));
    assert_eq!(ride.phase(), RolloutPhase::Running, "it has its whole time again once it waits for nobody");
    ride.after(seconds(1));
    assert_eq!(halt(&ride).3, FailureKind::Expired);
}

#[test]
fn pending_has_its_own_deadline() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 4, "a b")]), budget(1, None));
    let granted = ride.go();
    ride.answers(&granted[0], pending());
    assert_eq!(ride.look().recheck, Some(ride.world.now + minutes(30)));
    ride.after(minutes(30) - seconds(1));
    assert_eq!(ride.phase(), RolloutPhase::Running);
    ride.after(seconds(1));
    assert_eq!(halt(&ride).3, FailureKind::PendingTooLong);
    // After the retry it is pending again, with its full time.
    assert!(ride.say(&RolloutCommand::Retry(RetryTarget::AllFailed)).unwrap());
    assert_eq!(ride.go(), granted);
    ride.answers(&granted[0], pending());
    assert_eq!(ride.look().recheck, Some(ride.world.now + minutes(30)));
}

#[test]
fn resume_forgives_earlier_failures() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 4, "a b")]), budget(2, None));
    let granted = ride.go();
    ride.answers(&granted[0], failed());
    assert_eq!(halt(&ride).1, 1);
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    ride.go();
    assert_eq!(ride.phase(), RolloutPhase::Running);
    let next = ride.well(&granted[1]);
    assert_eq!(next.len(), 1, "the broken one uses one of two slots up");
    ride.answers(&next[0], failed());
    assert_eq!(halt(&ride).1, 1, "this one nobody has seen");
}

#[test]
fn retry_grants_a_failed_node_again() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), budget(1, None));
    let granted = ride.go();
    assert!(ride.say(&RolloutCommand::Retry(RetryTarget::AllFailed)).is_err(), "nobody has failed");
    ride.answers(&granted[0], failed());
    assert!(ride.say(&RolloutCommand::Retry(RetryTarget::AllFailed)).unwrap());
    assert_eq!(ride.phase(), RolloutPhase::Running);
    assert_eq!(ride.go(), granted, "at no cost: it is down already");
    assert!(ride.record().operator.retry.is_empty());
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
}

#[test]
fn failed_rollout_without_stable_version_pauses() {
    let strategy = Strategy { on_failure: OnFailure::Rollback, ..budget(1, None) };
    let mut world = FakeFleet::of(&[("web", 2, "a b")]);
    world.answers("web2", failed());
    let mut ride = Ride::begin(world, strategy);
    assert_eq!(ride.go(), ["web2"], "it was broken before, so nobody has proved all of v1");
    ride.answers("web2", RunEnd::Validated);
    assert_eq!(ride.granted, ["web2", "web1"]);
    ride.answers("web1", failed());
    assert!(
        matches!(ride.phase(), RolloutPhase::Paused { why: PauseReason::NoRollbackTarget { .. } }),
        "{:?}",
        ride.phase()
    );
}

#[test]
fn failure_after_resume_counts() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 4, "a b")]), budget(3, None));
    let granted = ride.go();
    ride.answers(&granted[0], failed());
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    ride.go();
    ride.world.pass(seconds(1));
    ride.answers(&granted[1], failed());
    assert_eq!(halt(&ride).1, 1);
    // A node that fails again by itself is the reviewed failure.
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    ride.world.pass(seconds(60));
    ride.answers(&granted[0], failed());
    assert_eq!(ride.phase(), RolloutPhase::Running);
}

#[test]
fn new_epoch_grants_nothing_before_all_reported() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 4, "a b")]), budget(2, None));
    let granted = ride.go();
    ride.well(&granted[0]);
    ride.world.pass(minutes(600));
    let second = ride.world.now.as_second().to_string();
    ride.world.put(ride.world.keys.store_epoch(), second);
    assert_eq!(ride.go(), Vec::<String>::new());
    assert_eq!(ride.phase(), RolloutPhase::Running);
    for name in ["web1", "web2", "web3", "web4"] {
        ride.world.answers(name, RunEnd::Validated);
    }
    assert_eq!(ride.go().len(), 1, "one is left: the others have been moved before, and have said so again");
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
}

fn new_life(ride: &mut Ride) {
    ride.world.pass(minutes(1));
    let second = ride.world.now.as_second().to_string();
    ride.world.put(ride.world.keys.store_epoch(), second);
}

#[test]
fn forgiveness_ends_with_the_store_epoch() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), budget(1, None));
    let granted = ride.go();
    ride.answers(&granted[0], failed());
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    ride.go();
    assert_eq!(ride.phase(), RolloutPhase::Running);
    new_life(&mut ride);
    ride.answers(&granted[0], failed());
    assert_eq!(halt(&ride).1, 1);
}

#[test]
fn retry_all_covers_earlier_failures_only() {
    let many = u32::try_from(MAX_NAMED_NODES).unwrap() + 3;
    for in_new_life in [false, true] {
        let mut ride = Ride::begin(FakeFleet::of(&[("web", many, "a b c")]), budget(many, None));
        let granted = ride.go();
        let (late, early) = granted.split_at(2);
        early.iter().for_each(|name| ride.world.answers(name, failed()));
        ride.go();
        assert!(ride.say(&RolloutCommand::Retry(RetryTarget::AllFailed)).unwrap());
        assert!(ride.record().operator.retry_before.is_some(), "they are too many to be named");
        if in_new_life {
            new_life(&mut ride);
            granted.iter().for_each(|name| ride.world.answers(name, failed()));
            assert_eq!(ride.go(), Vec::<String>::new(), "what was said before the restore counts no longer");
            assert_eq!(halt(&ride).1, many);
        } else {
            assert_eq!(ride.go().len(), early.len());
            ride.world.pass(seconds(1));
            late.iter().for_each(|name| ride.world.answers(name, failed()));
            assert_eq!(ride.go(), Vec::<String>::new(), "nobody has looked at those");
            assert_eq!(halt(&ride).1, 2);
        }
    }
}

#[test]
fn interrupted_run_is_no_answer() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), percents(&[50, 100]));
    let first = ride.go();
    let cut_off = || RunEnd::Failed(RunReason::Interrupted { run: RunId::new("r1").unwrap() });
    ride.answers(&first[0], cut_off());
    assert_eq!(ride.phase(), RolloutPhase::Running, "its agent makes it again by itself");
    ride.well(&first[0]);
    assert_eq!(ride.record().waves[0].settled, Some(ride.world.now));
    // If the run never ends, the grant expires.
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), percents(&[50, 100]));
    let first = ride.go();
    ride.answers(&first[0], cut_off());
    ride.after(minutes(15));
    assert!(
        matches!(ride.phase(), RolloutPhase::Paused { why: PauseReason::Failures { failed: 1, .. } }),
        "{:?}",
        ride.phase()
    );
}

#[test]
fn long_texts_keep_the_record_small() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 10, "a b")]), budget(10, None));
    ride.go();
    for number in 1..=10 {
        let name = format!("web{number}");
        ride.world.answers(&name, failed());
        ride.world.reports_long_error(&name);
    }
    ride.go();
    assert_eq!(halt(&ride).1, 10);
    let mut record = ride.record();
    let name = |number: usize| node(&format!("{}{number:02}_{}", "n".repeat(61), "s".repeat(20)));
    record.operator.skipped = (0..MAX_NAMED_NODES).map(name).collect();
    record.waves = vec![record.waves[0].clone(); 16];
    let size = serde_json::to_vec(&record).unwrap().len();
    assert!(size <= 16 * 1024, "{size}");
}
