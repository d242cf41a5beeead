//! Lengths that were worked out by hand, and the same game played by the engine itself, and by somebody who looks at every
//! node each time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use muster_core::names::NodeName;
use muster_core::report::reason::RunReason;
use muster_core::rollout::plan::{Budgets, PlannedNode, PlannedWave, RoleBudget, RolloutPlan};
use muster_core::rollout::record::RolloutPhase;
use muster_core::rollout::strategy::{Amount, PerLabel, Promote, Strategy};
use proptest::prelude::*;

use super::{GUESS, minimum};
use crate::plan::{Request, plan};
use crate::start::{Starting, start};
use crate::step::{Indexed, Step, step};
use crate::testing::{Ended, World, after, node, request, role};

const NODE: SignedDuration = SignedDuration::from_secs(10);

/// One wave, a budget for each role, no ramp, no soak.
fn simple(budget: u32) -> Strategy {
    Strategy::one_wave(Amount::Nodes(budget))
}

fn planned(world: &World, strategy: Strategy) -> RolloutPlan {
    world.see(|sight| plan(sight, &request("v2", strategy))).unwrap()
}

/// In seconds, with ten for each node.
fn takes(world: &World, strategy: Strategy) -> i64 {
    minimum(&planned(world, strategy), NODE).as_secs()
}

#[test]
fn as_many_at_a_time_as_the_budget_is_large() {
    let world = World::of(&[("web", 5, "a")]);
    assert_eq!(takes(&world, simple(1)), 50);
    assert_eq!(takes(&world, simple(2)), 30);
    assert_eq!(takes(&world, simple(5)), 10);
    assert_eq!(takes(&world, simple(500)), 10);
}

#[test]
fn a_node_keeps_its_slot_until_it_has_soaked() {
    let world = World::of(&[("web", 5, "a")]);
    assert_eq!(takes(&world, Strategy { soak: SignedDuration::from_secs(2), ..simple(2) }), 36);
}

#[test]
fn a_wave_begins_with_one_then_two_then_four() {
    let ramp = |budget| Strategy { ramp: true, ..simple(budget) };
    assert_eq!(takes(&World::of(&[("web", 7, "a")]), ramp(100)), 30, "1, 2, 4");
    assert_eq!(takes(&World::of(&[("web", 8, "a")]), ramp(100)), 40, "1, 2, 4, 1");
    assert_eq!(takes(&World::of(&[("web", 10, "a")]), ramp(3)), 50, "1, 2, 3, 3, 1");
}

#[test]
fn roles_go_side_by_side_and_stages_one_after_the_other() {
    let world = World::of(&[("db", 2, "a"), ("web", 3, "a")]);
    assert_eq!(takes(&world, simple(1)), 30);
    let staged = Request { after: after(&[("web", "db")]), ..request("v2", simple(1)) };
    let plan = world.see(|sight| plan(sight, &staged)).unwrap();
    assert_eq!(minimum(&plan, NODE).as_secs(), 50);
}

#[test]
fn a_domain_is_a_limit_beside_the_role() {
    let per = |budget, count| {
        let mut strategy = simple(budget);
        strategy.max_unavailable.per = Some(PerLabel { label: "failure_domain".into(), count });
        strategy
    };
    let world = World::of(&[("web", 6, "a b c")]);
    assert_eq!(takes(&world, per(6, 1)), 20, "three domains at a time");
    assert_eq!(takes(&world, per(2, 1)), 30, "two nodes of the role at a time");
    // Both roles have all of their nodes in one domain: they share its one slot.
    assert_eq!(takes(&World::of(&[("db", 2, "a"), ("web", 3, "a")]), per(1, 1)), 50);
    assert_eq!(takes(&World::of(&[("db", 2, "a"), ("web", 3, "b")]), per(1, 1)), 30);
    // Four in a and one in b: the large domain is begun with, and b goes beside it.
    assert_eq!(takes(&World::of(&[("web", 5, "a b a a a")]), per(5, 1)), 40);
}

#[test]
fn waves_and_their_soaks_add_up() {
    // 1, then 1 (a tenth of 12 are 2), then 4, then 6; soaks of 5 and 1 and 1 minutes, and none after the last.
    let world = World::of(&[("web", 12, "a")]);
    let strategy = Strategy { soak: SignedDuration::ZERO, ..Strategy::default() };
    assert_eq!(takes(&world, strategy), 120 + 7 * 60);
}

#[test]
fn what_is_repaired_uses_the_budget_up_and_costs_nothing() {
    let mut world = World::of(&[("web", 3, "a")]);
    world.answers("web1", Ended::Failed(RunReason::NotCompiled));
    assert_eq!(takes(&world, simple(1)), 30, "the repair, then the others one by one");
    assert_eq!(takes(&world, simple(2)), 20, "the repair beside one of the others");
    world.answers("web2", Ended::Failed(RunReason::NotCompiled));
    assert_eq!(takes(&world, simple(1)), 20, "both repairs, then the other");
}

