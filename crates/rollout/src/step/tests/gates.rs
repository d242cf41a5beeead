//! Between two waves: soak, checks, promotion; and the order of roles.

use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::{GateVerdict, PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{Amount, FailureLimits, GateCheck, GateCheckKind, OnFailure, Promote, Strategy};

use crate::operate::{Command, OperateRefused, operate};
use crate::progress::why_not;
use crate::step::judged;
use crate::testing::{World, after, node, request};

use super::Ride;
use super::ride::{failed, minutes, percents, seconds};

const NOBODY: [String; 0] = [];

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
    let change = ride.world.see(|sight| judged(&record, wave, verdict, sight)).unwrap();
    ride.world.commit(&change.txn(&ride.world.fleet, at).unwrap()).unwrap();
    ride.go()
}

fn in_two_waves() -> Strategy {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].soak = Some(minutes(5));
    strategy
}

#[test]
fn a_wave_is_watched_from_its_last_node_on_and_anew_if_one_of_them_falls() {
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), in_two_waves());
    let first = ride.go();
    ride.world.pass(minutes(1));
    assert_eq!(ride.well(&first[0]), NOBODY);
    let settled = ride.world.now;
    assert_eq!(ride.record().waves[0].settled, Some(settled));
    assert_eq!(ride.look().recheck, Some(settled + minutes(5)));
    ride.world.pass(minutes(4));
    ride.world.reboots(&first[0]);
    ride.go();
    assert_eq!(ride.record().waves[0].settled, None);
    ride.well(&first[0]);
    assert_eq!(ride.after(minutes(5) - seconds(1)), NOBODY);
    assert_eq!(ride.after(seconds(1)).len(), 1);
}

#[test]
fn a_node_that_gets_well_while_nobody_looks_is_watched_as_long_as_the_others() {
    let mut strategy = in_two_waves();
    strategy.failures = FailureLimits { canary: Amount::Nodes(1), wave: Amount::Nodes(1), total: Amount::Nodes(1) };
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.answers(&first[0], failed());
    assert_eq!(ride.record().waves[0].settled, Some(ride.world.now), "a failure that is tolerated");
    assert!(ride.say(&Command::Pause { reason: "a look".into() }).unwrap());
    ride.world.pass(minutes(4));
    ride.well(&first[0]);
    let well = ride.world.now;
    ride.world.pass(minutes(2));
    assert!(ride.say(&Command::Resume).unwrap());
    assert_eq!(ride.go(), NOBODY);
    assert_eq!(ride.look().recheck, Some(well + minutes(5)));
    assert_eq!(ride.after(minutes(3)).len(), 1);
}

#[test]
fn an_agent_that_is_away_for_a_moment_does_not_undo_a_wave() {
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), in_two_waves());
    let first = ride.go();
    ride.well(&first[0]);
    ride.world.pass(minutes(1));
    ride.world.silent(&first[0], seconds(0));
    assert_eq!(ride.look().change, None);
    assert_eq!(ride.look().recheck, Some(ride.world.now + crate::testing::PATIENCE));
    ride.after(crate::testing::PATIENCE);
    assert_eq!(ride.record().waves[0].settled, None, "for longer, it does");
}

#[test]
fn checks_are_made_after_the_soak_and_decide() {
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), checked(in_two_waves()));
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
fn a_check_that_fails_stops_it_and_is_made_again_for_who_resumes() {
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = ride.go();
    ride.well(&first[0]);
    ride.after(minutes(5));
    let at = ride.world.now;
    let failed = GateVerdict::Failed { at, check: "front door".into(), message: "500".into() };
    assert_eq!(verdict(&mut ride, 0, failed), NOBODY);
    assert!(matches!(ride.phase(), RolloutPhase::Paused { why: PauseReason::GateFailed { .. } }));
    assert!(ride.say(&Command::Resume).unwrap());
    assert_eq!((ride.go(), ride.look().checks), (NOBODY.to_vec(), Some(0)));
}

