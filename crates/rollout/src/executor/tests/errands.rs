//! What people ask for, and what happens meanwhile.

use jiff::SignedDuration;
use muster_core::report::reason::RunReason;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_core::rollout::request::{PlanRequest, StartTarget};
use muster_core::rollout::strategy::{
    Amount, Gate, GateCheck, GateCheckKind, OnFailure, Promote, Reach, Strategy, Wave,
};

use super::hands::{Hands, begun, begun_with, commit, failed, granted, phase, record, say, strategy};
use crate::executor::{
    AlreadyThere, Begin, BeginRefused, Begun, Errand, Executor, Got, Need, Next, NoWayBack, Outset, RollBack, Say,
    SayRefused, Wrote,
};
use crate::operate::{Command, OperateRefused, Retried};
use crate::plan::PlanError;
use crate::start::{StartRefused, Starting};
use crate::testing::{Ended, World, node, version};

fn pause() -> Command {
    Command::Pause { reason: "a look".into() }
}

fn by(request: &str) -> Starting {
    Starting { request: request.into(), by: "ada".into(), supersede: false }
}

fn to(name: &str) -> Begin {
    Begin::new(StartTarget::Now(wanted(name)), by("one"))
}

fn wanted(name: &str) -> PlanRequest {
    PlanRequest::to(version(name))
}

fn at_rest() -> (World, Hands) {
    let mut hands = Hands::default();
    hands.way.strategy = Some(strategy());
    (World::of(&[("web", 3, "a b")]), hands)
}

fn it_begins(outset: Result<Outset, BeginRefused>) -> Begun {
    match outset {
        Ok(Outset::Begun(begun)) => begun,
        other => panic!("nothing begins: {other:?}"),
    }
}

fn word(command: Command) -> Say {
    Say { id: RolloutId(1), command, by: "bob".into(), request: "w".into() }
}

#[test]
fn a_rollout_begins_with_the_environments_own_strategy() {
    let (mut world, mut hands) = at_rest();
    let begun = it_begins(hands.run(&mut world, to("v2")));
    assert_eq!(hands.asked, ["newest", "view", "way", "keep", "view"], "the plan is kept before a record names it");
    assert!(begun.changed && begun.id == RolloutId(1) && begun.revision == world.fleet.revision, "{begun:?}");
    assert_eq!(hands.blobs[&record(&world, 1).plan].plan().strategy, strategy());
    // The same request again is the same rollout; another one is refused.
    let same = it_begins(hands.run(&mut world, to("v2")));
    assert!(!same.changed && same.id == begun.id && same.revision == begun.revision, "{same:?}");
    let other = hands.run(&mut world, Begin::new(StartTarget::Now(wanted("v3")), by("two")));
    assert!(matches!(other, Err(BeginRefused::Refused(StartRefused::Open { .. }))), "{other:?}");
}

#[test]
fn a_start_of_which_nobody_knows_begins_once() {
    for carried_out in [true, false] {
        let (mut world, mut hands) = at_rest();
        let (mut errand, txn) = hands.until_written(&world, to("v2")).unwrap();
        if carried_out {
            world.commit(&txn).unwrap();
        }
        let begun = it_begins(hands.run_on(&mut world, &mut errand, Got::Wrote(Wrote::Unknown)));
        assert!(begun.changed, "it was carried out, the first time or the second");
        assert_eq!(world.fleet.rollouts().len(), 1);
        assert!(world.commit(&txn).is_err(), "what was held up on its way comes too late");
    }
}

#[test]
fn whoever_dies_between_keeping_and_starting_leaves_nothing_but_a_plan() {
    let (mut world, mut hands) = at_rest();
    let (_, _) = hands.until_written(&world, to("v2")).unwrap();
    assert_eq!((hands.blobs.len(), world.fleet.rollouts().len()), (1, 0));
    assert!(it_begins(hands.run(&mut world, to("v2"))).changed);
}

#[test]
fn of_two_who_start_at_once_the_slower_is_told_of_the_faster() {
    let (mut world, mut hands) = at_rest();
    let (mut slower, txn) = hands.until_written(&world, to("v2")).unwrap();
    hands.run(&mut world, Begin::new(StartTarget::Now(wanted("v3")), by("two"))).unwrap();
    let wrote = commit(&mut world, &txn);
    let refused = hands.run_on(&mut world, &mut slower, Got::Wrote(wrote));
    assert!(matches!(refused, Err(BeginRefused::Refused(StartRefused::Open { .. }))), "{refused:?}");
}

