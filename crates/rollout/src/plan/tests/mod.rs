//! Plans, their differences, and the reasons to refuse one.

mod laws;

use std::error::Error;

use insta::assert_snapshot;
use jiff::SignedDuration;
use jiff::civil::time;
use muster_core::fleet::{DestroyRecord, RestoreRecord};
use muster_core::report::reason::{Need, RunReason};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::strategy::{
    Amount, GateCheck, GateCheckKind, MaxUnavailable, OnFailure, PerLabel, Promote, Reach, Strategy, Wave, Window,
};

use crate::plan::difference::{PlanDifference, plan_differences};
use crate::testing::{FakeFleet, RunEnd, after, describe_plan, request, role, version};

use super::{Request, plan};

fn planned(world: &FakeFleet, request: &Request) -> RolloutPlan {
    world.with_input(|input| plan(input, request)).unwrap()
}

fn waves(reaches: &[Reach]) -> Strategy {
    let wave = |reach: &Reach| Wave { reach: *reach, soak: None, promote: Promote::Auto };
    Strategy { waves: reaches.iter().map(wave).collect(), ..Strategy::default() }
}

#[test]
fn default_strategy_has_four_waves() {
    let world = FakeFleet::with_roles(&[("web", 12, "a b c")]);
    assert_snapshot!(describe_plan(&planned(&world, &request("v2", Strategy::default()))));
}

#[test]
fn each_stage_has_all_waves() {
    let world = FakeFleet::with_roles(&[("db", 2, "a b"), ("web", 4, "a b"), ("cache", 3, "a b"), ("lb", 1, "a")]);
    let strategy = waves(&[Reach::Nodes(2), Reach::Percent(50), Reach::Percent(100)]);
    let order = after(&[("web", "db cache"), ("lb", "web"), ("log", "lb")]);
    assert_snapshot!(describe_plan(&planned(&world, &Request { after: order, ..request("v2", strategy) })));
}

#[test]
fn empty_wave_passes_on_its_soak_and_promotion() {
    let world = FakeFleet::with_roles(&[("db", 2, "a b"), ("web", 3, "a b")]);
    let mut strategy = Strategy::default();
    strategy.waves[1] =
        Wave { reach: Reach::Percent(10), soak: Some(SignedDuration::from_hours(1)), promote: Promote::Manual };
    let order = after(&[("web", "db")]);
    assert_snapshot!(describe_plan(&planned(&world, &Request { after: order, ..request("v2", strategy) })));
}

