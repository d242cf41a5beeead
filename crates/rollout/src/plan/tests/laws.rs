//! Properties of every plan, over random fleets, strategies and orders.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use muster_core::names::{NodeName, Role};
use muster_core::report::reason::RunReason;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::strategy::{PerLabel, Promote, Reach, Strategy, Wave};
use proptest::prelude::*;
use proptest::strategy::Strategy as Any;

use crate::plan::difference::plan_differences;
use crate::plan::{Request, plan};
use crate::testing::{FakeFleet, RunEnd, after, request};

const ROLES: [&str; 4] = ["cache", "db", "lb", "web"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Well,
    AtTarget,
    Failed,
    Rebooted,
    Silent,
    Paused,
    Unmade,
    Leaving,
}

/// Nodes as (role, domain, kind).
fn world(nodes: &[(usize, usize, Kind)]) -> FakeFleet {
    let mut world = FakeFleet::with_roles(&[]);
    world.active(1, "v1", "v2");
    for (index, (role, domain, kind)) in nodes.iter().enumerate() {
        let name = format!("{}{}", ROLES[*role], index + 1);
        world.node(&name, ROLES[*role], ["a", "b", "c"][*domain], &[]);
        if *kind != Kind::Unmade {
            world.answers(&name, RunEnd::Validated);
        }
        match kind {
            Kind::Well => {}
            Kind::AtTarget => {
                world.grant(&name, "v2", 1);
                world.answers(&name, RunEnd::Validated);
            }
            Kind::Failed => world.answers(&name, RunEnd::Failed(RunReason::NotCompiled)),
            Kind::Rebooted => world.reboots(&name),
            Kind::Silent => world.silent(&name, SignedDuration::from_hours(1)),
            Kind::Paused => world.pause(&name),
            Kind::Unmade => world.unmade(&name),
            Kind::Leaving => world.leaves(&name),
        }
    }
    world
}

fn kinds() -> impl Any<Value = Kind> {
    prop_oneof![
        8 => Just(Kind::Well),
        1 => Just(Kind::AtTarget),
        1 => Just(Kind::Failed),
        1 => Just(Kind::Rebooted),
        1 => Just(Kind::Silent),
        1 => Just(Kind::Paused),
        1 => Just(Kind::Unmade),
        1 => Just(Kind::Leaving),
    ]
}

/// A fleet with at least one node that stays.
fn fleets() -> impl Any<Value = Vec<(usize, usize, Kind)>> {
    let nodes = prop::collection::vec((0..ROLES.len(), 0..3usize, kinds()), 0..40);
    nodes.prop_map(|mut nodes| {
        nodes.push((0, 0, Kind::Well));
        nodes
    })
}

/// Waves of growing reach, in nodes or percent, that end with all nodes.
fn strategies() -> impl Any<Value = Strategy> {
    let (nodes, percents) = (prop::collection::btree_set(1..8u32, 0..3), prop::collection::btree_set(1..100u8, 0..3));
    (nodes, percents, any::<bool>()).prop_map(|(nodes, percents, per)| {
        let reaches = nodes.into_iter().map(Reach::Nodes).chain(percents.into_iter().map(Reach::Percent));
        let wave = |reach| Wave { reach, soak: None, promote: Promote::Auto };
        let mut strategy =
            Strategy { waves: reaches.chain([Reach::Percent(100)]).map(wave).collect(), ..Strategy::default() };
        strategy.max_unavailable.per = per.then(|| PerLabel { label: "failure_domain".into(), count: 1 });
        strategy
    })
}

/// An order without a cycle: each role comes after roles that were named before it.
fn orders() -> impl Any<Value = BTreeMap<Role, BTreeSet<Role>>> {
    prop::collection::vec(0..16usize, ROLES.len()).prop_map(|choices| {
        let parents = |at: usize| {
            let chosen = ROLES.iter().take(at).enumerate().filter(|(parent, _)| choices[at] & (1 << parent) != 0);
            chosen.map(|(_, role)| *role).collect::<Vec<_>>().join(" ")
        };
        let named: Vec<String> = (0..ROLES.len()).map(parents).collect();
        after(&ROLES.iter().zip(&named).map(|(role, parents)| (*role, parents.as_str())).collect::<Vec<_>>())
    })
}