#[test]
fn a_check_that_cannot_say_pauses_whatever_the_strategy_does_about_failures() {
    let strategy = Strategy { on_failure: OnFailure::Rollback, ..checked(in_two_waves()) };
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.well(&first[0]);
    ride.after(minutes(5));
    let at = ride.world.now;
    let unclear = GateVerdict::Inconclusive { at, check: "front door".into(), message: "no answer".into() };
    assert_eq!(verdict(&mut ride, 0, unclear), NOBODY);
    assert!(matches!(ride.phase(), RolloutPhase::Paused { why: PauseReason::GateInconclusive { .. } }));
    assert!(ride.say(&Command::Promote { full: false }).unwrap(), "somebody has looked");
    assert_eq!(ride.go().len(), 1);
}

#[test]
fn only_who_resumes_ends_a_pause_whatever_had_stopped_it_before() {
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = ride.go();
    ride.well(&first[0]);
    ride.after(minutes(5));
    let at = ride.world.now;
    let unclear = GateVerdict::Inconclusive { at, check: "front door".into(), message: "no answer".into() };
    verdict(&mut ride, 0, unclear);
    let RolloutPhase::Paused { why: stopped } = ride.phase() else { panic!("{:?}", ride.phase()) };
    let pause = || Command::Pause { reason: "freeze".into() };
    assert!(ride.say(&pause()).unwrap() && !ride.say(&pause()).unwrap());
    let why = PauseReason::Operator { by: "bob".into(), reason: "freeze".into(), over: Some(Box::new(stopped)) };
    assert_eq!(ride.phase(), RolloutPhase::Paused { why: why.clone() });
    assert!(ride.say(&Command::Promote { full: false }).unwrap(), "it is written down");
    assert_eq!((ride.phase(), ride.go()), (RolloutPhase::Paused { why }, NOBODY.to_vec()));
    assert!(ride.say(&Command::Resume).unwrap());
    assert_eq!(ride.go().len(), 1, "what was promoted is not asked once more");
}

#[test]
fn who_resumes_a_pause_has_the_checks_made_again_that_had_stopped_it() {
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = ride.go();
    ride.well(&first[0]);
    ride.after(minutes(5));
    let at = ride.world.now;
    let failed = GateVerdict::Failed { at, check: "front door".into(), message: "500".into() };
    verdict(&mut ride, 0, failed);
    assert!(ride.say(&Command::Pause { reason: String::new() }).unwrap());
    assert!(ride.say(&Command::Resume).unwrap());
    assert_eq!((ride.go(), ride.look().checks), (NOBODY.to_vec(), Some(0)));
}

#[test]
fn nobody_promotes_on_what_was_seen_before_a_pause() {
    let mut strategy = in_two_waves();
    strategy.waves[0].promote = Promote::Manual;
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.well(&first[0]);
    ride.after(minutes(5));
    assert!(ride.record().waves[0].gate.is_some(), "it waits to be promoted");
    assert!(ride.say(&Command::Pause { reason: "a look".into() }).unwrap());
    ride.answers(&first[0], failed());
    ride.well(&first[0]);
    assert!(ride.say(&Command::Resume).unwrap());
    // The engine has not looked again: taken now, the word would be forgotten at its next look, and nobody would be told.
    let refused = ride.say(&Command::Promote { full: false }).unwrap_err();
    assert!(matches!(refused, OperateRefused::NothingToPromote { .. }), "{refused:?}");
    assert_eq!(ride.after(minutes(5)), NOBODY);
    assert!(ride.say(&Command::Promote { full: false }).unwrap());
    assert_eq!(ride.go().len(), 1);
}

#[test]
fn what_checks_said_of_a_wave_that_is_whole_no_longer_is_forgotten() {
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), checked(in_two_waves()));
    let first = ride.go();
    ride.well(&first[0]);
    ride.after(minutes(5));
    ride.world.reboots(&first[0]);
    ride.go();
    let (record, at) = (ride.record(), ride.world.now);
    assert_eq!(ride.world.see(|sight| judged(&record, 0, GateVerdict::Passed { at }, sight)), None);
}

