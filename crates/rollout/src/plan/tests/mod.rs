use insta::assert_snapshot;
use jiff::SignedDuration;
use muster_core::report::reason::RunReason;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::strategy::{
    Amount, GateCheck, GateCheckKind, MaxUnavailable, PerLabel, Promote, Reach, Strategy, Wave, Window,
};

use super::{Request, plan};
use crate::testing::{FakeFleet, RunEnd, after, describe_plan, request, role, version};

mod difference;
mod laws;
mod refusals;

fn planned(world: &FakeFleet, request: &Request) -> RolloutPlan {
    world.with_input(|input| plan(input, request)).unwrap()
}

fn waves(reaches: &[Reach]) -> Strategy {
    let wave = |reach: &Reach| Wave { reach: *reach, soak: None, promote: Promote::Auto };
    Strategy { waves: reaches.iter().map(wave).collect(), ..Strategy::default() }
}

#[test]
fn default_strategy_has_four_waves() {
    let world = FakeFleet::of(&[("web", 12, "a b c")]);
    assert_snapshot!(describe_plan(&planned(&world, &request("v2", Strategy::default()))));
}

#[test]
fn each_stage_has_all_waves() {
    let world = FakeFleet::of(&[("db", 2, "a b"), ("web", 4, "a b"), ("cache", 3, "a b"), ("lb", 1, "a")]);
    let strategy = waves(&[Reach::Nodes(2), Reach::Percent(50), Reach::Percent(100)]);
    let order = after(&[("web", "db cache"), ("lb", "web"), ("log", "lb")]);
    assert_snapshot!(describe_plan(&planned(&world, &Request { after: order, ..request("v2", strategy) })));
}

#[test]
fn empty_wave_passes_on_its_soak_and_promotion() {
    let world = FakeFleet::of(&[("db", 2, "a b"), ("web", 3, "a b")]);
    let mut strategy = Strategy::default();
    strategy.waves[1] =
        Wave { reach: Reach::Percent(10), soak: Some(SignedDuration::from_hours(1)), promote: Promote::Manual };
    let order = after(&[("web", "db")]);
    assert_snapshot!(describe_plan(&planned(&world, &Request { after: order, ..request("v2", strategy) })));
}

#[test]
fn last_wave_takes_the_longest_soak() {
    let world = FakeFleet::of(&[("web", 1, "a")]);
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
fn unhealthy_nodes_are_listed_and_placed() {
    let mut world = FakeFleet::of(&[("web", 12, "a b c")]);
    world.answers("web1", RunEnd::Failed(RunReason::ResourcesFailed { count: 2 }));
    world.answers("web2", RunEnd::Invalid(RunReason::ChecksFailed { names: vec!["front door".into()] }));
    world.silent("web3", SignedDuration::from_mins(5));
    world.silent("web4", SignedDuration::from_secs(29));
    world.answers("web5", RunEnd::Failed(RunReason::NotCompiled));
    world.pause("web5");
    world.pause("web6");
    world.reboots("web7");
    world.leaves("web8");
    world.node("web13", "web", "a", &[]);
    world.unmade("web13");
    assert_snapshot!(describe_plan(&planned(&world, &request("v2", Strategy::default()))));
}

#[test]
fn node_at_target_is_not_moved() {
    let mut world = FakeFleet::of(&[("web", 8, "a b")]);
    world.active(1, "v1", "v2");
    for node in ["web1", "web2", "web3", "web4"] {
        world.grant(node, "v2", 1);
    }
    world.answers("web1", RunEnd::Validated);
    world.answers("web2", RunEnd::Validated);
    world.silent("web2", SignedDuration::from_hours(1));
    world.answers("web3", RunEnd::Failed(RunReason::NotCompiled));
    assert_snapshot!(describe_plan(&planned(&world, &request("v2", Strategy::default()))));
}

#[test]
fn rollback_moves_granted_nodes_in_one_wave_per_stage() {
    let mut world = FakeFleet::of(&[("db", 2, "a b"), ("web", 6, "a b")]);
    world.answers("web6", RunEnd::Failed(RunReason::NotCompiled));
    world.active(1, "v1", "v2");
    for node in ["db1", "db2", "web1", "web2"] {
        world.grant(node, "v2", 1);
        world.answers(node, RunEnd::Validated);
    }
    world.grant("web3", "v2", 1);
    world.answers("web3", RunEnd::Failed(RunReason::NotCompiled));
    let back = Request {
        after: after(&[("web", "db")]),
        allow_older: true,
        rolls_back: Some(RolloutId(1)),
        ..request("v1", Strategy::default())
    };
    assert_snapshot!(describe_plan(&planned(&world, &back)));
}

#[test]
fn plan_after_abort_starts_from_the_base_version() {
    let mut world = FakeFleet::of(&[("web", 3, "a")]);
    world.active(1, "v1", "v3");
    world.grant("web1", "v3", 1);
    world.answers("web1", RunEnd::Validated);
    let back = Request { allow_older: true, ..request("v2", Strategy::default()) };
    assert_eq!(planned(&world, &back).from, Some(version("v1")), "the environment's version is v3 already");
}

#[test]
fn rollback_ignores_windows_gates_and_failures() {
    let mut world = FakeFleet::of(&[("web", 2, "a")]);
    world.active(1, "v1", "v2");
    world.grant("web1", "v2", 1);
    world.answers("web1", RunEnd::Failed(RunReason::NotCompiled));
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
    assert_eq!(plan.strategy.failures.total.count_of(2), 2);
    assert_eq!(plan.strategy.max_unavailable, strategy.max_unavailable);
}

#[test]
fn racks_take_turns() {
    let mut world = FakeFleet::new();
    world.choose("v1");
    for (number, rack) in ["x", "x", "x", "y", "y", "z", "z", ""].iter().enumerate() {
        let labels = [("rack", *rack)];
        let name = format!("web{}", number + 1);
        world.node(&name, "web", "a", if rack.is_empty() { &[] } else { &labels });
        world.answers(&name, RunEnd::Validated);
    }
    let per = Some(PerLabel { label: "rack".into(), count: 1 });
    let roles = [(role("web"), Amount::Percent(50))].into();
    let max_unavailable = MaxUnavailable { default: Amount::Nodes(1), roles, per };
    let strategy = Strategy { max_unavailable, ..waves(&[Reach::Percent(100)]) };
    assert_snapshot!(describe_plan(&planned(&world, &request("v2", strategy))));
}

#[test]
fn first_version_moves_all_at_once() {
    let mut world = FakeFleet::new();
    world.node("db1", "db", "a", &[]);
    world.node("web1", "web", "a", &[]);
    world.node("web2", "web", "b", &[]);
    world.silent("web2", SignedDuration::from_hours(1));
    let order = after(&[("web", "db")]);
    assert_snapshot!(describe_plan(&planned(&world, &Request { after: order, ..request("v1", Strategy::default()) })));
}

#[test]
fn fleet_at_target_has_no_waves() {
    let world = FakeFleet::of(&[("web", 2, "a")]);
    assert_snapshot!(describe_plan(&planned(&world, &request("v1", Strategy::default()))));
}

#[test]
fn percentage_counts_provisioned_nodes() {
    let mut world = FakeFleet::of(&[("web", 10, "a")]);
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
    let world = FakeFleet::of(&[("db", 1_000, "a b c d"), ("web", 4_000, "a b c d")]);
    let order = after(&[("web", "db")]);
    let plan = planned(&world, &Request { after: order, ..request("v2", Strategy::default()) });
    assert_eq!((plan.node_count(), plan.waves.len()), (5_000, 8));
}
