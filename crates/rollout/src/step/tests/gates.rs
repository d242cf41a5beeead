//! Between two waves: soak, gate and promotion, also with clocks that differ; and the order of roles.

use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::{GateVerdict, PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{Amount, FailureLimits, GateCheck, GateCheckKind, OnFailure, Promote, Strategy};

use crate::command::{CommandRefused, RolloutCommand, apply_command};
use crate::progress::hold_reason;
use crate::step::gate_verdict_change;
use crate::testing::{FakeFleet, after, node, request};

use super::Ride;
use super::ride::{failed, minutes, percents, seconds};

const NO_NODE: [String; 0] = [];

fn checked(strategy: Strategy) -> Strategy {
    let check = GateCheck {
        name: "front door".into(),
        kind: GateCheckKind::Command(vec!["true".into()]),
        timeout: GateCheck::TIMEOUT,
        retries: GateCheck::RETRIES,
        every: GateCheck::EVERY,
    };
    let mut strategy = strategy;
    strategy.gate.checks.push(check);
    strategy
}

fn verdict(ride: &mut Ride, wave: usize, verdict: GateVerdict) -> Vec<String> {
    let (record, at) = ride.held();
    let change = ride.world.with_input(|input| gate_verdict_change(&record, wave, verdict, input)).unwrap();
    ride.world.commit(&change.txn(&ride.world.fleet, at).unwrap()).unwrap();
    ride.go()
}

fn in_two_waves() -> Strategy {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].soak = Some(minutes(5));
    strategy
}

#[test]
fn wave_soak_restarts_when_a_node_fails() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), in_two_waves());
    let first = ride.go();
    ride.world.pass(minutes(1));
    assert_eq!(ride.well(&first[0]), NO_NODE);
    let settled = ride.world.now;
    assert_eq!(ride.record().waves[0].settled, Some(settled));
    assert_eq!(ride.look().recheck, Some(settled + minutes(5)));
    ride.world.pass(minutes(4));
    ride.world.reboots(&first[0]);
    ride.go();
    assert_eq!(ride.record().waves[0].settled, None);
    ride.well(&first[0]);
    assert_eq!(ride.after(minutes(5) - seconds(1)), NO_NODE);
    assert_eq!(ride.after(seconds(1)).len(), 1);
}

#[test]
fn recovery_during_a_pause_restarts_the_soak() {
    let mut strategy = in_two_waves();
    strategy.failures = FailureLimits { canary: Amount::Nodes(1), wave: Amount::Nodes(1), total: Amount::Nodes(1) };
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.answers(&first[0], failed());
    assert_eq!(ride.record().waves[0].settled, Some(ride.world.now), "a failure that is tolerated");
    assert!(ride.say(&RolloutCommand::Pause { reason: "a look".into() }).unwrap());
    ride.world.pass(minutes(4));
    ride.well(&first[0]);
    let well = ride.world.now;
    ride.world.pass(minutes(2));
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    assert_eq!(ride.go(), NO_NODE);
    assert_eq!(ride.look().recheck, Some(well + minutes(5)));
    assert_eq!(ride.after(minutes(3)).len(), 1);
}

#[test]
fn short_disconnection_keeps_a_wave_settled() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), in_two_waves());
    let first = ride.go();
    ride.well(&first[0]);
    ride.world.pass(minutes(1));
    ride.world.silent(&first[0], seconds(0));
    assert_eq!(ride.look().change, None);
    assert_eq!(ride.look().recheck, Some(ride.world.now + crate::testing::DISCONNECT_GRACE));
    ride.after(crate::testing::DISCONNECT_GRACE);
    assert_eq!(ride.record().waves[0].settled, None, "for longer, it does");
}

#[test]
fn gate_is_checked_after_the_soak() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = ride.go();
    ride.well(&first[0]);
    assert_eq!(ride.look().checks, None);
    ride.after(minutes(5));
    assert_eq!(ride.look().checks, Some(0));
    let at = ride.world.now;
    assert_eq!(verdict(&mut ride, 0, GateVerdict::Passed { at }).len(), 1);
    assert_eq!(ride.look().checks, None);
}

#[test]
fn failed_gate_stops_and_reruns_after_resume() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = ride.go();
    ride.well(&first[0]);
    ride.after(minutes(5));
    let at = ride.world.now;
    let failed = GateVerdict::Failed { at, check: "front door".into(), message: "500".into() };
    assert_eq!(verdict(&mut ride, 0, failed), NO_NODE);
    assert!(matches!(ride.phase(), RolloutPhase::Paused { why: PauseReason::GateFailed { .. } }));
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    assert_eq!((ride.go(), ride.look().checks), (NO_NODE.to_vec(), Some(0)));
}

