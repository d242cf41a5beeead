//! Looks of the controller, in which something happens.

use jiff::SignedDuration;
use muster_core::rollout::record::{GateVerdict, PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{Gate, GateCheck, GateCheckKind, Strategy};
use muster_core::txn::Revision;

use super::hands::{
    Hands, begun, begun_with, commit, failed, granted, grants, phase, record, say, strategy, to_commit,
};
use crate::executor::{Executor, Got, Looked, Need, Next, Written, Wrote};
use crate::operate::Command;
use crate::testing::{Ended, World};

fn pause() -> Command {
    Command::Pause { reason: "a look".into() }
}

/// Everybody who was granted something is well, until nothing is left to do.
fn complete(world: &mut World, hands: &mut Hands, executor: &mut Executor) {
    while phase(world) == RolloutPhase::Running {
        hands.look_once(world, executor);
        for node in granted(world) {
            world.answers(&node, Ended::Validated);
        }
    }
}

#[test]
fn nothing_is_granted_on_an_old_view() {
    let (mut world, mut hands) = begun();
    let mut executor = Executor::default();
    let Next::Needs(need) = world.see(|sight| executor.next(sight, Got::Nothing)) else { panic!("it needs the plan") };
    let got = hands.bring(&world, need);
    let Next::Needs(Need::Newest) = world.see(|sight| executor.next(sight, got)) else { panic!("it does not ask") };
    // The view is behind: it waits for it, and by then somebody has paused the first of the plan.
    let newest = Revision(world.fleet.revision.0 + 1);
    let next = world.see(|sight| executor.next(sight, Got::Newest(newest)));
    assert!(matches!(next, Next::Needs(Need::View(revision)) if revision == newest), "{next:?}");
    let first = hands.blobs["plan-0"].plan().waves[0].nodes[0].node.to_string();
    world.pause(&first);
    let write = to_commit(hands.look(&world, &mut executor, Got::Viewed));
    assert_eq!(grants(&write).len(), 1, "the budget is one");
    assert_ne!(grants(&write), [first], "it decided anew");
    // The steps that follow wait for what was written, and ask no more.
    hands.asked.clear();
    let wrote = commit(&mut world, &write.txn);
    assert!(matches!(hands.finish(&mut world, &mut executor, Got::Wrote(wrote)), Looked::Waits(_)));
    assert_eq!(hands.asked, ["view", "plan"]);
}

#[test]
fn a_view_that_was_fresh_long_ago_is_not_fresh() {
    let (mut world, mut hands) = begun();
    let mut executor = Executor::default();
    let write = to_commit(hands.look(&world, &mut executor, Got::Nothing));
    let wrote = commit(&mut world, &write.txn);
    // The view shows it after a minute, and the first node is well by then.
    world.answers(&granted(&world)[0], Ended::Validated);
    world.pass(SignedDuration::from_mins(1));
    hands.asked.clear();
    let next = to_commit(hands.look(&world, &mut executor, Got::Wrote(wrote)));
    assert_eq!(grants(&next).len(), 1);
    assert_eq!(hands.asked, ["view", "plan", "newest", "view", "plan"], "it asks again before it grants again");
}

#[test]
fn what_stops_a_rollout_waits_for_no_view() {
    let (mut world, mut hands) = begun();
    let mut executor = Executor::default();
    let plan = hands.blobs.remove("plan-0").unwrap();
    assert_eq!(hands.look_once(&mut world, &mut executor), Looked::Quiet);
    assert_eq!(hands.asked, ["plan", "view"]);
    let RolloutPhase::Paused { why: PauseReason::Blocked { problem } } = phase(&world) else {
        panic!("{:?}", phase(&world))
    };
    assert!(problem.starts_with("plan-0 is missing; bring the blob back"), "{problem}");
    // Once it is back, a word is enough.
    hands.blobs.insert("plan-0".into(), plan);
    say(&mut world, &Command::Resume);
    assert!(matches!(hands.look_once(&mut world, &mut executor), Looked::Waits(_)));
    assert_eq!(granted(&world).len(), 1);
}

#[test]
fn whoever_speaks_while_the_way_back_is_planned_is_heard() {
    for word in [pause(), Command::Abort { reason: "enough".into() }] {
        // After each thing that is needed for it: that the view is fresh, the plans, and that the new one is kept.
        for after in 1..=6 {
            let (mut world, mut hands, mut executor) = failed();
            let mut next = world.see(|sight| executor.next(sight, Got::Nothing));
            for _ in 0..after {
                let Next::Needs(need) = next else { panic!("{after}: {next:?}") };
                let got = hands.bring(&world, need);
                if hands.asked.len() == after {
                    say(&mut world, &word);
                }
                next = world.see(|sight| executor.next(sight, got));
            }
            let needs = hands.asked.clone();
            let looked = match next {
                Next::Done(looked) => looked,
                Next::Commit(write) => panic!("{needs:?}: {:?}", write.what),
                Next::Needs(need) => {
                    let got = hands.bring(&world, need);
                    hands.finish(&mut world, &mut executor, got)
                }
            };
            assert_eq!(looked, Looked::Quiet, "{needs:?}");
            assert_eq!(world.fleet.rollouts().len(), 1, "{word:?} after {needs:?}");
            assert_eq!(phase(&world).is_open(), word == pause(), "{needs:?}");
        }
    }
}

#[test]
fn a_way_back_is_planned_kept_and_begun_and_what_it_takes_back_is_kept() {
    let (mut world, mut hands, mut executor) = failed();
    let write = to_commit(hands.look(&world, &mut executor, Got::Nothing));
    assert_eq!(hands.asked, ["plan", "newest", "view", "plan", "plan", "keep"]);
    assert!(matches!(write.what, Written::Back { .. }), "{:?}", write.what);
    // Nobody has said anything: it begins. Then what became of the one before is kept, before anybody is granted anything.
    hands.asked.clear();
    let wrote = commit(&mut world, &write.txn);
    let write = to_commit(hands.look(&world, &mut executor, Got::Wrote(wrote)));
    assert_eq!(hands.asked, ["view", "plan", "keep outcome"]);
    assert!(matches!(write.what, Written::Outcome { .. }), "{:?}", write.what);
    let wrote = commit(&mut world, &write.txn);
    assert_eq!(record(&world, 1).outcome.as_deref(), Some("outcome-1"));
    assert!(matches!(hands.finish(&mut world, &mut executor, Got::Wrote(wrote)), Looked::Waits(_)));
    assert_eq!(granted(&world).len(), 1);
    assert_eq!(record(&world, 2).by, "muster");
}

#[test]
fn a_way_back_is_found_without_the_old_plan() {
    let (mut world, mut hands, mut executor) = failed();
    let next = world.see(|sight| executor.next(sight, Got::Nothing));
    let Next::Needs(need) = next else { panic!("{next:?}") };
    let mut got = hands.bring(&world, need);
    // It was read for the step, and is gone when the way back is planned.
    while hands.asked.len() < 4 {
        let next = world.see(|sight| executor.next(sight, got));
        let Next::Needs(need) = next else { panic!("{next:?}") };
        got = hands.bring(&world, need);
    }
    hands.blobs.clear();
    let write = to_commit(hands.look(&world, &mut executor, got));
    assert_eq!(hands.asked, ["plan", "newest", "view", "plan", "plan", "way", "keep"]);
    assert!(matches!(write.what, Written::Back { .. }), "{:?}", write.what);
    assert_eq!(commit(&mut world, &write.txn), Wrote::Committed(world.fleet.revision));
}

#[test]
fn what_became_of_a_rollout_is_kept_by_whoever_comes_next() {
    // The server dies before it is kept; once it is kept; and once that is written, without hearing of it.
    for lives in 0..3 {
        let (mut world, mut hands) = begun();
        complete(&mut world, &mut hands, &mut Executor::default());
        // The look that completed it has kept it: as if it had not.
        let mut ended = record(&world, 1);
        ended.outcome = None;
        world.put_json(world.keys.rollout(ended.id), &ended);
        hands.outcomes = 0;
        let mut first = Executor::default();
        let mut next = world.see(|sight| first.next(sight, Got::Nothing));
        for _ in 0..lives {
            let Next::Needs(need) = next else { panic!("{next:?}") };
            let got = hands.bring(&world, need);
            next = world.see(|sight| first.next(sight, got));
        }
        if let Next::Commit(write) = next {
            world.commit(&write.txn).unwrap();
        }
        assert_eq!(hands.look_once(&mut world, &mut Executor::default()), Looked::Quiet);
        let kept = format!("outcome-{}", hands.outcomes);
        assert_eq!(record(&world, 1).outcome, Some(kept), "{lives}");
        hands.asked.clear();
        assert_eq!(hands.look_once(&mut world, &mut Executor::default()), Looked::Quiet);
        assert!(hands.asked.is_empty(), "it is kept once");
    }
}

#[test]
fn nothing_waits_for_an_outcome_that_cannot_be_kept() {
    let (mut world, mut hands) = begun();
    complete(&mut world, &mut hands, &mut Executor::default());
    let mut ended = record(&world, 1);
    ended.outcome = None;
    world.put_json(world.keys.rollout(ended.id), &ended);
    let mut executor = Executor::default();
    hands.is_full = true;
    let later = world.now + SignedDuration::from_mins(1);
    assert_eq!(hands.look_once(&mut world, &mut executor), Looked::Waits(Some(later)), "there may be room by then");
    hands.is_full = false;
    let write = to_commit(hands.look(&world, &mut executor, Got::Nothing));
    assert!(matches!(write.what, Written::Outcome { .. }));
    let looked = hands.finish(&mut world, &mut executor, Got::Wrote(Wrote::Unwritable("too big".into())));
    assert_eq!(looked, Looked::Quiet, "it is not tried for ever");
    to_commit(hands.look(&world, &mut executor, Got::Nothing));
    let looked = hands.finish(&mut world, &mut executor, Got::Wrote(Wrote::Unknown));
    assert_eq!(looked, Looked::Failed, "it is tried again");
}

#[test]
fn whoever_lost_the_controller_does_nothing_more() {
    let (mut world, mut hands) = begun();
    let mut executor = Executor::default();
    let write = to_commit(hands.look(&world, &mut executor, Got::Nothing));
    assert_eq!(grants(&write).len(), 1);
    let looked = hands.finish(&mut world, &mut executor, Got::Wrote(Wrote::Deposed));
    assert_eq!(looked, Looked::Quiet);
    assert!(granted(&world).is_empty());
}

#[test]
fn a_grant_of_which_nobody_knows_is_made_once() {
    for carried_out in [true, false] {
        let (mut world, mut hands) = begun();
        let mut executor = Executor::default();
        let write = to_commit(hands.look(&world, &mut executor, Got::Nothing));
        if carried_out {
            world.commit(&write.txn).unwrap();
        }
        let looked = hands.finish(&mut world, &mut executor, Got::Wrote(Wrote::Unknown));
        assert_eq!(looked, Looked::Failed);
        // The next look sees what became of it; what was held up on its way comes too late.
        assert!(matches!(hands.look_once(&mut world, &mut executor), Looked::Waits(_)));
        assert_eq!(granted(&world), grants(&write));
        assert_eq!(record(&world, 1).grants, 1);
        assert!(world.commit(&write.txn).is_err());
    }
}

#[test]
fn a_decision_that_was_outrun_is_made_anew() {
    let (mut world, mut hands) = begun();
    let mut executor = Executor::default();
    let write = to_commit(hands.look(&world, &mut executor, Got::Nothing));
    say(&mut world, &pause());
    let wrote = commit(&mut world, &write.txn);
    assert_eq!(wrote, Wrote::Refused(world.fleet.revision));
    assert_eq!(hands.finish(&mut world, &mut executor, Got::Wrote(wrote)), Looked::Quiet);
    assert!(granted(&world).is_empty(), "a pause is a pause");
}

#[test]
fn a_record_that_no_store_takes_stops_its_rollout() {
    let (mut world, mut hands) = begun();
    let mut executor = Executor::default();
    to_commit(hands.look(&world, &mut executor, Got::Nothing));
    let write = to_commit(hands.look(&world, &mut executor, Got::Wrote(Wrote::Unwritable("too big".into()))));
    let Written::Step { change, .. } = &write.what else { panic!("{:?}", write.what) };
    assert!(
        matches!(&change.record.phase, RolloutPhase::Paused { why: PauseReason::Blocked { .. } }),
        "{:?}",
        change.record.phase
    );
    // If not even that can be written, it is tried again later, and not at once for ever.
    let looked = hands.finish(&mut world, &mut executor, Got::Wrote(Wrote::Unwritable("too big".into())));
    assert_eq!(looked, Looked::Failed);
}

#[test]
fn whoever_brings_something_else_is_of_a_look_that_was_given_up() {
    let (world, _) = begun();
    let mut executor = Executor::default();
    let next = world.see(|sight| executor.next(sight, Got::Viewed));
    assert!(matches!(next, Next::Done(Looked::Failed)), "{next:?}");
}

/// A strategy whose waves end with a question.
fn gated() -> (World, Hands, Executor) {
    let check = GateCheck {
        name: "front door".into(),
        kind: GateCheckKind::Command(vec!["true".into()]),
        timeout: GateCheck::TIMEOUT,
        retries: 0,
        every: GateCheck::EVERY,
    };
    let gate = Gate { validated: true, checks: vec![check] };
    let (mut world, mut hands) = begun_with(Strategy { gate, ..strategy() });
    let mut executor = Executor::default();
    while executor.asks().is_none() {
        hands.look_once(&mut world, &mut executor);
        for node in granted(&world) {
            world.answers(&node, Ended::Validated);
        }
    }
    (world, hands, executor)
}

#[test]
fn a_gate_is_asked_once_and_its_answer_is_kept_until_it_is_in_the_store() {
    let (mut world, mut hands, mut executor) = gated();
    let question = executor.asks().unwrap().clone();
    assert_eq!((question.place, question.wave, question.to.as_str()), (0, 1, "v2"));
    hands.look_once(&mut world, &mut executor);
    assert_eq!(executor.asks(), Some(&question), "it is the same question");
    let verdict = GateVerdict::Passed { at: world.now };
    assert!(executor.answered(question.clone(), verdict.clone()));
    assert!(executor.asks().is_none());
    let write = to_commit(hands.look(&world, &mut executor, Got::Nothing));
    let Written::Step { change, .. } = &write.what else { panic!("{:?}", write.what) };
    assert_eq!(change.record.waves[0].gate, Some(verdict.clone()));
    // It was not written: nobody is asked again.
    assert_eq!(hands.finish(&mut world, &mut executor, Got::Wrote(Wrote::Unknown)), Looked::Failed);
    assert!(executor.asks().is_none());
    assert_eq!(hands.look_once(&mut world, &mut executor), Looked::Quiet);
    assert_eq!(phase(&world), RolloutPhase::Completed);
    assert!(!executor.answered(question, verdict), "nobody wants to know any more");
}

#[test]
fn an_answer_to_another_question_is_no_answer() {
    let (mut world, mut hands, mut executor) = gated();
    let question = executor.asks().unwrap().clone();
    // The wave is whole no longer, and then again.
    let node = granted(&world).pop().unwrap();
    world.pass(SignedDuration::from_secs(5));
    world.silent(&node, SignedDuration::from_mins(2));
    hands.look_once(&mut world, &mut executor);
    assert!(executor.asks().is_none(), "who is silent cannot be well");
    world.connected(&node);
    hands.look_once(&mut world, &mut executor);
    let again = executor.asks().unwrap().clone();
    assert_ne!(again, question);
    let verdict = GateVerdict::Passed { at: world.now };
    assert!(!executor.answered(question, verdict.clone()));
    assert!(executor.answered(again, verdict));
    // Whoever stops the rollout stops asking.
    let (mut world, mut hands, mut executor) = gated();
    say(&mut world, &pause());
    assert_eq!(hands.look_once(&mut world, &mut executor), Looked::Quiet);
    assert!(executor.asks().is_none());
}
