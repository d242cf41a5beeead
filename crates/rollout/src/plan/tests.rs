use insta::assert_snapshot;
use jiff::SignedDuration;
use muster_core::report::reason::RunReason;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::strategy::{
    Amount, GateCheck, GateCheckKind, MaxUnavailable, PerLabel, Promote, Reach, Strategy, Wave, Window,
};

use super::{Request, plan};
use crate::testing::{Ended, World, after, request, role, story, version};

mod laws;
mod refusals;

fn planned(world: &World, request: &Request) -> RolloutPlan {
    world.see(|sight| plan(sight, request)).unwrap()
}

fn waves(reaches: &[Reach]) -> Strategy {
    let wave = |reach: &Reach| Wave { reach: *reach, soak: None, promote: Promote::Auto };
    Strategy { waves: reaches.iter().map(wave).collect(), ..Strategy::default() }
}

#[test]
fn one_node_then_a_tenth_then_a_half_then_all() {
    let world = World::of(&[("web", 12, "a b c")]);
    assert_snapshot!(story(&planned(&world, &request("v2", Strategy::default()))));
}

#[test]
fn stages_follow_the_order_of_the_roles_and_each_goes_through_the_waves() {
    let world = World::of(&[("db", 2, "a b"), ("web", 4, "a b"), ("cache", 3, "a b"), ("lb", 1, "a")]);
    let strategy = waves(&[Reach::Nodes(2), Reach::Percent(50), Reach::Percent(100)]);
    let order = after(&[("web", "db cache"), ("lb", "web"), ("log", "lb")]);
    assert_snapshot!(story(&planned(&world, &Request { after: order, ..request("v2", strategy) })));
}

#[test]
fn a_wave_that_a_small_role_leaves_out_still_asks_and_soaks() {
    let world = World::of(&[("db", 2, "a b"), ("web", 3, "a b")]);
    let mut strategy = Strategy::default();
    strategy.waves[1] =
        Wave { reach: Reach::Percent(10), soak: Some(SignedDuration::from_hours(1)), promote: Promote::Manual };
    let order = after(&[("web", "db")]);
    assert_snapshot!(story(&planned(&world, &Request { after: order, ..request("v2", strategy) })));
}

#[test]
fn the_last_wave_waits_as_long_as_those_that_it_stands_for() {
    let world = World::of(&[("web", 1, "a")]);
    let soaks = |second: Option<SignedDuration>| {
        let waves = vec![
            Wave { reach: Reach::Nodes(1), soak: None, promote: Promote::Auto },
            Wave { reach: Reach::Percent(100), soak: second, promote: Promote::Auto },
        ];
        let strategy = Strategy { waves, ..Strategy::default() };
        planned(&world, &request("v2", strategy)).waves.iter().map(|wave| wave.soak).collect::<Vec<_>>()
    };
    assert_eq!(soaks(Some(SignedDuration::from_hours(1))), [SignedDuration::from_hours(1)]);
    assert_eq!(soaks(None), [SignedDuration::ZERO], "nothing comes after it");
}

#[test]
fn what_is_not_well_is_listed_and_repaired_first_or_waited_for_last() {
    let mut world = World::of(&[("web", 12, "a b c")]);
    world.answers("web1", Ended::Failed(RunReason::ResourcesFailed { count: 2 }));
    world.answers("web2", Ended::Invalid(RunReason::ChecksFailed { names: vec!["front door".into()] }));
    world.silent("web3", SignedDuration::from_mins(5));
    world.silent("web4", SignedDuration::from_secs(29));
    world.answers("web5", Ended::Failed(RunReason::NotCompiled));
    world.pause("web5");
    world.pause("web6");
    world.reboots("web7");
    world.leaves("web8");
    world.node("web13", "web", "a", &[]);
    world.unmade("web13");
    assert_snapshot!(story(&planned(&world, &request("v2", Strategy::default()))));
}

#[test]
fn who_runs_the_target_already_is_left_alone() {
    let mut world = World::of(&[("web", 8, "a b")]);
    world.active(1, "v1", "v2");
    for node in ["web1", "web2", "web3", "web4"] {
        world.grant(node, "v2", 1);
    }
    world.answers("web1", Ended::Validated);
    world.answers("web2", Ended::Validated);
    world.silent("web2", SignedDuration::from_hours(1));
    world.answers("web3", Ended::Failed(RunReason::NotCompiled));
    assert_snapshot!(story(&planned(&world, &request("v2", Strategy::default()))));
}