#[test]
fn inconclusive_gate_always_pauses() {
    let strategy = Strategy { on_failure: OnFailure::Rollback, ..checked(in_two_waves()) };
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.well(&first[0]);
    ride.after(minutes(5));
    let at = ride.world.now;
    let unclear = GateVerdict::Inconclusive { at, check: "front door".into(), message: "no answer".into() };
    assert_eq!(verdict(&mut ride, 0, unclear), NO_NODE);
    assert!(matches!(ride.phase(), RolloutPhase::Paused { why: PauseReason::GateInconclusive { .. } }));
    assert!(ride.say(&RolloutCommand::Promote { full: false }).unwrap(), "somebody has looked");
    assert_eq!(ride.go().len(), 1);
}

#[test]
fn only_resume_ends_an_operators_pause() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = ride.go();
    ride.well(&first[0]);
    ride.after(minutes(5));
    let at = ride.world.now;
    let unclear = GateVerdict::Inconclusive { at, check: "front door".into(), message: "no answer".into() };
    verdict(&mut ride, 0, unclear);
    let RolloutPhase::Paused { why: stopped } = ride.phase() else { panic!("{:?}", ride.phase()) };
    let pause = || RolloutCommand::Pause { reason: "freeze".into() };
    assert!(ride.say(&pause()).unwrap() && !ride.say(&pause()).unwrap());
    let why = PauseReason::Operator { by: "bob".into(), reason: "freeze".into(), over: Some(Box::new(stopped)) };
    assert_eq!(ride.phase(), RolloutPhase::Paused { why: why.clone() });
    assert!(ride.say(&RolloutCommand::Promote { full: false }).unwrap(), "it is written down");
    assert_eq!((ride.phase(), ride.go()), (RolloutPhase::Paused { why }, NO_NODE.to_vec()));
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    assert_eq!(ride.go().len(), 1, "what was promoted is not asked once more");
}

#[test]
fn resume_reruns_a_failed_gate_after_a_pause() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = ride.go();
    ride.well(&first[0]);
    ride.after(minutes(5));
    let at = ride.world.now;
    let failed = GateVerdict::Failed { at, check: "front door".into(), message: "500".into() };
    verdict(&mut ride, 0, failed);
    assert!(ride.say(&RolloutCommand::Pause { reason: String::new() }).unwrap());
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    assert_eq!((ride.go(), ride.look().checks), (NO_NODE.to_vec(), Some(0)));
}

#[test]
fn promotion_needs_a_gate_after_the_pause() {
    let mut strategy = in_two_waves();
    strategy.waves[0].promote = Promote::Manual;
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.well(&first[0]);
    ride.after(minutes(5));
    assert!(ride.record().waves[0].gate.is_some(), "it waits to be promoted");
    assert!(ride.say(&RolloutCommand::Pause { reason: "a look".into() }).unwrap());
    ride.answers(&first[0], failed());
    ride.well(&first[0]);
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    // No step ran since: the next one would drop the promotion without notice.
    let refused = ride.say(&RolloutCommand::Promote { full: false }).unwrap_err();
    assert!(matches!(refused, CommandRefused::NothingToPromote { .. }), "{refused:?}");
    assert_eq!(ride.after(minutes(5)), NO_NODE);
    assert!(ride.say(&RolloutCommand::Promote { full: false }).unwrap());
    assert_eq!(ride.go().len(), 1);
}

#[test]
fn gate_verdict_of_an_unsettled_wave_is_dropped() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = ride.go();
    ride.well(&first[0]);
    ride.after(minutes(5));
    ride.world.reboots(&first[0]);
    ride.go();
    let (record, at) = (ride.record(), ride.world.now);
    assert_eq!(ride.world.with_input(|input| gate_verdict_change(&record, 0, GateVerdict::Passed { at }, input)), None);
}

#[test]
fn promotion_starts_the_next_wave() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].promote = Promote::Manual;
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy.clone());
    let first = ride.go();
    let refused = ride.say(&RolloutCommand::Promote { full: false }).unwrap_err();
    assert!(matches!(refused, CommandRefused::NothingToPromote { .. }));
    assert!(refused.to_string().ends_with(": its nodes are still being moved"), "{refused}");
    assert!(ride.say(&RolloutCommand::Pause { reason: "lunch".into() }).unwrap());
    let refused = ride.say(&RolloutCommand::Promote { full: false }).unwrap_err();
    assert!(refused.to_string().ends_with(": it is paused by bob: lunch"), "{refused}");
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    ride.well(&first[0]);
    assert_eq!((ride.look().change, ride.look().recheck), (None, None), "only a person can change that");
    let last = ride.plan.plan().nodes().last().unwrap().node.clone();
    let record = ride.record();
    let why = ride.world.with_input(|input| hold_reason(&ride.plan, &record, input, &last)).unwrap();
    assert_eq!(why, Hold::Turn { stage: 1, wave: 1 });
    ride.after(minutes(600));
    assert_eq!(ride.phase(), RolloutPhase::Running, "waiting for a person is no lack of progress");
    assert!(ride.say(&RolloutCommand::Promote { full: false }).unwrap());
    assert!(!ride.say(&RolloutCommand::Promote { full: false }).unwrap(), "two may say it at once");
    assert_eq!(ride.go().len(), 1);

    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy);
    ride.go();
    assert!(ride.say(&RolloutCommand::Promote { full: true }).unwrap(), "that can be said before");
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
}