#[test]
fn what_was_planned_before_another_rollout_began_is_planned_anew() {
    let (mut world, mut hands) = at_rest();
    let instead = |request| Starting { supersede: true, ..by(request) };
    let slower = Begin::new(StartTarget::Now(wanted("v2")), instead("one"));
    let (mut errand, first) = Errand::new(slower);
    let mut need = first;
    let keep = loop {
        if let Need::Keep(_) = &need {
            break need;
        }
        let got = hands.bring(&world, need);
        need = match world.see(|sight| errand.next(sight, got)).unwrap() {
            Next::Needs(need) => need,
            Next::Commit(_) | Next::Done(_) => panic!("nothing is to be written yet"),
        };
    };
    // Somebody else is faster, with a newer version.
    hands.run(&mut world, Begin::new(StartTarget::Now(wanted("v3")), instead("two"))).unwrap();
    let kept = hands.bring(&world, keep);
    let refused = hands.run_on(&mut world, &mut errand, kept);
    assert!(matches!(refused, Err(BeginRefused::NoPlan(PlanError::OlderRelease { .. }))), "{refused:?}");
}

#[test]
fn nobody_tries_for_ever() {
    let (world, mut hands) = at_rest();
    let (mut errand, _) = hands.until_written(&world, to("v2")).unwrap();
    let mut refused = 0;
    let error = loop {
        refused += 1;
        let mut got = Got::Wrote(Wrote::Refused(world.fleet.revision));
        let next = loop {
            match world.see(|sight| errand.next(sight, got)) {
                Ok(crate::executor::Next::Needs(need)) => got = hands.bring(&world, need),
                other => break other,
            }
        };
        if let Err(error) = next {
            break error;
        }
    };
    assert!(matches!(error, BeginRefused::Contended(_)) && refused == 8, "{refused}: {error}");
}

#[test]
fn only_the_environments_own_commands_are_run() {
    let (mut world, mut hands) = at_rest();
    let check = GateCheck {
        name: "mine".into(),
        kind: GateCheckKind::Command(vec!["rm".into()]),
        timeout: GateCheck::TIMEOUT,
        retries: 0,
        every: GateCheck::EVERY,
    };
    let gate = Gate { validated: true, checks: vec![check] };
    let sent = Strategy { gate, ..Strategy::one_wave(Amount::Nodes(1)) };
    let wish = || Begin::new(StartTarget::Now(PlanRequest { strategy: Some(sent.clone()), ..wanted("v2") }), by("one"));
    let refused = hands.run(&mut world, wish());
    assert!(matches!(&refused, Err(BeginRefused::ForeignCommand { check }) if check == "mine"), "{refused:?}");
    hands.way.strategy = Some(sent.clone());
    assert!(hands.run(&mut world, wish()).is_ok());
}

#[test]
fn a_plan_that_the_world_has_outrun_is_refused() {
    let (mut world, mut hands) = at_rest();
    hands.run(&mut world, to("v2")).unwrap();
    let plan = hands.blobs[&record(&world, 1).plan].plan().clone();
    let (mut world, mut hands) = at_rest();
    world.node("web4", "web", "a", &[]);
    let what = || StartTarget::Plan(Box::new(plan.clone()));
    let refused = hands.run(&mut world, Begin::new(what(), by("one")));
    assert!(matches!(refused, Err(BeginRefused::Outdated(_))), "{refused:?}");
    world.remove("web4");
    assert!(hands.run(&mut world, Begin::new(what(), by("one"))).is_ok());
}

#[test]
fn a_word_of_which_nobody_knows_is_said_once() {
    for carried_out in [true, false] {
        let (mut world, mut hands) = begun();
        let (mut errand, txn) = hands.until_written(&world, word(pause())).unwrap();
        if carried_out {
            world.commit(&txn).unwrap();
        }
        let said = hands.run_on(&mut world, &mut errand, Got::Wrote(Wrote::Unknown)).unwrap();
        assert!(said.changed && matches!(&said.phase, RolloutPhase::Paused { .. }), "{said:?}");
        assert!(world.commit(&txn).is_err());
    }
}

#[test]
fn a_promotion_of_which_nobody_knows_is_not_one_of_the_next_wave() {
    let wave = |percent| Wave { reach: Reach::Percent(percent), soak: None, promote: Promote::Manual };
    let mut strategy = Strategy { waves: vec![wave(30), wave(60), wave(100)], ..strategy() };
    strategy.max_unavailable.default = Amount::Nodes(3);
    let (mut world, mut hands) = begun_with(strategy);
    let mut executor = Executor::default();
    let mut to_promotion = |world: &mut World, hands: &mut Hands| {
        hands.look_once(world, &mut executor);
        granted(world).iter().for_each(|node| world.answers(node, Ended::Validated));
        for _ in 0..3 {
            world.pass(SignedDuration::from_mins(10));
            hands.look_once(world, &mut executor);
        }
    };
    to_promotion(&mut world, &mut hands);
    let promote = || word(Command::Promote { full: false });
    let (mut errand, txn) = hands.until_written(&world, promote()).unwrap();
    world.commit(&txn).unwrap();
    // The answer is late, and the next wave has come to its own promotion.
    to_promotion(&mut world, &mut hands);
    let now = record(&world, 1);
    assert!(now.waves.len() == 2 && now.waves[1].gate.is_some(), "{now:?}");
    let said = hands.run_on(&mut world, &mut errand, Got::Wrote(Wrote::Unknown)).unwrap();
    assert!(said.changed, "{said:?}");
    assert_eq!(record(&world, 1), now, "nobody has looked at the second wave");
    // Whoever looks, and says so, says something else.
    let other = Say { request: "x".into(), ..promote() };
    assert!(hands.run(&mut world, other).unwrap().changed);
    assert!(record(&world, 1).waves[1].promoted.is_some());
}