#[test]
fn all_at_once_takes_as_long_as_one_and_nothing_takes_no_time() {
    let world = World::of(&[("web", 100, "a")]);
    let at_once = Request { at_once: true, ..request("v2", Strategy::default()) };
    let plan = world.see(|sight| plan(sight, &at_once)).unwrap();
    assert_eq!(minimum(&plan, NODE), NODE);
    let none = RolloutPlan { waves: Vec::new(), ..plan };
    assert_eq!(minimum(&none, NODE), SignedDuration::ZERO);
}

#[test]
fn how_long_a_node_takes_is_what_most_took_lately() {
    let mut world = World::of(&[("web", 5, "a")]);
    for (name, seconds) in [("web1", 30), ("web2", 300), ("web3", 40)] {
        world.run_time = SignedDuration::from_secs(seconds);
        world.answers(name, Ended::Validated);
    }
    // A run that failed says nothing, nor one that has not been validated.
    world.run_time = SignedDuration::from_secs(1);
    world.answers("web4", Ended::Failed(RunReason::NotCompiled));
    world.answers("web5", Ended::Configured);
    let predicted = planned(&world, simple(1)).predicted;
    assert_eq!((predicted.node.as_secs(), predicted.measured), (40, true));

    // Whose machine is still being made is not waited for.
    world.node("web6", "web", "a", &[]);
    world.unmade("web6");
    let plan = planned(&world, simple(1));
    assert_eq!((plan.node_count(), plan.predicted.total), (6, predicted.total));

    let mut unknown = World::new();
    unknown.choose("v1");
    unknown.node("web1", "web", "a", &[]);
    let predicted = planned(&unknown, simple(1)).predicted;
    assert_eq!((predicted.node, predicted.measured, predicted.total), (GUESS, false, GUESS));
}

#[test]
fn five_thousand_nodes_in_two_hundred_racks_are_played_through() {
    let racks: Vec<String> = (0..200).map(|rack| format!("rack{rack}")).collect();
    let world = World::of(&[("web", 5_000, &racks.join(" "))]);
    let mut strategy = simple(1);
    strategy.max_unavailable.per = Some(PerLabel { label: "failure_domain".into(), count: 1 });
    assert_eq!(takes(&world, strategy.clone()), 50_000);
    strategy.max_unavailable.default = Amount::Nodes(200);
    assert_eq!(takes(&world, strategy), 250);
}

/// Carries a plan out with the engine itself: each node is validated ten seconds after its grant.
fn carried_out(world: &mut World, plan: &RolloutPlan) -> SignedDuration {
    let starting = Starting { request: "r".into(), by: "ann".into(), supersede: false };
    let started = world.see(|sight| start(sight, plan, "sha256:plan", starting)).unwrap();
    world.commit(&started.txn.unwrap()).unwrap();
    let (indexed, began) = (Indexed::new(plan.clone()), world.now);
    let mut answers: BTreeMap<Timestamp, Vec<NodeName>> = BTreeMap::new();
    loop {
        let (record, at) = world.fleet.deciding_rollout().map(|(record, at)| (record.clone(), at)).unwrap();
        let Step { change, recheck, .. } = world.see(|sight| step(&indexed, &record, sight));
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
            world.answers(name.as_str(), Ended::Validated);
        }
    }
}

#[test]
fn the_engine_takes_as_long_as_was_predicted() {
    let mut racks = Strategy::default();
    racks.max_unavailable.default = Amount::Percent(30);
    racks.max_unavailable.per = Some(PerLabel { label: "failure_domain".into(), count: 2 });
    let steep = Strategy { ramp: false, soak: SignedDuration::ZERO, ..racks.clone() };
    for strategy in [simple(1), simple(7), Strategy::default(), racks, steep] {
        for order in [after(&[]), after(&[("web", "db"), ("lb", "web")])] {
            let mut world = World::of(&[("db", 7, "a b c"), ("lb", 2, "a"), ("web", 40, "a b c d")]);
            world.answers("web3", Ended::Failed(RunReason::NotCompiled));
            let request = Request { after: order, ..request("v2", strategy.clone()) };
            let plan = world.see(|sight| plan(sight, &request)).unwrap();
            assert_eq!(carried_out(&mut world, &plan), minimum(&plan, NODE), "{strategy:?}");
        }
    }
}

/// Plays a wave through as one would by hand: always the first in order whom the budgets let through.
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
    fn it_is_what_one_finds_by_hand(
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
        let world = World::of(&[("web", 1, "a")]);
        let wave = PlannedWave { stage: 1, wave: 1, canary: true, nodes, soak: SignedDuration::ZERO, promote: Promote::Auto };
        let plan = RolloutPlan {
            budgets: Budgets {
                roles: roles.iter().enumerate().map(budget).collect(),
                domains: domains.iter().enumerate().map(|(domain, most)| (domain.to_string(), *most)).collect(),
            },
            waves: vec![wave.clone()],
            ..planned(&world, Strategy { ramp, ..simple(1) })
        };
        prop_assert_eq!(minimum(&plan, NODE).as_secs(), by_hand(&plan, &wave));
    }
}