#[test]
fn last_wave_takes_the_longest_soak() {
    let world = FakeFleet::with_roles(&[("web", 1, "a")]);
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
    let mut world = FakeFleet::with_roles(&[("web", 12, "a b c")]);
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
fn role_that_comes_up_keeps_its_canary() {
    // None has ever been validated. The needs of the nodes that ran are met since.
    let mut world = FakeFleet::new();
    world.choose("v1");
    for name in ["web1", "web2", "web3", "web4", "new1"] {
        world.node(name, &name[..name.len() - 1], "a", &[]);
    }
    let needs = vec![Need::Role { role: role("app"), want: 0, have: 0 }];
    for name in ["web1", "web2", "web3", "new1"] {
        world.ends(name, "v1", RunEnd::Pending(RunReason::Waiting { needs: needs.clone() }));
    }
    let made = planned(&world, &request("v2", waves(&[Reach::Nodes(1), Reach::Percent(100)])));
    let first: Vec<&str> = made.waves[0].nodes.iter().map(|node| node.node.as_str()).collect();
    assert_eq!(first.len(), 2, "a canary, and the node that is alone in its role: {first:?}");
    assert!(first.contains(&"new1") && made.waves[0].nodes.iter().filter(|node| node.repair).count() == 1);
    assert!(made.waves[1].nodes.iter().all(|node| !node.repair), "their failures count");
    assert_eq!(made.mostly_unhealthy_roles(), [&role("new"), &role("web")]);
    let why = &made.unhealthy.iter().find(|unhealthy| unhealthy.node.as_str() == "web1").unwrap().why;
    assert_eq!(why, "waited for other nodes; its needs are met now, and it runs again soon");

    // It still has one while some of its nodes are validated, and the warning stays while they are few.
    for (name, warned) in [("web2", true), ("web3", false)] {
        world.answers(name, RunEnd::Validated);
        let made = planned(&world, &request("v2", waves(&[Reach::Nodes(1), Reach::Percent(100)])));
        assert_eq!(made.waves[0].nodes.len(), 2, "a canary, and the node that is alone in its role");
        assert!(made.nodes().all(|node| node.repair == (node.node.as_str() == "new1")));
        assert_eq!(made.mostly_unhealthy_roles().contains(&&role("web")), warned);
    }

    // The last one that comes up is repaired beside the canary.
    world.answers("web1", RunEnd::Validated);
    let made = planned(&world, &request("v2", waves(&[Reach::Nodes(1), Reach::Percent(100)])));
    assert!(made.nodes().all(|node| node.repair == ["new1", "web4"].contains(&node.node.as_str())));
}

#[test]
fn node_at_target_is_not_moved() {
    let mut world = FakeFleet::with_roles(&[("web", 8, "a b")]);
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
    let mut world = FakeFleet::with_roles(&[("db", 2, "a b"), ("web", 6, "a b")]);
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
    let mut world = FakeFleet::with_roles(&[("web", 3, "a")]);
    world.active(1, "v1", "v3");
    world.grant("web1", "v3", 1);
    world.answers("web1", RunEnd::Validated);
    let back = Request { allow_older: true, ..request("v2", Strategy::default()) };
    assert_eq!(planned(&world, &back).from, Some(version("v1")), "the environment's version is v3 already");
}

#[test]
fn rollback_ignores_windows_gates_and_failures() {
    let mut world = FakeFleet::with_roles(&[("web", 2, "a")]);
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
    let world = FakeFleet::with_roles(&[("web", 2, "a")]);
    assert_snapshot!(describe_plan(&planned(&world, &request("v1", Strategy::default()))));
}

#[test]
fn percentage_counts_provisioned_nodes() {
    let mut world = FakeFleet::with_roles(&[("web", 10, "a")]);
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
    let world = FakeFleet::with_roles(&[("db", 1_000, "a b c d"), ("web", 4_000, "a b c d")]);
    let order = after(&[("web", "db")]);
    let plan = planned(&world, &Request { after: order, ..request("v2", Strategy::default()) });
    assert_eq!((plan.node_count(), plan.waves.len()), (5_000, 8));
}

fn differences(old: &RolloutPlan, new: &RolloutPlan) -> String {
    plan_differences(old, new).iter().map(PlanDifference::to_string).collect::<Vec<_>>().join("\n")
}

/// The differences of two plans, the second made after this change.
fn after_this(happens: impl FnOnce(&mut FakeFleet)) -> String {
    let mut world = FakeFleet::with_roles(&[("db", 2, "a b"), ("web", 6, "a b")]);
    world.answers("web6", RunEnd::Failed(RunReason::NotCompiled));
    let mut strategy = Strategy::default();
    strategy.max_unavailable.default = Amount::Percent(34);
    strategy.max_unavailable.per = Some(PerLabel { label: "failure_domain".into(), count: 1 });
    let request = request("v2", strategy);
    let old = planned(&world, &request);
    happens(&mut world);
    differences(&old, &planned(&world, &Request::from_plan(&old)))
}

#[test]
fn cordoned_node_is_listed_and_placed_last() {
    let mut world = FakeFleet::with_roles(&[("web", 4, "a b")]);
    world.cordon("web2");
    let plan = planned(&world, &request("v2", Strategy::default()));
    assert_eq!(
        plan.cordoned.into_iter().collect::<Vec<_>>(),
        [(crate::testing::node("web2"), "cordoned by ann: disk".to_owned())]
    );
    assert_eq!(plan.waves.last().unwrap().nodes.last().unwrap().node.as_str(), "web2");
    assert!(plan.unhealthy.is_empty());
    assert_snapshot!(after_this(|world| world.cordon("web2")), @"web2 is cordoned by ann: disk");
}

#[test]
fn passing_time_is_no_difference() {
    assert_snapshot!(after_this(|world| world.pass(SignedDuration::from_hours(24))), @"");
}

#[test]
fn reason_text_and_run_time_are_no_difference() {
    let differences_after = after_this(|world| {
        world.run_time = SignedDuration::from_mins(3);
        world.answers("web6", RunEnd::Failed(RunReason::ResourcesFailed { count: 1 }));
        world.answers("web1", RunEnd::Validated);
    });
    assert_snapshot!(differences_after, @"");
}

#[test]
fn changed_nodes_are_listed() {
    let differences_after = after_this(|world| {
        world.node("web7", "web", "c", &[]);
        world.answers("web7", RunEnd::Validated);
        world.leaves("web1");
        world.redesign("web2", |record| record.role = crate::testing::role("db"));
        world.redesign("web3", |record| record.failure_domain = "b".into());
    });
    assert_snapshot!(differences_after, @r#"
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
    let differences_after = after_this(|world| {
        world.answers("web6", RunEnd::Validated);
        world.answers("db1", RunEnd::Configured);
        world.silent("web5", SignedDuration::from_mins(1));
    });
    assert_snapshot!(differences_after, @"
    the state of db1 is configured now: configured; its validation has not been reported
    the state of web5 is unreachable now: its agent is not connected
    web6 is healthy now; its state was failed
    ");
    let differences_after = after_this(|world| world.silent("web6", SignedDuration::from_mins(1)));
    assert_snapshot!(differences_after, @"the state of web6 is unreachable now, and no longer failed: its agent is not connected");
    let differences_after = after_this(|world| world.pause("web6"));
    assert_snapshot!(differences_after, @"web6 can no longer be repaired: the content could not be compiled; nothing was applied; node web6 is paused by ann: disk");
}

#[test]
fn concurrent_change_is_listed() {
    let differences_after = after_this(|world| {
        world.active(1, "v1", "v2");
        world.grant("web1", "v2", 1);
        world.answers("web1", RunEnd::Validated);
    });
    assert_snapshot!(differences_after, @"web1 runs the target already");
    assert_snapshot!(after_this(|world| world.release("v2", 9)), @"release v2 has other content now");
}

#[test]
fn changed_order_is_listed() {
    let mut world = FakeFleet::with_roles(&[("web", 6, "a b c")]);
    let request = request("v2", Strategy::default());
    let old = planned(&world, &request);
    for number in 2..=6 {
        world.redesign(&format!("web{number}"), |record| record.failure_domain = "a".into());
    }
    let new = planned(&world, &request);
    assert_ne!(old.waves, new.waves);
    assert_snapshot!(differences(&old, &new), @"nodes move in another order: the design has given them other roles or failure domains");
}

#[test]
fn empty_after_equals_a_missing_one() {
    let world = FakeFleet::with_roles(&[("web", 2, "a")]);
    let ask = request("v2", Strategy::default());
    let silent = planned(&world, &ask);
    let spoken = planned(&world, &Request { after: after(&[("web", "")]), ..ask });
    assert_eq!(differences(&silent, &spoken), "");
}

#[test]
fn changed_request_is_listed() {
    let world = FakeFleet::with_roles(&[("db", 2, "a b"), ("web", 6, "a b")]);
    let old = planned(&world, &Request { after: after(&[("db", "")]), ..request("v2", Strategy::default()) });
    let mut strategy = Strategy { ramp: false, on_failure: OnFailure::Rollback, ..Strategy::default() };
    strategy.max_unavailable.default = Amount::Nodes(2);
    let other = Request { after: after(&[("web", "db")]), seed: 2, at_once: true, ..request("v3", strategy) };
    assert_snapshot!(differences(&old, &planned(&world, &other)), @"
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

fn refused(world: &FakeFleet, request: &Request) -> String {
    let error = world.with_input(|input| plan(input, request)).unwrap_err();
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[test]
fn unknown_release_is_refused() {
    let mut world = FakeFleet::with_roles(&[("web", 1, "a")]);
    world.release("2026.11.15", 9);
    let ask = |to: &str| refused(&world, &request(to, Strategy::default()));
    assert_snapshot!(ask("2026.11.51"), @"there is no release 2026.11.51; did you mean 2026.11.15?");
    assert_snapshot!(ask("nightly"), @"there is no release nightly");
}

#[test]
fn older_release_needs_allow_older() {
    let mut world = FakeFleet::with_roles(&[("web", 2, "a")]);
    world.active(1, "v1", "v3");
    let back = request("v2", Strategy::default());
    assert_snapshot!(refused(&world, &back), @"release v2 (serial 2) is older than v3 (serial 3), which nodes should run now: use --allow-older to move nodes to an older release");
    // Also if it is newer than the current version, but older than the grant of some node.
    world.grant("web1", "v4", 1);
    assert!(refused(&world, &request("v3", Strategy::default())).contains("older than v4"));
    assert!(world.with_input(|input| plan(input, &Request { allow_older: true, ..back })).is_ok());
}

#[test]
fn role_cycle_is_refused() {
    let world = FakeFleet::with_roles(&[("web", 1, "a"), ("db", 1, "a")]);
    let order = after(&[("web", "db"), ("db", "cache"), ("cache", "web")]);
    let request = Request { after: order, ..request("v2", Strategy::default()) };
    assert_snapshot!(refused(&world, &request), @"the roles depend on each other in a cycle: remove one `after` from the environment file: cache after web after db after cache");
}

#[test]
fn too_many_waves_are_refused() {
    let names: Vec<String> = (1..=16).map(|number| format!("r{number:02}-x")).collect();
    let roles: Vec<(&str, u32, &str)> = names.iter().map(|name| (name.as_str(), 12, "a b")).collect();
    let order: Vec<(&str, &str)> = names.windows(2).map(|pair| (pair[1].as_str(), pair[0].as_str())).collect();
    let mut ask = Request { after: after(&order), ..request("v2", Strategy::default()) };
    let world = FakeFleet::with_roles(&roles);
    assert_snapshot!(refused(&world, &ask), @"the plan has 64 waves over all stages, and at most 60 are allowed: remove waves from the strategy, or let more roles move together");
    ask.strategy.waves.remove(0);
    assert!(world.with_input(|input| plan(input, &ask)).is_ok());
    ask.strategy.waves = Strategy::default().waves;
    assert!(world.with_input(|input| plan(input, &Request { at_once: true, ..ask })).is_ok());
}

#[test]
fn unreadable_active_rollout_is_refused() {
    let mut world = FakeFleet::with_roles(&[("web", 1, "a")]);
    world.put(world.keys.active_rollout(), "what?");
    let said = refused(&world, &request("v2", Strategy::default()));
    assert!(said.contains("rollouts/active in the store cannot be read"), "{said}");
}

#[test]
fn budget_of_unknown_role_is_refused() {
    let world = FakeFleet::with_roles(&[("web", 1, "a")]);
    let mut strategy = Strategy::default();
    strategy.max_unavailable.roles.insert(role("wbe"), Amount::Nodes(1));
    let mut ask = request("v2", strategy);
    assert_snapshot!(refused(&world, &ask), @"max_unavailable names role wbe, which is not in this environment: correct the strategy; did you mean web?");
    // A role that has left since does not block a rollback, and a role in the order may have no nodes.
    let back = Request { rolls_back: Some(RolloutId(1)), ..ask.clone() };
    assert!(world.with_input(|input| plan(input, &back)).is_ok());
    ask.after = after(&[("wbe", "web")]);
    assert!(world.with_input(|input| plan(input, &ask)).is_ok());
}

#[test]
fn window_that_never_opens_is_refused() {
    let world = FakeFleet::with_roles(&[("web", 1, "a")]);
    let window = Window { days: vec![1], from: time(22, 0, 0, 0), to: time(4, 0, 0, 0), tz: "UTC".into() };
    let never = Window { tz: "Europe/Nowhere".into(), ..window.clone() };
    let strategy = Strategy { windows: vec![window, never], ..Strategy::default() };
    assert_snapshot!(refused(&world, &request("v2", strategy)), @"window 2 of the strategy (from 22:00 to 04:00, Europe/Nowhere) never opens, and no node would start: correct its days, times or time zone");
}

#[test]
fn invalid_strategy_is_refused() {
    let world = FakeFleet::with_roles(&[("web", 1, "a")]);
    let strategy = Strategy { waves: Vec::new(), ..Strategy::default() };
    assert_snapshot!(refused(&world, &request("v2", strategy)), @"the strategy has no waves: end with one of 100 %");
}

#[test]
fn empty_or_destroyed_environment_is_refused() {
    let ask = request("v2", Strategy::default());
    assert_snapshot!(refused(&FakeFleet::new(), &ask), @"the environment has no nodes: apply a design first, with `muster env apply`");
    let mut world = FakeFleet::with_roles(&[("web", 1, "a")]);
    world.leaves("web1");
    assert!(refused(&world, &ask).starts_with("the environment has no nodes"));
    world.put_json(world.keys.destroying(), &DestroyRecord { since: world.now, by: "ann".into() });
    assert_snapshot!(refused(&world, &ask), @"the environment is being destroyed by ann: no rollout can start");
    let restoring = RestoreRecord { digest: String::new(), since: world.now, by: "bob".into() };
    world.put_json(world.keys.restoring(), &restoring);
    assert_snapshot!(refused(&world, &ask), @"the environment is being restored by bob: wait until the restore has finished, or run it again if it was interrupted");
}

#[test]
fn release_is_older_during_a_rollback_too() {
    let mut world = FakeFleet::with_roles(&[("web", 2, "a")]);
    world.choose("v1");
    world.active(3, "v2", "v1");
    let refused = world.with_input(|input| plan(input, &request("v1", Strategy::default()))).unwrap_err().to_string();
    assert!(refused.contains("older"), "{refused}");
    let allowed = Request { allow_older: true, ..request("v1", Strategy::default()) };
    assert!(world.with_input(|input| plan(input, &allowed)).is_ok());
}
