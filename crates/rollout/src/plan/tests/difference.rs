use insta::assert_snapshot;
use jiff::SignedDuration;
use muster_core::report::reason::RunReason;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::strategy::{Amount, OnFailure, PerLabel, Strategy};

use crate::plan::difference::{PlanDifference, plan_differences};
use crate::plan::{Request, plan};
use crate::testing::{FakeFleet, RunEnd, after, request};

fn planned(world: &FakeFleet, request: &Request) -> RolloutPlan {
    world.with_input(|input| plan(input, request)).unwrap()
}

fn told(old: &RolloutPlan, new: &RolloutPlan) -> String {
    plan_differences(old, new).iter().map(PlanDifference::to_string).collect::<Vec<_>>().join("\n")
}

/// The differences of two plans, the second made after this change.
fn after_this(happens: impl FnOnce(&mut FakeFleet)) -> String {
    let mut world = FakeFleet::of(&[("db", 2, "a b"), ("web", 6, "a b")]);
    world.answers("web6", RunEnd::Failed(RunReason::NotCompiled));
    let mut strategy = Strategy::default();
    strategy.max_unavailable.default = Amount::Percent(34);
    strategy.max_unavailable.per = Some(PerLabel { label: "failure_domain".into(), count: 1 });
    let request = request("v2", strategy);
    let old = planned(&world, &request);
    happens(&mut world);
    told(&old, &planned(&world, &Request::of(&old)))
}

#[test]
fn passing_time_is_no_difference() {
    assert_snapshot!(after_this(|world| world.pass(SignedDuration::from_hours(24))), @"");
}

#[test]
fn reason_text_and_run_time_are_no_difference() {
    let told = after_this(|world| {
        world.run_time = SignedDuration::from_mins(3);
        world.answers("web6", RunEnd::Failed(RunReason::ResourcesFailed { count: 1 }));
        world.answers("web1", RunEnd::Validated);
    });
    assert_snapshot!(told, @"");
}

#[test]
fn changed_nodes_are_listed() {
    let told = after_this(|world| {
        world.node("web7", "web", "c", &[]);
        world.answers("web7", RunEnd::Validated);
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
fn changed_health_is_listed() {
    let told = after_this(|world| {
        world.answers("web6", RunEnd::Validated);
        world.answers("db1", RunEnd::Configured);
        world.silent("web5", SignedDuration::from_mins(1));
    });
    assert_snapshot!(told, @"
    db1 is configured now: configured; its validation has not been reported
    web5 is silent now: its agent is not connected
    web6 is healthy now; it was failed
    ");
    let told = after_this(|world| world.silent("web6", SignedDuration::from_mins(1)));
    assert_snapshot!(told, @"web6 is silent now, and no longer failed: its agent is not connected");
    let told = after_this(|world| world.pause("web6"));
    assert_snapshot!(told, @"web6 can no longer be repaired: the content could not be compiled; nothing was applied; node web6 is paused by ann: disk");
}

#[test]
fn concurrent_change_is_listed() {
    let told = after_this(|world| {
        world.active(1, "v1", "v2");
        world.grant("web1", "v2", 1);
        world.answers("web1", RunEnd::Validated);
    });
    assert_snapshot!(told, @"web1 runs the target already");
    assert_snapshot!(after_this(|world| world.release("v2", 9)), @"release v2 has other content now");
}

#[test]
fn changed_order_is_listed() {
    let mut world = FakeFleet::of(&[("web", 6, "a b c")]);
    let request = request("v2", Strategy::default());
    let old = planned(&world, &request);
    for number in 2..=6 {
        world.redesign(&format!("web{number}"), |record| record.failure_domain = "a".into());
    }
    let new = planned(&world, &request);
    assert_ne!(old.waves, new.waves);
    assert_snapshot!(told(&old, &new), @"nodes move in another order: the design has given them other roles or failure domains");
}

#[test]
fn empty_after_equals_a_missing_one() {
    let world = FakeFleet::of(&[("web", 2, "a")]);
    let ask = request("v2", Strategy::default());
    let silent = planned(&world, &ask);
    let spoken = planned(&world, &Request { after: after(&[("web", "")]), ..ask });
    assert_eq!(told(&silent, &spoken), "");
}

#[test]
fn changed_request_is_listed() {
    let world = FakeFleet::of(&[("db", 2, "a b"), ("web", 6, "a b")]);
    let old = planned(&world, &Request { after: after(&[("db", "")]), ..request("v2", Strategy::default()) });
    let mut strategy = Strategy { ramp: false, on_failure: OnFailure::Rollback, ..Strategy::default() };
    strategy.max_unavailable.default = Amount::Nodes(2);
    let other = Request { after: after(&[("web", "db")]), seed: 2, at_once: true, ..request("v3", strategy) };
    assert_snapshot!(told(&old, &planned(&world, &other)), @"
    the target is v3 now; it was v2
    all nodes move at once now
    the seed is 2 now; it was 1
    the strategy has changed: max_unavailable
    the strategy has changed: ramp
    the strategy has changed: on_failure
    role web comes after db now; it waited for no role
    2 of role db may be unavailable now; it was 1
    2 of role web may be unavailable now; it was 1
    ");
}