#[test]
fn role_waits_for_validated_dependencies() {
    let mut asked = request("v2", percents(&[50, 100]));
    asked.after = after(&[("web", "db")]);
    let mut ride = Ride::of(FakeFleet::of(&[("web", 2, "a b"), ("db", 2, "a b")]), &asked);
    let first = ride.go();
    assert!(first[0].starts_with("db") && first.len() == 1);
    let second = ride.well(&first[0]);
    assert!(second[0].starts_with("db"));
    let third = ride.well(&second[0]);
    assert!(third[0].starts_with("web"));
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
}

#[test]
fn wrong_role_order_of_a_plan_is_not_followed() {
    let mut asked = request("v2", percents(&[100]));
    asked.after = after(&[("web", "db")]);
    let mut ride = Ride::of(FakeFleet::of(&[("web", 1, "a"), ("db", 1, "a")]), &asked);
    let mut wrong = ride.plan.plan().clone();
    wrong.waves.swap(0, 1);
    ride.plan = crate::step::IndexedPlan::new(wrong);
    assert_eq!(ride.go(), NO_NODE);
    let record = ride.record();
    let why = ride.world.with_input(|input| hold_reason(&ride.plan, &record, input, &node("web1"))).unwrap();
    assert!(matches!(why, Hold::Turn { .. }), "{why:?}");
}

#[test]
fn pause_wins_over_concurrent_promotion() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].promote = Promote::Manual;
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.well(&first[0]);
    // Both read the same record: the second one conflicts, and is retried.
    let (record, at) = ride.held();
    let decided = |command: &RolloutCommand| {
        let operated =
            ride.world.with_input(|input| apply_command(None, &record, command, "bob", input)).unwrap().unwrap();
        operated.txn(&ride.world.fleet, at).unwrap()
    };
    let pause = decided(&RolloutCommand::Pause { reason: String::new() });
    let promote = decided(&RolloutCommand::Promote { full: false });
    assert!(ride.world.commit(&pause).is_ok() && ride.world.commit(&promote).is_err());
    assert!(ride.say(&RolloutCommand::Promote { full: false }).unwrap());
    assert_eq!(ride.go(), NO_NODE);
    assert!(matches!(ride.phase(), RolloutPhase::Paused { why: PauseReason::Operator { .. } }));
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    assert_eq!(ride.go().len(), 1);
}

/// Another replica takes over. Its clock is ten minutes ahead, and it has observed everything for this many seconds.
fn taken_over(ride: &mut Ride, known: i64) {
    ride.world.pass(minutes(10));
    ride.world.known_since = Some(ride.world.now - seconds(known));
}

#[test]
fn clock_ahead_does_not_shorten_a_wave_soak() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].soak = Some(minutes(5));
    strategy.waves[0].promote = Promote::Manual;
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.well(&first[0]);
    assert!(ride.say(&RolloutCommand::Promote { full: true }).unwrap());
    let before = ride.record();

    taken_over(&mut ride, 60);
    assert_eq!(ride.go(), NO_NODE);
    assert_eq!(ride.record().waves, before.waves, "what was said of the wave holds");
    let until = ride.world.now + minutes(4) - seconds(2);
    assert_eq!(ride.look().recheck, Some(until), "clocks that agree are that close");
    assert_eq!(ride.after(minutes(4) - seconds(3)), NO_NODE);
    assert_eq!(ride.after(seconds(1)).len(), 1);
}

#[test]
fn clock_ahead_does_not_shorten_a_node_soak() {
    let mut strategy = percents(&[100]);
    strategy.soak = seconds(30);
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    assert_eq!(ride.well(&first[0]), NO_NODE);
    taken_over(&mut ride, 10);
    assert_eq!(ride.go(), NO_NODE);
    assert_eq!(ride.after(seconds(17)), NO_NODE);
    assert_eq!(ride.after(seconds(1)).len(), 1);
}

#[test]
fn clock_behind_waits_until_it_has_caught_up() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].soak = Some(minutes(5));
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.well(&first[0]);
    let settled = ride.record().waves[0].settled.unwrap();
    ride.world.now = settled - minutes(10);
    ride.world.known_since = Some(ride.world.now - minutes(60));
    assert_eq!(ride.go(), NO_NODE);
    ride.world.now = settled;
    assert_eq!(ride.go(), NO_NODE);
    assert_eq!(ride.after(minutes(5)).len(), 1);
}
