//! Plans that are refused, and their messages.

use std::error::Error;

use insta::assert_snapshot;
use jiff::civil::time;
use muster_core::fleet::DestroyRecord;
use muster_core::fleet::RestoreRecord;
use muster_core::rollout::RolloutId;
use muster_core::rollout::strategy::{Amount, Strategy, Window};

use crate::plan::{Request, plan};
use crate::testing::{FakeFleet, after, request, role};

fn refused(world: &FakeFleet, request: &Request) -> String {
    let error = world.with_input(|input| plan(input, request)).unwrap_err();
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[test]
fn unknown_release_is_refused() {
    let mut world = FakeFleet::of(&[("web", 1, "a")]);
    world.release("2026.11.15", 9);
    let ask = |to: &str| refused(&world, &request(to, Strategy::default()));
    assert_snapshot!(ask("2026.11.51"), @"there is no release 2026.11.51; did you mean 2026.11.15?");
    assert_snapshot!(ask("nightly"), @"there is no release nightly");
}

#[test]
fn older_release_needs_allow_older() {
    let mut world = FakeFleet::of(&[("web", 2, "a")]);
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
    let world = FakeFleet::of(&[("web", 1, "a"), ("db", 1, "a")]);
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
    let world = FakeFleet::of(&roles);
    assert_snapshot!(refused(&world, &ask), @"the plan has 64 waves over all stages, and at most 60 are allowed: remove waves from the strategy, or let more roles move together");
    ask.strategy.waves.remove(0);
    assert!(world.with_input(|input| plan(input, &ask)).is_ok());
    ask.strategy.waves = Strategy::default().waves;
    assert!(world.with_input(|input| plan(input, &Request { at_once: true, ..ask })).is_ok());
}

#[test]
fn unreadable_active_rollout_is_refused() {
    let mut world = FakeFleet::of(&[("web", 1, "a")]);
    world.put(world.keys.active_rollout(), "what?");
    let said = refused(&world, &request("v2", Strategy::default()));
    assert!(said.contains("rollouts/active in the store cannot be read"), "{said}");
}

#[test]
fn budget_of_unknown_role_is_refused() {
    let world = FakeFleet::of(&[("web", 1, "a")]);
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
    let world = FakeFleet::of(&[("web", 1, "a")]);
    let window = Window { days: vec![1], from: time(22, 0, 0, 0), to: time(4, 0, 0, 0), tz: "UTC".into() };
    let never = Window { tz: "Europe/Nowhere".into(), ..window.clone() };
    let strategy = Strategy { windows: vec![window, never], ..Strategy::default() };
    assert_snapshot!(refused(&world, &request("v2", strategy)), @"window 2 of the strategy (from 22:00 to 04:00, Europe/Nowhere) never opens, and nothing would be granted: correct its days, times or time zone");
}

#[test]
fn invalid_strategy_is_refused() {
    let world = FakeFleet::of(&[("web", 1, "a")]);
    let strategy = Strategy { waves: Vec::new(), ..Strategy::default() };
    assert_snapshot!(refused(&world, &request("v2", strategy)), @"the strategy has no waves: end with one of 100 %");
}

#[test]
fn empty_or_destroyed_environment_is_refused() {
    let ask = request("v2", Strategy::default());
    assert_snapshot!(refused(&FakeFleet::new(), &ask), @"the environment has no nodes: apply a design first, with `muster env apply`");
    let mut world = FakeFleet::of(&[("web", 1, "a")]);
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
    let mut world = FakeFleet::of(&[("web", 2, "a")]);
    world.choose("v1");
    world.active(3, "v2", "v1");
    let refused = world.with_input(|input| plan(input, &request("v1", Strategy::default()))).unwrap_err().to_string();
    assert!(refused.contains("older"), "{refused}");
    let allowed = Request { allow_older: true, ..request("v1", Strategy::default()) };
    assert!(world.with_input(|input| plan(input, &allowed)).is_ok());
}
