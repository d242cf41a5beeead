//! Predictions compared with results worked out by hand, with the engine itself, and with a naive simulation.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use muster_core::names::NodeName;
use muster_core::report::reason::RunReason;
use muster_core::rollout::plan::{Budgets, PlannedNode, PlannedWave, RoleBudget, RolloutPlan};
use muster_core::rollout::record::RolloutPhase;
use muster_core::rollout::strategy::{Amount, PerLabel, Promote, Strategy};
use proptest::prelude::*;

use super::{DEFAULT_NODE_TIME, minimum_duration};
use crate::plan::{Request, plan};
use crate::start::{StartOptions, start};
use crate::step::{IndexedPlan, KeptSurvey, Step, step};
use crate::testing::{FakeFleet, RunEnd, after, node, request, role};

const NODE: SignedDuration = SignedDuration::from_secs(10);

/// One wave, a budget for each role, no ramp, no soak.
fn simple(budget: u32) -> Strategy {
    Strategy::one_wave(Amount::Nodes(budget))
}

fn planned(world: &FakeFleet, strategy: Strategy) -> RolloutPlan {
    world.with_input(|input| plan(input, &request("v2", strategy))).unwrap()
}

/// In seconds, with ten for each node.
fn takes(world: &FakeFleet, strategy: Strategy) -> i64 {
    minimum_duration(&planned(world, strategy), NODE).as_secs()
}

#[test]
fn budget_limits_parallel_nodes() {
    let world = FakeFleet::with_roles(&[("web", 5, "a")]);
    assert_eq!(takes(&world, simple(1)), 50);
    assert_eq!(takes(&world, simple(2)), 30);
    assert_eq!(takes(&world, simple(5)), 10);
    assert_eq!(takes(&world, simple(500)), 10);
}

#[test]
fn soaking_node_keeps_its_slot() {
    let world = FakeFleet::with_roles(&[("web", 5, "a")]);
    assert_eq!(takes(&world, Strategy { soak: SignedDuration::from_secs(2), ..simple(2) }), 36);
}

#[test]
fn ramp_doubles_the_grants() {
    let ramp = |budget| Strategy { ramp: true, ..simple(budget) };
    assert_eq!(takes(&FakeFleet::with_roles(&[("web", 7, "a")]), ramp(100)), 30, "1, 2, 4");
    assert_eq!(takes(&FakeFleet::with_roles(&[("web", 8, "a")]), ramp(100)), 40, "1, 2, 4, 1");
    assert_eq!(takes(&FakeFleet::with_roles(&[("web", 10, "a")]), ramp(3)), 50, "1, 2, 3, 3, 1");
}

#[test]
fn roles_are_parallel_and_stages_sequential() {
    let world = FakeFleet::with_roles(&[("db", 2, "a"), ("web", 3, "a")]);
    assert_eq!(takes(&world, simple(1)), 30);
    let staged = Request { after: after(&[("web", "db")]), ..request("v2", simple(1)) };
    let plan = world.with_input(|input| plan(input, &staged)).unwrap();
    assert_eq!(minimum_duration(&plan, NODE).as_secs(), 50);
}

#[test]
fn domain_budget_limits_too() {
    let per = |budget, count| {
        let mut strategy = simple(budget);
        strategy.max_unavailable.per = Some(PerLabel { label: "failure_domain".into(), count });
        strategy
    };
    let world = FakeFleet::with_roles(&[("web", 6, "a b c")]);
    assert_eq!(takes(&world, per(6, 1)), 20, "three domains at a time");
    assert_eq!(takes(&world, per(2, 1)), 30, "two nodes of the role at a time");
    // Both roles have all of their nodes in one domain: they share its one slot.
    assert_eq!(takes(&FakeFleet::with_roles(&[("db", 2, "a"), ("web", 3, "a")]), per(1, 1)), 50);
    assert_eq!(takes(&FakeFleet::with_roles(&[("db", 2, "a"), ("web", 3, "b")]), per(1, 1)), 30);
    // Four in a and one in b: the large domain starts, and b goes beside it.
    assert_eq!(takes(&FakeFleet::with_roles(&[("web", 5, "a b a a a")]), per(5, 1)), 40);
}

#[test]
fn wave_times_and_soaks_add_up() {
    // 1, then 1 (a tenth of 12 is 2), then 4, then 6; soaks of 5, 1 and 1 minutes, and none after the last.
    let world = FakeFleet::with_roles(&[("web", 12, "a")]);
    let strategy = Strategy { soak: SignedDuration::ZERO, ..Strategy::default() };
    assert_eq!(takes(&world, strategy), 120 + 7 * 60);
}

