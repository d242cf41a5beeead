//! What cannot be planned, and what people are told about it.

use std::error::Error;

use insta::assert_snapshot;
use jiff::civil::time;
use muster_core::fleet::{DestroyRecord, RestoreRecord};
use muster_core::rollout::RolloutId;
use muster_core::rollout::strategy::{Amount, Strategy, Window};

use crate::plan::{Request, plan};
use crate::testing::{World, after, request, role};

fn refused(world: &World, request: &Request) -> String {
    let error = world.see(|sight| plan(sight, request)).unwrap_err();
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[test]
fn a_release_that_is_not_there() {
    let mut world = World::of(&[("web", 1, "a")]);
    world.release("2026.11.15", 9);
    let ask = |to: &str| refused(&world, &request(to, Strategy::default()));
    assert_snapshot!(ask("2026.11.51"), @"there is no release 2026.11.51; did you mean 2026.11.15?");
    assert_snapshot!(ask("nightly"), @"there is no release nightly");
}

#[test]
fn an_older_release_needs_a_word() {
    let mut world = World::of(&[("web", 2, "a")]);
    world.active(1, "v1", "v3");
    let back = request("v2", Strategy::default());
    assert_snapshot!(refused(&world, &back), @"release v2 (serial 2) is older than v3 (serial 3), which nodes should run now: say --allow-older if they are to go back");
    // Also if it is newer than what the environment should run, and some node was granted more.
    world.grant("web1", "v4", 1);
    assert!(refused(&world, &request("v3", Strategy::default())).contains("older than v4"));
    assert!(world.see(|sight| plan(sight, &Request { allow_older: true, ..back })).is_ok());
}

#[test]
fn roles_that_wait_for_each_other() {
    let world = World::of(&[("web", 1, "a"), ("db", 1, "a")]);
    let order = after(&[("web", "db"), ("db", "cache"), ("cache", "web")]);
    let request = Request { after: order, ..request("v2", Strategy::default()) };
    assert_snapshot!(refused(&world, &request), @"no order of the roles is possible, since they wait for each other: take one `after` out of the environment file: cache after web after db after cache");
}

#[test]
fn more_waves_than_a_record_holds() {
    let names: Vec<String> = (1..=16).map(|number| format!("r{number:02}-x")).collect();
    let roles: Vec<(&str, u32, &str)> = names.iter().map(|name| (name.as_str(), 12, "a b")).collect();
    let order: Vec<(&str, &str)> = names.windows(2).map(|pair| (pair[1].as_str(), pair[0].as_str())).collect();
    let mut ask = Request { after: after(&order), ..request("v2", Strategy::default()) };
    let world = World::of(&roles);
    assert_snapshot!(refused(&world, &ask), @"the plan has 64 waves over all stages, and 60 are the most: take waves out of the strategy, or let more roles go together");
    ask.strategy.waves.remove(0);
    assert!(world.see(|sight| plan(sight, &ask)).is_ok());
    ask.strategy.waves = Strategy::default().waves;
    assert!(world.see(|sight| plan(sight, &Request { at_once: true, ..ask })).is_ok());
}

#[test]
fn nothing_while_nobody_can_say_which_rollout_decides() {
    let mut world = World::of(&[("web", 1, "a")]);
    world.put(world.keys.active_rollout(), "what?");
    let said = refused(&world, &request("v2", Strategy::default()));
    assert!(said.contains("rollouts/active in the store cannot be read"), "{said}");
}

#[test]
fn a_budget_for_a_role_that_is_not_there() {
    let world = World::of(&[("web", 1, "a")]);
    let mut strategy = Strategy::default();
    strategy.max_unavailable.roles.insert(role("wbe"), Amount::Nodes(1));
    let mut ask = request("v2", strategy);
    assert_snapshot!(refused(&world, &ask), @"max_unavailable names the role wbe, which this environment does not have: correct the strategy; did you mean web?");
    // Whoever goes back is not kept from it by a role that has left since; and one in the order may have no nodes.
    let back = Request { rolls_back: Some(RolloutId(1)), ..ask.clone() };
    assert!(world.see(|sight| plan(sight, &back)).is_ok());
    ask.after = after(&[("wbe", "web")]);
    assert!(world.see(|sight| plan(sight, &ask)).is_ok());
}

#[test]
fn a_window_that_never_opens() {
    let world = World::of(&[("web", 1, "a")]);
    let window = Window { days: vec![1], from: time(22, 0, 0, 0), to: time(4, 0, 0, 0), tz: "UTC".into() };
    let never = Window { tz: "Europe/Nowhere".into(), ..window.clone() };
    let strategy = Strategy { windows: vec![window, never], ..Strategy::default() };
    assert_snapshot!(refused(&world, &request("v2", strategy)), @"window 2 of the strategy (from 22:00 to 04:00, Europe/Nowhere) never opens, so nothing would ever be granted: correct its days, times or time zone");
}

#[test]
fn a_strategy_that_nobody_has_read() {
    let world = World::of(&[("web", 1, "a")]);
    let strategy = Strategy { waves: Vec::new(), ..Strategy::default() };
    assert_snapshot!(refused(&world, &request("v2", strategy)), @"the strategy has no waves: end with one of 100 %");
}

#[test]
fn an_environment_without_nodes_or_on_its_way_out() {
    let ask = request("v2", Strategy::default());
    assert_snapshot!(refused(&World::new(), &ask), @"the environment has no nodes: apply a design first, with `muster env apply`");
    let mut world = World::of(&[("web", 1, "a")]);
    world.leaves("web1");
    assert!(refused(&world, &ask).starts_with("the environment has no nodes"));
    world.put_json(world.keys.destroying(), &DestroyRecord { since: world.now, by: "ann".into() });
    assert_snapshot!(refused(&world, &ask), @"the environment is being destroyed by ann: nothing is rolled out any more");
    let restoring = RestoreRecord { digest: String::new(), since: world.now, by: "bob".into() };
    world.put_json(world.keys.restoring(), &restoring);
    assert_snapshot!(refused(&world, &ask), @"the environment is being restored by bob: wait until that is done, or do it again if it was cut off");
}

#[test]
fn while_the_fleet_goes_back_an_older_release_is_still_older_than_what_most_are_told() {
    let mut world = World::of(&[("web", 2, "a")]);
    world.choose("v1");
    world.active(3, "v2", "v1");
    let refused = world.see(|sight| plan(sight, &request("v1", Strategy::default()))).unwrap_err().to_string();
    assert!(refused.contains("older"), "{refused}");
    let allowed = Request { allow_older: true, ..request("v1", Strategy::default()) };
    assert!(world.see(|sight| plan(sight, &allowed)).is_ok());
}