#[test]
fn going_back_concerns_those_who_went_and_is_one_wave_for_each_stage() {
    let mut world = World::of(&[("db", 2, "a b"), ("web", 6, "a b")]);
    world.answers("web6", Ended::Failed(RunReason::NotCompiled));
    world.active(1, "v1", "v2");
    for node in ["db1", "db2", "web1", "web2"] {
        world.grant(node, "v2", 1);
        world.answers(node, Ended::Validated);
    }
    world.grant("web3", "v2", 1);
    world.answers("web3", Ended::Failed(RunReason::NotCompiled));
    let back = Request {
        after: after(&[("web", "db")]),
        allow_older: true,
        rolls_back: Some(RolloutId(1)),
        ..request("v1", Strategy::default())
    };
    assert_snapshot!(story(&planned(&world, &back)));
}

#[test]
fn a_fleet_that_was_left_half_way_comes_from_where_most_of_it_is() {
    let mut world = World::of(&[("web", 3, "a")]);
    world.active(1, "v1", "v3");
    world.grant("web1", "v3", 1);
    world.answers("web1", Ended::Validated);
    let back = Request { allow_older: true, ..request("v2", Strategy::default()) };
    assert_eq!(planned(&world, &back).from, Some(version("v1")), "the environment's version is v3 already");
}

#[test]
fn going_back_waits_for_no_window_and_no_check_and_no_node_keeps_another_from_it() {
    let mut world = World::of(&[("web", 2, "a")]);
    world.active(1, "v1", "v2");
    world.grant("web1", "v2", 1);
    world.answers("web1", Ended::Failed(RunReason::NotCompiled));
    let mut strategy = Strategy::default();
    let (from, to) = (jiff::civil::time(22, 0, 0, 0), jiff::civil::time(4, 0, 0, 0));
    strategy.windows = vec![Window { days: vec![1], from, to, tz: "UTC".into() }];
    strategy.gate.checks = vec![GateCheck {
        name: "door".into(),
        kind: GateCheckKind::Command(vec!["/bin/true".into()]),
        timeout: GateCheck::TIMEOUT,
        retries: GateCheck::RETRIES,
        every: GateCheck::EVERY,
    }];
    let back = Request { allow_older: true, rolls_back: Some(RolloutId(1)), ..request("v1", strategy.clone()) };
    let plan = planned(&world, &back);
    assert_eq!((plan.strategy.windows.len(), plan.strategy.gate.checks.len()), (0, 0));
    assert_eq!(plan.strategy.failures.total.of(2), 2);
    assert_eq!(plan.strategy.max_unavailable, strategy.max_unavailable);
}

#[test]
fn a_rack_is_never_taken_twice_in_a_row() {
    let mut world = World::new();
    world.choose("v1");
    for (number, rack) in ["x", "x", "x", "y", "y", "z", "z", ""].iter().enumerate() {
        let labels = [("rack", *rack)];
        let name = format!("web{}", number + 1);
        world.node(&name, "web", "a", if rack.is_empty() { &[] } else { &labels });
        world.answers(&name, Ended::Validated);
    }
    let per = Some(PerLabel { label: "rack".into(), count: 1 });
    let roles = [(role("web"), Amount::Percent(50))].into();
    let max_unavailable = MaxUnavailable { default: Amount::Nodes(1), roles, per };
    let strategy = Strategy { max_unavailable, ..waves(&[Reach::Percent(100)]) };
    assert_snapshot!(story(&planned(&world, &request("v2", strategy))));
}

#[test]
fn the_first_version_goes_to_all_at_once() {
    let mut world = World::new();
    world.node("db1", "db", "a", &[]);
    world.node("web1", "web", "a", &[]);
    world.node("web2", "web", "b", &[]);
    world.silent("web2", SignedDuration::from_hours(1));
    let order = after(&[("web", "db")]);
    assert_snapshot!(story(&planned(&world, &Request { after: order, ..request("v1", Strategy::default()) })));
}

#[test]
fn a_fleet_that_is_there_has_nothing_to_do() {
    let world = World::of(&[("web", 2, "a")]);
    assert_snapshot!(story(&planned(&world, &request("v1", Strategy::default()))));
}

#[test]
fn a_share_of_a_role_is_one_of_what_it_has() {
    let mut world = World::of(&[("web", 10, "a")]);
    for number in 11..=20 {
        let name = format!("web{number}");
        world.node(&name, "web", "a", &[]);
        world.unmade(&name);
    }
    let max_unavailable = MaxUnavailable { default: Amount::Percent(20), ..MaxUnavailable::default() };
    let plan = planned(&world, &request("v2", Strategy { max_unavailable, ..Strategy::default() }));
    let budget = plan.budgets.roles[&role("web")];
    assert_eq!((budget.nodes, budget.max_unavailable), (20, 2), "a fifth of the ten that are there");
}

#[test]
fn five_thousand_nodes_are_planned() {
    let world = World::of(&[("db", 1_000, "a b c d"), ("web", 4_000, "a b c d")]);
    let order = after(&[("web", "db")]);
    let plan = planned(&world, &Request { after: order, ..request("v2", Strategy::default()) });
    assert_eq!((plan.node_count(), plan.waves.len()), (5_000, 8));
}