#[test]
fn many_words_are_known_again_and_not_all() {
    let (mut world, mut hands) = begun();
    for number in 0..20 {
        let command = if number % 2 == 0 { pause() } else { Command::Resume };
        let said = hands.run(&mut world, Say { request: format!("w{number}"), ..word(command) }).unwrap();
        assert!(said.changed);
    }
    let said = record(&world, 1).said;
    assert_eq!((said.len(), said.first().unwrap().as_str(), said.last().unwrap().as_str()), (16, "w4", "w19"));
    // The last pause, said again: it goes on all the same.
    let again = hands.run(&mut world, Say { request: "w18".into(), ..word(pause()) }).unwrap();
    assert!(again.changed && again.phase == RolloutPhase::Running, "{again:?}");
}

#[test]
fn two_words_at_once_both_count() {
    let (mut world, mut hands) = begun();
    let (mut errand, txn) = hands.until_written(&world, word(Command::Abort { reason: "no".into() })).unwrap();
    say(&mut world, &pause());
    let wrote = commit(&mut world, &txn);
    let said = hands.run_on(&mut world, &mut errand, Got::Wrote(wrote)).unwrap();
    assert!(said.changed && matches!(phase(&world), RolloutPhase::Aborted { .. }), "{said:?}");
    // The same word of another one, a moment before: that was theirs.
    let (mut world, mut hands) = begun();
    let (mut errand, txn) = hands.until_written(&world, word(pause())).unwrap();
    say(&mut world, &pause());
    let wrote = commit(&mut world, &txn);
    let said = hands.run_on(&mut world, &mut errand, Got::Wrote(wrote)).unwrap();
    assert!(!said.changed, "{said:?}");
}

#[test]
fn a_word_that_makes_no_sense_is_refused() {
    let (mut world, mut hands) = begun();
    let refused = hands.run(&mut world, word(Command::Promote { full: false }));
    let expected = SayRefused::Refused(OperateRefused::NothingToPromote { id: RolloutId(1), instead: String::new() });
    assert!(refused.is_err_and(|error| std::mem::discriminant(&error) == std::mem::discriminant(&expected)));
    let refused = hands.run(&mut world, Say { id: RolloutId(7), ..word(pause()) });
    assert!(matches!(refused, Err(SayRefused::Unknown(RolloutId(7)))), "{refused:?}");
}

#[test]
fn who_has_failed_is_told_by_the_plan_and_every_other_word_needs_none() {
    let retry = || word(Command::Retry(Retried::AllFailed));
    let strategy = Strategy { on_failure: OnFailure::Pause, ..strategy() };
    let (mut world, mut hands) = begun_with(strategy);
    let mut executor = Executor::default();
    hands.look_once(&mut world, &mut executor);
    let failed = granted(&world).pop().unwrap();
    world.answers(&failed, Ended::Failed(RunReason::NotCompiled));
    hands.look_once(&mut world, &mut executor);
    assert!(matches!(phase(&world), RolloutPhase::Paused { .. }));
    let plans = std::mem::take(&mut hands.blobs);
    let refused = hands.run(&mut world, retry());
    assert!(matches!(refused, Err(SayRefused::Refused(OperateRefused::NoPlan { .. }))), "{refused:?}");
    hands.asked.clear();
    let other = ["web1", "web2"].into_iter().find(|name| *name != failed).unwrap();
    let skip = Say { request: "skip".into(), ..word(Command::Skip { node: node(other) }) };
    hands.run(&mut world, skip).unwrap();
    assert_eq!(hands.asked, ["newest", "view", "view"], "a plan that is missing keeps nobody from saying that");
    (hands.blobs, hands.asked) = (plans, Vec::new());
    assert!(hands.run(&mut world, retry()).unwrap().changed);
    assert_eq!(hands.asked, ["newest", "view", "plan", "view"]);
    assert_eq!(phase(&world), RolloutPhase::Running);
}

