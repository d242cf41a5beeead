//! Tests of the transition between waves: soak, gate, promotion, clock skew, and the order of roles.

use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::{GateVerdict, PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{
    Amount, FailureLimits, GateCheck, GateCheckKind, OnFailure, OnInconclusive, Promote, Strategy,
};

use crate::command::{CommandRefused, RolloutCommand, apply_command};
use crate::progress::hold_reason;
use crate::step::gate_verdict_change;
use crate::testing::{FakeFleet, after, node, request};

use super::RolloutHarness;
use super::harness::{failed, minutes, percents, seconds};

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

fn verdict(harness: &mut RolloutHarness, wave: usize, verdict: GateVerdict) -> Vec<String> {
    let (record, at) = harness.stored_record();
    let change = harness.world.with_input(|input| gate_verdict_change(&record, wave, verdict, input)).unwrap();
    harness.world.commit(&change.txn(&harness.world.fleet, at).unwrap()).unwrap();
    harness.settle()
}

fn in_two_waves() -> Strategy {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].soak = Some(minutes(5));
    strategy
}

#[test]
fn wave_soak_restarts_when_a_node_fails() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), in_two_waves());
    let first = harness.settle();
    harness.world.pass(minutes(1));
    assert_eq!(harness.validate(&first[0]), NO_NODE);
    let settled = harness.world.now;
    assert_eq!(harness.record().waves[0].settled, Some(settled));
    assert_eq!(harness.decide().recheck, Some(settled + minutes(5)));
    harness.world.pass(minutes(4));
    harness.world.reboots(&first[0]);
    harness.settle();
    assert_eq!(harness.record().waves[0].settled, None);
    harness.validate(&first[0]);
    assert_eq!(harness.advance(minutes(5) - seconds(1)), NO_NODE);
    assert_eq!(harness.advance(seconds(1)).len(), 1);
}

#[test]
fn recovery_during_a_pause_restarts_the_soak() {
    let mut strategy = in_two_waves();
    strategy.failures = FailureLimits { canary: Amount::Nodes(1), wave: Amount::Nodes(1), total: Amount::Nodes(1) };
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), strategy);
    let first = harness.settle();
    harness.report(&first[0], failed());
    assert_eq!(harness.record().waves[0].settled, Some(harness.world.now), "a failure that is tolerated");
    assert!(harness.command(&RolloutCommand::Pause { reason: "review".into() }).unwrap());
    harness.world.pass(minutes(4));
    harness.validate(&first[0]);
    let well = harness.world.now;
    harness.world.pass(minutes(2));
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    assert_eq!(harness.settle(), NO_NODE);
    assert_eq!(harness.decide().recheck, Some(well + minutes(5)));
    assert_eq!(harness.advance(minutes(3)).len(), 1);
}

#[test]
fn short_disconnection_keeps_a_wave_settled() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), in_two_waves());
    let first = harness.settle();
    harness.validate(&first[0]);
    harness.world.pass(minutes(1));
    harness.world.silent(&first[0], seconds(0));
    assert_eq!(harness.decide().change, None);
    assert_eq!(harness.decide().recheck, Some(harness.world.now + crate::testing::DISCONNECT_GRACE));
    harness.advance(crate::testing::DISCONNECT_GRACE);
    assert_eq!(harness.record().waves[0].settled, None, "a longer disconnection unsettles it");
}

#[test]
fn gate_is_checked_after_the_soak() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = harness.settle();
    harness.validate(&first[0]);
    assert_eq!(harness.decide().checks, None);
    harness.advance(minutes(5));
    assert_eq!(harness.decide().checks, Some(0));
    let at = harness.world.now;
    assert_eq!(verdict(&mut harness, 0, GateVerdict::Passed { at }).len(), 1);
    assert_eq!(harness.decide().checks, None);
}