#[test]
fn repair_uses_budget_and_needs_no_slot() {
    let mut world = FakeFleet::with_roles(&[("web", 3, "a")]);
    world.answers("web1", RunEnd::Failed(RunReason::NotCompiled));
    assert_eq!(takes(&world, simple(1)), 30, "the repair, then the others one by one");
    assert_eq!(takes(&world, simple(2)), 20, "the repair beside one of the others");
    world.answers("web2", RunEnd::Failed(RunReason::NotCompiled));
    assert_eq!(takes(&world, simple(1)), 20, "both repairs, then the other");
}

#[test]
fn at_once_takes_one_node_time() {
    let world = FakeFleet::with_roles(&[("web", 100, "a")]);
    let at_once = Request { at_once: true, ..request("v2", Strategy::default()) };
    let plan = world.with_input(|input| plan(input, &at_once)).unwrap();
    assert_eq!(minimum_duration(&plan, NODE), NODE);
    let none = RolloutPlan { waves: Vec::new(), ..plan };
    assert_eq!(minimum_duration(&none, NODE), SignedDuration::ZERO);
}

#[test]
fn node_time_is_the_median_of_recent_runs() {
    let mut world = FakeFleet::with_roles(&[("web", 5, "a")]);
    for (name, seconds) in [("web1", 30), ("web2", 300), ("web3", 40)] {
        world.run_time = SignedDuration::from_secs(seconds);
        world.answers(name, RunEnd::Validated);
    }
    // Failed runs, and runs without validation, do not count.
    world.run_time = SignedDuration::from_secs(1);
    world.answers("web4", RunEnd::Failed(RunReason::NotCompiled));
    world.answers("web5", RunEnd::Configured);
    let predicted = planned(&world, simple(1)).predicted;
    assert_eq!((predicted.node.as_secs(), predicted.measured), (40, true));

    // A node without a machine is not waited for.
    world.node("web6", "web", "a", &[]);
    world.unmade("web6");
    let plan = planned(&world, simple(1));
    assert_eq!((plan.node_count(), plan.predicted.total), (6, predicted.total));

    let mut unknown = FakeFleet::new();
    unknown.choose("v1");
    unknown.node("web1", "web", "a", &[]);
    let predicted = planned(&unknown, simple(1)).predicted;
    assert_eq!((predicted.node, predicted.measured, predicted.total), (DEFAULT_NODE_TIME, false, DEFAULT_NODE_TIME));
}

#[test]
fn five_thousand_nodes_are_simulated() {
    let racks: Vec<String> = (0..200).map(|rack| format!("rack{rack}")).collect();
    let world = FakeFleet::with_roles(&[("web", 5_000, &racks.join(" "))]);
    let mut strategy = simple(1);
    strategy.max_unavailable.per = Some(PerLabel { label: "failure_domain".into(), count: 1 });
    assert_eq!(takes(&world, strategy.clone()), 50_000);
    strategy.max_unavailable.default = Amount::Nodes(200);
    assert_eq!(takes(&world, strategy), 250);
}

/// Carries a plan out with the engine: each node validates ten seconds after its grant.
fn carried_out(world: &mut FakeFleet, plan: &RolloutPlan) -> SignedDuration {
    let starting = StartOptions { request: "r".into(), by: "ann".into(), supersede: false };
    let started = world.with_input(|input| start(input, plan, "sha256:plan", starting)).unwrap();
    world.commit(&started.txn.unwrap()).unwrap();
    let (indexed, began, mut survey) = (IndexedPlan::new(plan.clone()), world.now, KeptSurvey::checked());
    let mut answers: BTreeMap<Timestamp, Vec<NodeName>> = BTreeMap::new();
    loop {
        let (record, at) = world.fleet.active_rollout_record().map(|(record, at)| (record.clone(), at)).unwrap();
        let Step { change, recheck, .. } = world.with_input(|input| step(&mut survey, &indexed, &record, input));
        if let Some(change) = change {
            world.commit(&change.txn(&world.fleet, at).unwrap()).unwrap();
            for grant in change.grants {
                answers.entry(world.now + NODE).or_default().push(grant.node);
            }
            continue;
        }
        if record.phase == RolloutPhase::Completed {
            return world.now.duration_since(began);
        }
        world.now = answers.keys().next().copied().into_iter().chain(recheck).min().expect("something is to come");
        for name in answers.remove(&world.now).unwrap_or_default() {
            world.answers(name.as_str(), RunEnd::Validated);
        }
    }
}

