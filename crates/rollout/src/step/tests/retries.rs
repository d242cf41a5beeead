//! Retries: only nodes that a step counts as failed can be retried.

use muster_core::rollout::progress::RolloutNodeState;
use muster_core::rollout::record::{FailureKind, PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{Amount, Deadlines, FailureLimits, Gate, MaxUnavailable, Strategy};

use crate::command::{CommandRefused, RetryTarget, RolloutCommand};
use crate::progress::progress;
use crate::testing::{FakeFleet, RunEnd, node};

use super::Ride;
use super::ride::{budget, failed, invalid, minutes, pending, percents, seconds};

fn retry_all() -> RolloutCommand {
    RolloutCommand::Retry(RetryTarget::AllFailed)
}

fn retry(names: &[&str]) -> RolloutCommand {
    RolloutCommand::Retry(RetryTarget::Nodes(names.iter().map(|name| node(name)).collect()))
}

/// The nodes that stopped the rollout, and how they failed.
fn stopped_by(ride: &Ride) -> Vec<(String, FailureKind)> {
    let RolloutPhase::Paused { why: PauseReason::Failures { nodes, .. } } = ride.phase() else {
        panic!("{:?}", ride.phase())
    };
    nodes.iter().map(|failed| (failed.node.to_string(), failed.how)).collect()
}

fn state(ride: &Ride, name: &str) -> RolloutNodeState {
    let progress = ride.world.with_input(|input| progress(&ride.plan, &ride.record(), input));
    let mut nodes = progress.waves.into_iter().flat_map(|wave| wave.nodes);
    nodes.find(|progress| progress.node == node(name)).unwrap().state
}

/// Four nodes in two waves: one of the first wave disconnects before its turn. Returns its name.
fn silent_before_its_turn() -> (Ride, String) {
    let max_unavailable = MaxUnavailable { default: Amount::Nodes(2), ..MaxUnavailable::default() };
    let strategy = Strategy { max_unavailable, ..percents(&[50, 100]) };
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 4, "a b")]), strategy);
    let silent = ride.plan.plan().waves[0].nodes[1].node.to_string();
    ride.world.silent(&silent, seconds(0));
    let first = ride.go();
    assert_eq!(first.len(), 1);
    ride.well(&first[0]);
    ride.after(minutes(30));
    assert_eq!(stopped_by(&ride), [(silent.clone(), FailureKind::Unreachable)]);
    (ride, silent)
}

#[test]
fn retried_disconnected_node_blocks_no_other() {
    for by_name in [false, true] {
        let (mut ride, silent) = silent_before_its_turn();
        let word = if by_name { retry(&[&silent]) } else { retry_all() };
        assert!(ride.say(&word).unwrap());
        assert_eq!(ride.go().len(), 1, "the next wave begins");
        assert_eq!(ride.phase(), RolloutPhase::Running);
        assert!(matches!(state(&ride, &silent), RolloutNodeState::Failed { forgiven: true, .. }));
        assert!(!ride.say(&word).unwrap(), "it was said");
        // It is back, and is granted; its failures count again.
        ride.world.connected(&silent);
        let other = ride.granted.last().unwrap().clone();
        assert!(ride.well(&other).contains(&silent));
        assert!(ride.record().operator.retry.is_empty());
        ride.answers(&silent, failed());
        assert_eq!(stopped_by(&ride), [(silent, FailureKind::NotConfigured)]);
    }
}

#[test]
fn retry_of_one_node_excuses_no_other() {
    let none = Amount::Nodes(0);
    let failures = FailureLimits { canary: none, wave: none, total: none };
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 3, "a b")]), Strategy { failures, ..budget(2, None) });
    let granted = ride.go();
    let silent = ["web1", "web2", "web3"].into_iter().find(|name| !granted.iter().any(|other| other == name)).unwrap();
    ride.world.silent(silent, seconds(0));
    ride.world.answers(&granted[0], failed());
    ride.well(&granted[1]);
    ride.world.pass(minutes(30));
    assert!(ride.say(&retry(&[silent])).unwrap(), "it has failed too, though that did not stop it");
    ride.go();
    assert_eq!(stopped_by(&ride), [(granted[0].clone(), FailureKind::NotConfigured)]);
}

#[test]
fn retry_of_healthy_disconnected_node() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), Strategy { soak: seconds(10), ..budget(1, None) });
    let first = ride.go();
    ride.world.answers(&first[0], RunEnd::Validated);
    ride.world.silent(&first[0], seconds(0));
    ride.go();
    let other = if first[0] == "web1" { "web2" } else { "web1" };
    ride.world.silent(other, seconds(0));
    ride.after(minutes(30));
    let mut stopped = stopped_by(&ride);
    stopped.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert_eq!(stopped, [("web1".into(), FailureKind::Unreachable), ("web2".into(), FailureKind::Unreachable)]);
    assert!(ride.say(&retry_all()).unwrap());
    ride.go();
    assert!(!matches!(ride.phase(), RolloutPhase::Paused { why: PauseReason::Failures { .. } }), "{:?}", ride.phase());
}

#[test]
fn pending_deadline_fails_before_the_grant_expires() {
    let deadlines = Deadlines { pending: minutes(5), ..Deadlines::default() };
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), Strategy { deadlines, ..budget(1, None) });
    let first = ride.go();
    ride.answers(&first[0], pending());
    ride.after(minutes(5));
    assert_eq!(stopped_by(&ride), [(first[0].clone(), FailureKind::PendingTooLong)]);
    assert!(ride.say(&retry(&[&first[0]])).unwrap());
    assert_eq!(ride.go(), first);
}

#[test]
fn pending_node_outlives_its_grant() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), budget(1, None));
    let first = ride.go();
    ride.answers(&first[0], pending());
    ride.after(minutes(20));
    assert!(matches!(state(&ride, &first[0]), RolloutNodeState::Pending { .. }));
    let refused = ride.say(&retry_all()).unwrap_err();
    assert!(matches!(refused, CommandRefused::NoFailedNode { .. }), "{refused}");
    let refused = ride.say(&retry(&[&first[0]])).unwrap_err();
    assert!(refused.to_string().ends_with("it waits for other nodes"), "{refused}");
}

#[test]
fn gate_without_validation_ignores_failed_checks() {
    let gate = Gate { validated: false, checks: Vec::new() };
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), Strategy { gate, ..budget(1, None) });
    let first = ride.go();
    let next = ride.answers(&first[0], invalid());
    assert_eq!((next.len(), state(&ride, &first[0])), (1, RolloutNodeState::Healthy));
    let refused = ride.say(&retry_all()).unwrap_err();
    assert!(matches!(refused, CommandRefused::NoFailedNode { .. }), "{refused}");
}