#[test]
fn failed_gate_stops_and_reruns_after_resume() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = harness.settle();
    harness.validate(&first[0]);
    harness.advance(minutes(5));
    let at = harness.world.now;
    let failed = GateVerdict::Failed { at, check: "front door".into(), message: "500".into() };
    assert_eq!(verdict(&mut harness, 0, failed), NO_NODE);
    assert!(matches!(harness.phase(), RolloutPhase::Paused { why: PauseReason::GateFailed { .. } }));
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    assert_eq!((harness.settle(), harness.decide().checks), (NO_NODE.to_vec(), Some(0)));
}

#[test]
fn inconclusive_gate_is_a_failure_by_default() {
    for on_failure in [OnFailure::Pause, OnFailure::Rollback] {
        let strategy = Strategy { on_failure, ..checked(in_two_waves()) };
        let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), strategy);
        let first = harness.settle();
        harness.validate(&first[0]);
        harness.advance(minutes(5));
        let at = harness.world.now;
        let refused = GateVerdict::Inconclusive { at, check: "front door".into(), message: "refused".into() };
        let (record, wave_at) = harness.stored_record();
        let change = harness.world.with_input(|input| gate_verdict_change(&record, 0, refused, input)).unwrap();
        let txn = change.txn(&harness.world.fleet, wave_at).unwrap();
        harness.world.commit(&txn).unwrap();
        let (check, message) = ("front door".to_owned(), "inconclusive: refused".to_owned());
        let why = PauseReason::GateFailed { check, message };
        assert!(why.is_failure());
        let step = harness.decide();
        match on_failure {
            OnFailure::Pause => assert_eq!(step.change.unwrap().record.phase, RolloutPhase::Paused { why }),
            OnFailure::Rollback => assert_eq!((step.roll_back, step.change), (Some(why), None)),
        }
    }
}

#[test]
fn inconclusive_gate_pauses_if_the_strategy_says_so() {
    let mut strategy = Strategy { on_failure: OnFailure::Rollback, ..checked(in_two_waves()) };
    strategy.gate.inconclusive = OnInconclusive::Pause;
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), strategy);
    let first = harness.settle();
    harness.validate(&first[0]);
    harness.advance(minutes(5));
    let at = harness.world.now;
    let unclear = GateVerdict::Inconclusive { at, check: "front door".into(), message: "no answer".into() };
    assert_eq!(verdict(&mut harness, 0, unclear), NO_NODE);
    assert!(matches!(harness.phase(), RolloutPhase::Paused { why: PauseReason::GateInconclusive { .. } }));
    assert!(harness.command(&RolloutCommand::Promote { full: false }).unwrap(), "an operator promotes it");
    assert_eq!(harness.settle().len(), 1);
}

#[test]
fn only_resume_ends_an_operators_pause() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = harness.settle();
    harness.validate(&first[0]);
    harness.advance(minutes(5));
    let at = harness.world.now;
    let unclear = GateVerdict::Inconclusive { at, check: "front door".into(), message: "no answer".into() };
    verdict(&mut harness, 0, unclear);
    let RolloutPhase::Paused { why: stopped } = harness.phase() else { panic!("{:?}", harness.phase()) };
    let pause = || RolloutCommand::Pause { reason: "freeze".into() };
    assert!(harness.command(&pause()).unwrap() && !harness.command(&pause()).unwrap());
    let why = PauseReason::Operator { by: "bob".into(), reason: "freeze".into(), over: Some(Box::new(stopped)) };
    assert_eq!(harness.phase(), RolloutPhase::Paused { why: why.clone() });
    assert!(harness.command(&RolloutCommand::Promote { full: false }).unwrap(), "the promotion is recorded");
    assert_eq!((harness.phase(), harness.settle()), (RolloutPhase::Paused { why }, NO_NODE.to_vec()));
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    assert_eq!(harness.settle().len(), 1, "a promoted wave needs no second promotion");
}

#[test]
fn resume_reruns_a_failed_gate_after_a_pause() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = harness.settle();
    harness.validate(&first[0]);
    harness.advance(minutes(5));
    let at = harness.world.now;
    let failed = GateVerdict::Failed { at, check: "front door".into(), message: "500".into() };
    verdict(&mut harness, 0, failed);
    assert!(harness.command(&RolloutCommand::Pause { reason: String::new() }).unwrap());
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    assert_eq!((harness.settle(), harness.decide().checks), (NO_NODE.to_vec(), Some(0)));
}