#[test]
fn a_rollout_is_rolled_back_by_a_word_once() {
    let back = || RollBack::new(RolloutId(1), by("back"), PauseReason::by_operator("ada", ""));
    for carried_out in [true, false] {
        let (mut world, mut hands, _) = failed();
        let (mut errand, txn) = hands.until_written(&world, back()).unwrap();
        assert_eq!(hands.asked, ["newest", "view", "plan", "keep"]);
        if carried_out {
            world.commit(&txn).unwrap();
        }
        let begun = hands.run_on(&mut world, &mut errand, Got::Wrote(Wrote::Unknown)).unwrap();
        assert!(begun.changed && begun.id == RolloutId(2) && begun.to == version("v1"), "{begun:?}");
        assert!(matches!(record(&world, 1).phase, RolloutPhase::RolledBack { .. }));
        let again = hands.run(&mut world, back()).unwrap();
        assert!(!again.changed && again.id == RolloutId(2), "{again:?}");
    }
    let (mut world, mut hands) = begun();
    let nowhere = RollBack::new(RolloutId(9), by("back"), PauseReason::by_operator("ada", ""));
    let refused = hands.run(&mut world, nowhere);
    assert!(matches!(refused, Err(BeginRefused::NoWayBack(NoWayBack::Unknown(_)))), "{refused:?}");
}

#[test]
fn two_who_go_back_move_nobody_twice() {
    let (mut world, mut hands, _) = failed();
    // As the command line does it: the rollout that decides, each time.
    let back = |world: &World, request: &str| {
        let (record, _) = world.fleet.deciding_rollout().unwrap();
        RollBack::new(record.id, by(request), PauseReason::by_operator("ada", ""))
    };
    let first = back(&world, "first");
    assert_eq!(hands.run(&mut world, first).unwrap().id, RolloutId(2));
    let seen = world.fleet.revision;
    let second = back(&world, "second");
    let refused = hands.run(&mut world, second).unwrap_err();
    let told = "rollout 2 is itself the way back from rollout 1, to v1; to leave v1, start a version, or say `--id 2`";
    assert_eq!(refused.to_string(), told);
    // One that looked before the first was carried out.
    let late = RollBack::new(RolloutId(1), by("late"), PauseReason::by_operator("ada", "")).undoing(true);
    let refused = hands.run(&mut world, late).unwrap_err();
    assert_eq!(refused.to_string(), "rollout 1 was rolled back by rollout 2 already");
    assert_eq!((world.fleet.revision, world.fleet.rollouts().len()), (seen, 2), "nothing was written");
}

#[test]
fn a_way_back_is_taken_back_by_whoever_means_it() {
    let (mut world, mut hands) = at_rest();
    it_begins(hands.run(&mut world, to("v2")));
    let back = |id| RollBack::new(RolloutId(id), by(&format!("back {id}")), PauseReason::by_operator("ada", ""));
    hands.run(&mut world, back(1)).unwrap();
    let meant = hands.run(&mut world, back(2).undoing(true));
    // No other version was ever proved; but it was not refused for being a way back.
    assert!(matches!(meant, Err(BeginRefused::NoWayBack(NoWayBack::NothingToGoBackTo { .. }))), "{meant:?}");
}

#[test]
fn where_everybody_is_already_nothing_is_started() {
    let (mut world, mut hands) = at_rest();
    let seen = world.fleet.revision;
    let outset = hands.run(&mut world, to("v1")).unwrap();
    let there = AlreadyThere { to: version("v1"), nodes: 3, by: None, revision: seen };
    assert_eq!(outset, Outset::Nothing(there));
    assert_eq!((world.fleet.revision, world.fleet.rollouts().len()), (seen, 0));
    assert!(!hands.asked.contains(&"keep"), "not even a plan is kept");
    // One of them has something to do.
    world.answers("web1", Ended::Failed(RunReason::NotCompiled));
    assert!(it_begins(hands.run(&mut world, to("v1"))).changed);
}

#[test]
fn who_adds_the_permission_to_go_back_starts_something() {
    let (mut world, mut hands) = at_rest();
    let wanted = PlanRequest { allow_older: true, ..wanted("v1") };
    let allowed = hands.run(&mut world, Begin::new(StartTarget::Now(wanted), by("one")));
    assert!(it_begins(allowed).changed && world.fleet.desired().unwrap().allow_older);
}

#[test]
fn after_an_end_halfway_the_version_is_started_though_all_run_it() {
    let (mut world, mut hands) = at_rest();
    it_begins(hands.run(&mut world, to("v2")));
    for name in ["web1", "web2", "web3"] {
        world.grant(name, "v2", 1);
        world.answers(name, Ended::Validated);
    }
    say(&mut world, &Command::Abort { reason: String::new() });
    // Who comes later would be told v1.
    let wish = Begin::new(StartTarget::Now(wanted("v2")), by("two"));
    assert_eq!(it_begins(hands.run(&mut world, wish)).id, RolloutId(2));
}