#[test]
fn engine_takes_the_predicted_time() {
    let mut racks = Strategy::default();
    racks.max_unavailable.default = Amount::Percent(30);
    racks.max_unavailable.per = Some(PerLabel { label: "failure_domain".into(), count: 2 });
    let steep = Strategy { ramp: false, soak: SignedDuration::ZERO, ..racks.clone() };
    for strategy in [simple(1), simple(7), Strategy::default(), racks, steep] {
        for order in [after(&[]), after(&[("web", "db"), ("lb", "web")])] {
            let mut world = FakeFleet::with_roles(&[("db", 7, "a b c"), ("lb", 2, "a"), ("web", 40, "a b c d")]);
            world.answers("web3", RunEnd::Failed(RunReason::NotCompiled));
            let request = Request { after: order, ..request("v2", strategy.clone()) };
            let plan = world.with_input(|input| plan(input, &request)).unwrap();
            assert_eq!(carried_out(&mut world, &plan), minimum_duration(&plan, NODE), "{strategy:?}");
        }
    }
}

/// A naive simulation of a wave: always grants the first node in order that the budgets allow.
fn by_hand(plan: &RolloutPlan, wave: &PlannedWave) -> i64 {
    let mut waiting: Vec<&PlannedNode> = wave.nodes.iter().collect();
    let mut in_flight: Vec<(i64, &PlannedNode)> = Vec::new();
    let (mut now, mut healthy) = (0, 0);
    loop {
        while !plan.strategy.ramp || in_flight.len() <= healthy {
            let down = |counts: &dyn Fn(&PlannedNode) -> bool| {
                let broken = waiting.iter().filter(|planned| planned.repair && counts(planned)).count();
                broken + in_flight.iter().filter(|(_, planned)| counts(planned)).count()
            };
            let fits = |planned: &&PlannedNode| {
                let role_has = plan.budgets.roles[&planned.role].max_unavailable as usize;
                let domain_has = planned.domain.as_ref().map_or(usize::MAX, |d| plan.budgets.domains[d] as usize);
                planned.repair
                    || (down(&|other| other.role == planned.role) < role_has
                        && (planned.domain.is_none() || down(&|other| other.domain == planned.domain) < domain_has))
            };
            let Some(next) = waiting.iter().position(fits) else { break };
            in_flight.push((now + 10, waiting.remove(next)));
        }
        let Some(then) = in_flight.iter().map(|(then, _)| *then).min() else { return now };
        now = then;
        let before = in_flight.len();
        in_flight.retain(|(then, _)| *then != now);
        healthy += before - in_flight.len();
    }
}

proptest! {
    #[test]
    fn prediction_matches_naive_simulation(
        nodes in prop::collection::vec((0..3usize, prop::option::of(0..4usize), prop::bool::weighted(0.1)), 1..40),
        roles in prop::collection::vec(1..5u32, 3),
        domains in prop::collection::vec(1..4u32, 4),
        ramp: bool,
    ) {
        let names = ["db", "web", "lb"];
        let mut nodes: Vec<PlannedNode> = nodes.into_iter().enumerate().map(|(index, (at, domain, repair))| PlannedNode {
            node: node(&format!("{}{}", names[at], index + 1)),
            role: role(names[at]),
            domain: domain.map(|domain| domain.to_string()),
            repair,
        }).collect();
        nodes.sort_by_key(|planned| !planned.repair);
        let budget = |(at, most): (usize, &u32)| (role(names[at]), RoleBudget { nodes: 40, max_unavailable: *most });
        let world = FakeFleet::with_roles(&[("web", 1, "a")]);
        let wave = PlannedWave { stage: 1, wave: 1, canary: true, nodes, soak: SignedDuration::ZERO, promote: Promote::Auto };
        let plan = RolloutPlan {
            budgets: Budgets {
                roles: roles.iter().enumerate().map(budget).collect(),
                domains: domains.iter().enumerate().map(|(domain, most)| (domain.to_string(), *most)).collect(),
            },
            waves: vec![wave.clone()],
            ..planned(&world, Strategy { ramp, ..simple(1) })
        };
        prop_assert_eq!(minimum_duration(&plan, NODE).as_secs(), by_hand(&plan, &wave));
    }
}