#[test]
fn promotion_needs_a_gate_after_the_pause() {
    let mut strategy = in_two_waves();
    strategy.waves[0].promote = Promote::Manual;
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), strategy);
    let first = harness.settle();
    harness.validate(&first[0]);
    harness.advance(minutes(5));
    assert!(harness.record().waves[0].gate.is_some(), "it waits for promotion");
    assert!(harness.command(&RolloutCommand::Pause { reason: "review".into() }).unwrap());
    harness.report(&first[0], failed());
    harness.validate(&first[0]);
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    // No step ran since: the next one would drop the promotion without notice.
    let refused = harness.command(&RolloutCommand::Promote { full: false }).unwrap_err();
    assert!(matches!(refused, CommandRefused::NothingToPromote { .. }), "{refused:?}");
    assert_eq!(harness.advance(minutes(5)), NO_NODE);
    assert!(harness.command(&RolloutCommand::Promote { full: false }).unwrap());
    assert_eq!(harness.settle().len(), 1);
}

#[test]
fn gate_verdict_of_an_unsettled_wave_is_dropped() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = harness.settle();
    harness.validate(&first[0]);
    harness.advance(minutes(5));
    harness.world.reboots(&first[0]);
    harness.settle();
    let (record, at) = (harness.record(), harness.world.now);
    assert_eq!(
        harness.world.with_input(|input| gate_verdict_change(&record, 0, GateVerdict::Passed { at }, input)),
        None
    );
}

#[test]
fn promotion_starts_the_next_wave() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].promote = Promote::Manual;
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), strategy.clone());
    let first = harness.settle();
    let refused = harness.command(&RolloutCommand::Promote { full: false }).unwrap_err();
    assert!(matches!(refused, CommandRefused::NothingToPromote { .. }));
    assert!(refused.to_string().ends_with(": its nodes are still being moved"), "{refused}");
    assert!(harness.command(&RolloutCommand::Pause { reason: "lunch".into() }).unwrap());
    let refused = harness.command(&RolloutCommand::Promote { full: false }).unwrap_err();
    assert!(refused.to_string().ends_with(": it is paused by bob: lunch"), "{refused}");
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    harness.validate(&first[0]);
    assert_eq!((harness.decide().change, harness.decide().recheck), (None, None), "only an operator can change that");
    let last = harness.plan.plan().nodes().last().unwrap().node.clone();
    let record = harness.record();
    let why = harness.world.with_input(|input| hold_reason(&harness.plan, &record, input, &last)).unwrap();
    assert_eq!(why, Hold::Turn { stage: 1, wave: 1 });
    harness.advance(minutes(600));
    assert_eq!(harness.phase(), RolloutPhase::Running, "waiting for an operator is no lack of progress");
    assert!(harness.command(&RolloutCommand::Promote { full: false }).unwrap());
    assert!(
        !harness.command(&RolloutCommand::Promote { full: false }).unwrap(),
        "two operators may promote concurrently"
    );
    assert_eq!(harness.settle().len(), 1);

    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), strategy);
    harness.settle();
    assert!(harness.command(&RolloutCommand::Promote { full: true }).unwrap(), "a full promotion may come early");
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
}

#[test]
fn role_waits_for_validated_dependencies() {
    let mut ordered = request("v2", percents(&[50, 100]));
    ordered.after = after(&[("web", "db")]);
    let mut harness =
        RolloutHarness::with_request(FakeFleet::with_roles(&[("web", 2, "a b"), ("db", 2, "a b")]), &ordered);
    let first = harness.settle();
    assert!(first[0].starts_with("db") && first.len() == 1);
    let second = harness.validate(&first[0]);
    assert!(second[0].starts_with("db"));
    let third = harness.validate(&second[0]);
    assert!(third[0].starts_with("web"));
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
}