fn request_with(strategy: Strategy, after: BTreeMap<Role, BTreeSet<Role>>, seed: u64) -> Request {
    Request { after, seed, ..request("v2", strategy) }
}

/// Nodes per stage, wave and role, repaired or not, without their names.
fn shape(plan: &RolloutPlan) -> BTreeMap<(u32, u32, &Role, bool), usize> {
    let mut shape = BTreeMap::new();
    for wave in &plan.waves {
        for planned in &wave.nodes {
            *shape.entry((wave.stage, wave.wave, &planned.role, planned.repair)).or_default() += 1;
        }
    }
    shape
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn every_node_is_moved_once_or_at_target(
        nodes in fleets(), strategy in strategies(), order in orders(), seed: u64, back: bool,
    ) {
        let world = world(&nodes);
        let mut request = request_with(strategy, order, seed);
        if back {
            request.rolls_back = Some(RolloutId(1));
            request.allow_older = true;
        }
        let plan = world.with_input(|input| plan(input, &request)).unwrap();
        let moved: Vec<&NodeName> = plan.nodes().map(|planned| &planned.node).collect();
        let mut all: Vec<&NodeName> = moved.iter().copied().chain(&plan.already).collect();
        all.sort_unstable();
        prop_assert!(all.into_iter().eq(world.fleet.designed().map(|(name, _, _)| name)));
        prop_assert!(plan.waves.iter().all(|wave| !wave.nodes.is_empty()));
    }

    #[test]
    fn plan_is_deterministic_and_seed_only_reorders(
        nodes in fleets(), strategy in strategies(), order in orders(), seed: u64, other: u64,
    ) {
        let world = world(&nodes);
        let request = request_with(strategy, order, seed);
        let first = world.with_input(|input| plan(input, &request)).unwrap();
        let again = world.with_input(|input| plan(input, &Request::from_plan(&first))).unwrap();
        prop_assert_eq!(&first, &again);
        prop_assert!(plan_differences(&first, &again).is_empty());
        let other = world.with_input(|input| plan(input, &Request { seed: other, ..request })).unwrap();
        prop_assert_eq!(shape(&first), shape(&other));
        prop_assert_eq!((&first.already, &first.unhealthy, &first.budgets), (&other.already, &other.unhealthy, &other.budgets));
    }

    #[test]
    fn roles_follow_their_dependencies(
        nodes in fleets(), strategy in strategies(), order in orders(), seed: u64,
    ) {
        let plan = world(&nodes).with_input(|input| plan(input, &request_with(strategy, order, seed))).unwrap();
        let mut stages: BTreeMap<&Role, BTreeSet<u32>> = BTreeMap::new();
        for wave in &plan.waves {
            for planned in &wave.nodes {
                stages.entry(&planned.role).or_default().insert(wave.stage);
            }
        }
        prop_assert!(stages.values().all(|stages| stages.len() == 1), "a role is in one stage");
        for (role, parents) in &plan.after {
            for (parent, role) in parents.iter().filter_map(|parent| stages.get(parent).zip(stages.get(role))) {
                prop_assert!(parent < role);
            }
        }
        prop_assert!(plan.waves.is_sorted_by_key(|wave| (wave.stage, wave.wave)));
    }

    #[test]
    fn wave_sizes_match_the_strategy(
        nodes in fleets(), strategy in strategies(), order in orders(), seed: u64,
    ) {
        let in_reach = |kind| matches!(kind, Kind::Well | Kind::AtTarget | Kind::Failed | Kind::Rebooted);
        let nodes: Vec<_> = nodes.into_iter().filter(|(_, _, kind)| in_reach(*kind)).collect();
        let plan = world(&nodes).with_input(|input| plan(input, &request_with(strategy, order, seed))).unwrap();
        let stages: BTreeSet<u32> = plan.waves.iter().map(|wave| wave.stage).collect();
        for stage in stages {
            let of_stage = || plan.waves.iter().filter(|wave| wave.stage == stage);
            // Nodes of each role moved by the end of a wave, without repairs.
            let moved = |until: usize| {
                let waves = of_stage().filter(|wave| usize::try_from(wave.wave).unwrap() <= until);
                let mut roles: BTreeMap<&Role, usize> = of_stage().flat_map(|wave| &wave.nodes).map(|node| (&node.role, 0)).collect();
                for planned in waves.flat_map(|wave| &wave.nodes).filter(|planned| !planned.repair) {
                    *roles.entry(&planned.role).or_default() += 1;
                }
                roles
            };
            let all = moved(plan.strategy.waves.len());
            for (index, wave) in plan.strategy.waves.iter().enumerate() {
                let (before, now) = (moved(index), moved(index + 1));
                match wave.reach {
                    Reach::Percent(percent) => for (role, count) in now {
                        let share = (all[role] * usize::from(percent)).div_ceil(100);
                        prop_assert_eq!(count, share.max(before[role]), "{} in wave {}", role, index + 1);
                    },
                    Reach::Nodes(nodes) => {
                        let total = |roles: &BTreeMap<&Role, usize>| roles.values().sum::<usize>();
                        let wanted = total(&all).min(usize::try_from(nodes).unwrap());
                        prop_assert_eq!(total(&now), wanted.max(total(&before)), "wave {}", index + 1);
                        // In turns: no role is taken from while another one has fewer taken and some left.
                        let most = now.iter().filter(|(role, count)| **count > before[*role]).map(|(_, count)| *count).max();
                        let fewest = now.iter().filter(|(role, count)| **count < all[*role]).map(|(_, count)| *count).min();
                        prop_assert!(most.zip(fewest).is_none_or(|(most, fewest)| most <= fewest + 1));
                    }
                }
            }
            prop_assert!(of_stage().enumerate().all(|(index, wave)| wave.canary == (index == 0)));
        }
    }

    #[test]
    fn repairs_come_first_and_unreachable_nodes_last(
        nodes in fleets(), strategy in strategies(), order in orders(), seed: u64,
    ) {
        let world = world(&nodes);
        let plan = world.with_input(|input| plan(input, &request_with(strategy, order, seed))).unwrap();
        let kind = |name: &NodeName| nodes[usize::try_from(name.natural().1).unwrap() - 1].2;
        let is_gone = |name: &NodeName| matches!(kind(name), Kind::Silent | Kind::Paused | Kind::Unmade);
        let there: BTreeSet<&Role> = plan.nodes().filter(|node| !is_gone(&node.node)).map(|node| &node.role).collect();
        let rebooted = |role: &Role| {
            plan.nodes().filter(|node| node.role == *role && matches!(kind(&node.node), Kind::Rebooted)).count()
        };
        for wave in &plan.waves {
            let last = usize::try_from(wave.wave).unwrap() == plan.strategy.waves.len();
            for planned in &wave.nodes {
                let repair = match kind(&planned.node) {
                    Kind::Failed => true,
                    // A role that is coming up has a canary.
                    Kind::Rebooted => rebooted(&planned.role) == 1,
                    Kind::Well | Kind::AtTarget | Kind::Silent | Kind::Paused | Kind::Unmade | Kind::Leaving => false,
                };
                prop_assert_eq!(planned.repair, repair);
                prop_assert!(!planned.repair || wave.wave == 1);
                prop_assert!(!is_gone(&planned.node) || last || !there.contains(&planned.role));
            }
            prop_assert!(wave.nodes.is_sorted_by_key(|planned| !planned.repair));
            let waits = |node: &NodeName, role: &Role| is_gone(node) && there.contains(role);
            prop_assert!(wave.nodes.is_sorted_by_key(|planned| waits(&planned.node, &planned.role)));
        }
    }
}
