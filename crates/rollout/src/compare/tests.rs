use insta::assert_snapshot;
use jiff::SignedDuration;
use muster_core::report::reason::RunReason;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::strategy::{Amount, OnFailure, PerLabel, Strategy};

use super::{Moved, moved};
use crate::plan::{Request, plan};
use crate::testing::{Ended, World, after, request};

fn planned(world: &World, request: &Request) -> RolloutPlan {
    world.see(|sight| plan(sight, request)).unwrap()
}

fn told(old: &RolloutPlan, new: &RolloutPlan) -> String {
    moved(old, new).iter().map(Moved::to_string).collect::<Vec<_>>().join("\n")
}

/// What somebody is told who has planned, and comes back after this.
fn after_this(happens: impl FnOnce(&mut World)) -> String {
    let mut world = World::of(&[("db", 2, "a b"), ("web", 6, "a b")]);
    world.answers("web6", Ended::Failed(RunReason::NotCompiled));
    let mut strategy = Strategy::default();
    strategy.max_unavailable.default = Amount::Percent(34);
    strategy.max_unavailable.per = Some(PerLabel { label: "failure_domain".into(), count: 1 });
    let request = request("v2", strategy);
    let old = planned(&world, &request);
    happens(&mut world);
    told(&old, &planned(&world, &Request::of(&old)))
}

#[test]
fn nothing_has_moved_while_only_time_passed() {
    assert_snapshot!(after_this(|world| world.pass(SignedDuration::from_hours(24))), @"");
}

#[test]
fn what_a_broken_node_says_and_how_long_runs_take_makes_no_difference() {
    let told = after_this(|world| {
        world.run_time = SignedDuration::from_mins(3);
        world.answers("web6", Ended::Failed(RunReason::ResourcesFailed { count: 1 }));
        world.answers("web1", Ended::Validated);
    });
    assert_snapshot!(told, @"");
}

#[test]
fn nodes_come_and_go_and_become_something_else() {
    let told = after_this(|world| {
        world.node("web7", "web", "c", &[]);
        world.answers("web7", Ended::Validated);
        world.leaves("web1");
        world.redesign("web2", |record| record.role = crate::testing::role("db"));
        world.redesign("web3", |record| record.failure_domain = "b".into());
    });
    assert_snapshot!(told, @r#"
    web1 has left
    web2 has the role db now; it was web
    web3 is in "b" now; it was in "a"
    web7 has joined
    1 of role web may be unavailable now; it was 2
    there are nodes in "c" now, and 1 may be unavailable
    "#);
}

#[test]
fn nodes_fall_ill_and_recover() {
    let told = after_this(|world| {
        world.answers("web6", Ended::Validated);
        world.answers("db1", Ended::Configured);
        world.silent("web5", SignedDuration::from_mins(1));
    });
    assert_snapshot!(told, @"
    db1 is configured now: configured; its validation has not been reported
    web5 is silent now: its agent is not connected
    web6 is well now; it was failed
    ");
    let told = after_this(|world| world.silent("web6", SignedDuration::from_mins(1)));
    assert_snapshot!(told, @"web6 is silent now, and no longer failed: its agent is not connected");
    let told = after_this(|world| world.pause("web6"));
    assert_snapshot!(told, @"web6 can no longer be repaired: the content could not be compiled; nothing was applied; node web6 is paused by ann: disk");
}

#[test]
fn somebody_else_was_faster() {
    let told = after_this(|world| {
        world.active(1, "v1", "v2");
        world.grant("web1", "v2", 1);
        world.answers("web1", Ended::Validated);
    });
    assert_snapshot!(told, @"web1 runs the target already");
    assert_snapshot!(after_this(|world| world.release("v2", 9)), @"release v2 is not the one that it was: its content is another");
}

#[test]
fn another_order_is_never_passed_over_in_silence() {
    let mut world = World::of(&[("web", 6, "a b c")]);
    let request = request("v2", Strategy::default());
    let old = planned(&world, &request);
    for number in 2..=6 {
        world.redesign(&format!("web{number}"), |record| record.failure_domain = "a".into());
    }
    let new = planned(&world, &request);
    assert_ne!(old.waves, new.waves);
    assert_snapshot!(told(&old, &new), @"nodes come in another order: the design has given them other roles or failure domains");
}

#[test]
fn a_role_that_comes_after_none_is_one_that_is_not_spoken_of() {
    let world = World::of(&[("web", 2, "a")]);
    let ask = request("v2", Strategy::default());
    let silent = planned(&world, &ask);
    let spoken = planned(&world, &Request { after: after(&[("web", "")]), ..ask });
    assert_eq!(told(&silent, &spoken), "");
}

#[test]
fn another_question_is_another_plan() {
    let world = World::of(&[("db", 2, "a b"), ("web", 6, "a b")]);
    let old = planned(&world, &Request { after: after(&[("db", "")]), ..request("v2", Strategy::default()) });
    let mut strategy = Strategy { ramp: false, on_failure: OnFailure::Rollback, ..Strategy::default() };
    strategy.max_unavailable.default = Amount::Nodes(2);
    let other = Request { after: after(&[("web", "db")]), seed: 2, at_once: true, ..request("v3", strategy) };
    assert_snapshot!(told(&old, &planned(&world, &other)), @"
    it goes to v3 now; it was v2
    all nodes go at once now
    the seed is 2 now; it was 1
    the strategy has changed: max_unavailable
    the strategy has changed: ramp
    the strategy has changed: on_failure
    role web comes after db now; it waited for nobody
    2 of role db may be unavailable now; it was 1
    2 of role web may be unavailable now; it was 1
    ");
}