#[test]
fn a_person_lets_the_next_wave_begin() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].promote = Promote::Manual;
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), strategy.clone());
    let first = ride.go();
    let refused = ride.say(&Command::Promote { full: false }).unwrap_err();
    assert!(matches!(refused, OperateRefused::NothingToPromote { .. }));
    assert!(refused.to_string().ends_with(": its nodes are still being moved"), "{refused}");
    assert!(ride.say(&Command::Pause { reason: "lunch".into() }).unwrap());
    let refused = ride.say(&Command::Promote { full: false }).unwrap_err();
    assert!(refused.to_string().ends_with(": it is paused by bob: lunch"), "{refused}");
    assert!(ride.say(&Command::Resume).unwrap());
    ride.well(&first[0]);
    assert_eq!((ride.look().change, ride.look().recheck), (None, None), "only a person can change that");
    let last = ride.plan.plan().nodes().last().unwrap().node.clone();
    let record = ride.record();
    let why = ride.world.see(|sight| why_not(&ride.plan, &record, sight, &last)).unwrap();
    assert_eq!(why, Hold::Turn { stage: 1, wave: 1 });
    ride.after(minutes(600));
    assert_eq!(ride.phase(), RolloutPhase::Running, "waiting for a person is no lack of progress");
    assert!(ride.say(&Command::Promote { full: false }).unwrap());
    assert!(!ride.say(&Command::Promote { full: false }).unwrap(), "two may say it at once");
    assert_eq!(ride.go().len(), 1);

    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), strategy);
    ride.go();
    assert!(ride.say(&Command::Promote { full: true }).unwrap(), "that can be said before");
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
}

#[test]
fn a_role_comes_after_those_that_it_names_and_only_when_they_are_validated() {
    let mut asked = request("v2", percents(&[50, 100]));
    asked.after = after(&[("web", "db")]);
    let mut ride = Ride::of(World::of(&[("web", 2, "a b"), ("db", 2, "a b")]), &asked);
    let first = ride.go();
    assert!(first[0].starts_with("db") && first.len() == 1);
    let second = ride.well(&first[0]);
    assert!(second[0].starts_with("db"));
    let third = ride.well(&second[0]);
    assert!(third[0].starts_with("web"));
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
}

#[test]
fn a_plan_that_puts_roles_in_the_wrong_order_is_not_followed_there() {
    let mut asked = request("v2", percents(&[100]));
    asked.after = after(&[("web", "db")]);
    let mut ride = Ride::of(World::of(&[("web", 1, "a"), ("db", 1, "a")]), &asked);
    let mut wrong = ride.plan.plan().clone();
    wrong.waves.swap(0, 1);
    ride.plan = crate::step::Indexed::new(wrong);
    assert_eq!(ride.go(), NOBODY);
    let record = ride.record();
    let why = ride.world.see(|sight| why_not(&ride.plan, &record, sight, &node("web1"))).unwrap();
    assert!(matches!(why, Hold::Turn { .. }), "{why:?}");
}

#[test]
fn of_two_who_pause_and_promote_at_once_the_pause_wins() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].promote = Promote::Manual;
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.well(&first[0]);
    // Both have looked at the same record: the second is told so, and says it again.
    let (record, at) = ride.held();
    let decided = |command: &Command| {
        let operated = ride.world.see(|sight| operate(None, &record, command, "bob", sight)).unwrap().unwrap();
        operated.txn(&ride.world.fleet, at).unwrap()
    };
    let pause = decided(&Command::Pause { reason: String::new() });
    let promote = decided(&Command::Promote { full: false });
    assert!(ride.world.commit(&pause).is_ok() && ride.world.commit(&promote).is_err());
    assert!(ride.say(&Command::Promote { full: false }).unwrap());
    assert_eq!(ride.go(), NOBODY);
    assert!(matches!(ride.phase(), RolloutPhase::Paused { why: PauseReason::Operator { .. } }));
    assert!(ride.say(&Command::Resume).unwrap());
    assert_eq!(ride.go().len(), 1);
}