#[test]
fn wrong_role_order_of_a_plan_is_not_followed() {
    let mut ordered = request("v2", percents(&[100]));
    ordered.after = after(&[("web", "db")]);
    let mut harness = RolloutHarness::with_request(FakeFleet::with_roles(&[("web", 1, "a"), ("db", 1, "a")]), &ordered);
    let mut wrong = harness.plan.plan().clone();
    wrong.waves.swap(0, 1);
    harness.plan = crate::step::IndexedPlan::new(wrong);
    assert_eq!(harness.settle(), NO_NODE);
    let record = harness.record();
    let why = harness.world.with_input(|input| hold_reason(&harness.plan, &record, input, &node("web1"))).unwrap();
    assert!(matches!(why, Hold::Turn { .. }), "{why:?}");
}

#[test]
fn pause_wins_over_concurrent_promotion() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].promote = Promote::Manual;
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), strategy);
    let first = harness.settle();
    harness.validate(&first[0]);
    // Both read the same record: the second one conflicts, and is retried.
    let (record, at) = harness.stored_record();
    let decided = |command: &RolloutCommand| {
        let operated =
            harness.world.with_input(|input| apply_command(None, &record, command, "bob", input)).unwrap().unwrap();
        operated.txn(&harness.world.fleet, at).unwrap()
    };
    let pause = decided(&RolloutCommand::Pause { reason: String::new() });
    let promote = decided(&RolloutCommand::Promote { full: false });
    assert!(harness.world.commit(&pause).is_ok() && harness.world.commit(&promote).is_err());
    assert!(harness.command(&RolloutCommand::Promote { full: false }).unwrap());
    assert_eq!(harness.settle(), NO_NODE);
    assert!(matches!(harness.phase(), RolloutPhase::Paused { why: PauseReason::Operator { .. } }));
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    assert_eq!(harness.settle().len(), 1);
}

/// Another replica takes over. Its clock is ten minutes ahead, and it has observed everything for this many seconds.
fn taken_over(harness: &mut RolloutHarness, known: i64) {
    harness.world.pass(minutes(10));
    harness.world.known_since = Some(harness.world.now - seconds(known));
}

#[test]
fn clock_ahead_does_not_shorten_a_wave_soak() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].soak = Some(minutes(5));
    strategy.waves[0].promote = Promote::Manual;
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), strategy);
    let first = harness.settle();
    harness.validate(&first[0]);
    assert!(harness.command(&RolloutCommand::Promote { full: true }).unwrap());
    let before = harness.record();

    taken_over(&mut harness, 60);
    assert_eq!(harness.settle(), NO_NODE);
    assert_eq!(harness.record().waves, before.waves, "the record of the wave is unchanged");
    let until = harness.world.now + minutes(4) - seconds(2);
    assert_eq!(harness.decide().recheck, Some(until), "clocks with a working time service differ by at most this");
    assert_eq!(harness.advance(minutes(4) - seconds(3)), NO_NODE);
    assert_eq!(harness.advance(seconds(1)).len(), 1);
}

#[test]
fn clock_ahead_does_not_shorten_a_node_soak() {
    let mut strategy = percents(&[100]);
    strategy.soak = seconds(30);
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), strategy);
    let first = harness.settle();
    assert_eq!(harness.validate(&first[0]), NO_NODE);
    taken_over(&mut harness, 10);
    assert_eq!(harness.settle(), NO_NODE);
    assert_eq!(harness.advance(seconds(17)), NO_NODE);
    assert_eq!(harness.advance(seconds(1)).len(), 1);
}

#[test]
fn clock_behind_waits_until_it_has_caught_up() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].soak = Some(minutes(5));
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), strategy);
    let first = harness.settle();
    harness.validate(&first[0]);
    let settled = harness.record().waves[0].settled.unwrap();
    harness.world.now = settled - minutes(10);
    harness.world.known_since = Some(harness.world.now - minutes(60));
    assert_eq!(harness.settle(), NO_NODE);
    harness.world.now = settled;
    assert_eq!(harness.settle(), NO_NODE);
    assert_eq!(harness.advance(minutes(5)).len(), 1);
}
