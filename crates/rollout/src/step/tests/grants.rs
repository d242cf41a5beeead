//! Grants: budgets, ramp, brake, pauses and windows.

use jiff::civil::time;
use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{Amount, FailureLimits, MaxUnavailable, Strategy, Window};

use crate::command::{CommandRefused, RetryTarget, RolloutCommand};
use crate::progress::{hold_reason, progress};
use crate::testing::{FakeFleet, RunEnd, node, role};

use super::Ride;
use super::ride::{budget, failed, minutes, pending, percents, seconds};

fn lenient() -> FailureLimits {
    let all = Amount::Percent(100);
    FailureLimits { canary: all, wave: all, total: all }
}

const NOBODY: [String; 0] = [];

fn holds(ride: &Ride) -> Vec<&'static str> {
    let record = ride.record();
    ride.world.with_input(|input| progress(&ride.plan, &record, input)).holds.iter().map(Hold::word).collect()
}

fn why(ride: &Ride, name: &str) -> Option<&'static str> {
    let record = ride.record();
    ride.world.with_input(|input| hold_reason(&ride.plan, &record, input, &node(name))).as_ref().map(Hold::word)
}

/// The first of these names that is not granted.
fn waiting<'n>(names: &[&'n str], granted: &[String]) -> &'n str {
    names.iter().find(|name| !granted.contains(&(**name).to_owned())).unwrap()
}

#[test]
fn each_role_has_its_own_budget() {
    let roles = [(role("web"), Amount::Percent(50))].into_iter().collect();
    let max_unavailable = MaxUnavailable { roles, ..MaxUnavailable::default() };
    let mut ride = Ride::begin(
        FakeFleet::of(&[("web", 4, "a b"), ("db", 3, "a b")]),
        Strategy { max_unavailable, ..percents(&[100]) },
    );
    let granted = ride.go();
    let of = |role: &str| granted.iter().filter(|name| name.starts_with(role)).count();
    assert_eq!((of("web"), of("db")), (2, 1));
    let web = waiting(&["web1", "web2", "web3"], &granted);
    assert_eq!(why(&ride, web), Some("role_budget"));
    assert_eq!(holds(&ride), ["role_budget", "role_budget", "node", "node", "node"]);
}

#[test]
fn domain_budget_spans_roles() {
    let world = FakeFleet::of(&[("web", 4, "a b"), ("db", 4, "a b")]);
    let mut ride = Ride::begin(world, budget(4, Some(("failure_domain", 1))));
    assert_eq!(ride.go().len(), 2, "one in each domain");
    assert!(holds(&ride).contains(&"domain_budget"));
}

#[test]
fn nodes_without_the_label_share_one_budget() {
    let world = FakeFleet::of(&[("web", 4, "a b")]);
    let mut ride = Ride::begin(world, budget(4, Some(("rack", 2))));
    assert_eq!(ride.go().len(), 2);
}

#[test]
fn down_node_uses_budget_and_is_granted_freely() {
    for (name, ended) in [("failed", failed()), ("pending", pending())] {
        let mut ride = Ride::begin(FakeFleet::of(&[("web", 3, "a b")]), budget(1, None));
        // It breaks after the plan was made, without a grant.
        let last = ride.plan.plan().nodes().last().unwrap().node.to_string();
        ride.world.answers(&last, ended);
        assert_eq!(ride.go().join(" "), last, "{name}");
        assert_eq!(ride.well(&last).len(), 1, "then the others, one by one");
    }
}

#[test]
fn disconnected_node_uses_budget_and_is_not_granted() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 3, "a b c")]), budget(1, None));
    ride.world.silent("web1", seconds(1));
    assert_eq!(ride.go(), NOBODY);
    assert_eq!(why(&ride, "web1"), Some("silent"));
    ride.world.connected("web1");
    assert_eq!(ride.go().len(), 1);
}

#[test]
fn slot_is_freed_after_the_soak() {
    let strategy = Strategy { soak: seconds(10), ..budget(1, None) };
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy);
    let granted = ride.go();
    assert_eq!(ride.answers(&granted[0], RunEnd::Configured), NOBODY, "it has not proved itself");
    assert_eq!(ride.well(&granted[0]), NOBODY);
    assert_eq!(ride.look().recheck, Some(ride.world.now + seconds(10)));
    assert_eq!(ride.after(seconds(9)), NOBODY);
    assert_eq!(ride.after(seconds(1)).len(), 1);
}

#[test]
fn ramp_doubles_the_grants() {
    let strategy = Strategy { ramp: true, ..budget(20, None) };
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 12, "a b")]), strategy);
    let mut sizes = Vec::new();
    let mut granted = ride.go();
    while !granted.is_empty() {
        sizes.push(granted.len());
        granted.iter().for_each(|name| ride.world.answers(name, RunEnd::Validated));
        granted = ride.go();
    }
    assert_eq!(sizes, [1, 2, 4, 5]);
    assert_eq!(ride.phase(), RolloutPhase::Completed);
}

#[test]
fn brake_stops_grants_in_a_silent_domain() {
    let world = FakeFleet::of(&[("web", 6, "a b")]);
    let mut ride = Ride::begin(world, budget(6, None));
    ride.world.silent("web1", seconds(1));
    ride.world.silent("web3", seconds(1));
    let granted = ride.go();
    assert_eq!(granted.len(), 3, "{granted:?}");
    assert!(!granted.contains(&"web5".to_owned()), "two of three in its domain are silent");
    assert_eq!(why(&ride, "web5"), Some("brake"));
    ride.world.connected("web3");
    assert_eq!(ride.go().len(), 2);
}

#[test]
fn paused_node_stops_the_progress_deadline() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), budget(2, None));
    ride.world.pause("web1");
    assert_eq!(ride.go(), ["web2"]);
    assert_eq!(why(&ride, "web1"), Some("paused"));
    ride.well("web2");
    assert!(ride.record().steps.idle.is_some());
    ride.after(minutes(300));
    assert_eq!(ride.phase(), RolloutPhase::Running);
    ride.world.delete(ride.world.keys.pause(&muster_core::node::pause::PauseScope::Host { node: node("web1") }));
    assert_eq!(ride.go(), ["web1"]);
    assert_eq!((ride.record().steps.idle, ride.record().steps.progress), (None, ride.world.now));
}

#[test]
fn node_paused_after_its_grant_is_granted_again() {
    for answer in [None, Some(pending())] {
        let mut ride = Ride::begin(FakeFleet::of(&[("web", 1, "a")]), budget(1, None));
        ride.go();
        ride.world.pause("web1");
        answer.into_iter().for_each(|pending| ride.world.answers("web1", pending));
        ride.after(minutes(600));
        assert_eq!(ride.phase(), RolloutPhase::Running);
        assert_eq!(why(&ride, "web1"), Some("paused"));
        ride.world.delete(ride.world.keys.pause(&muster_core::node::pause::PauseScope::Host { node: node("web1") }));
        assert_eq!(ride.go(), ["web1"]);
        assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    }
}

#[test]
fn closed_window_grants_nothing() {
    // It is Monday, 10:00.
    let window = Window { days: vec![1, 2], from: time(11, 0, 0, 0), to: time(12, 0, 0, 0), tz: "UTC".into() };
    let strategy = Strategy { windows: vec![window], ..budget(1, None) };
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 3, "a b")]), strategy);
    assert_eq!(ride.go(), NOBODY);
    assert_eq!(why(&ride, "web1"), Some("window"));
    let opens = ride.world.now + minutes(60);
    assert_eq!(ride.look().recheck, Some(opens));
    assert_eq!(ride.after(minutes(59)), NOBODY);
    let first = ride.after(minutes(1));
    assert_eq!(first.len(), 1);
    ride.world.pass(minutes(60));
    assert_eq!(ride.well(&first[0]), NOBODY, "it has closed");
    assert_eq!(ride.phase(), RolloutPhase::Running, "a day passes, and nobody is to blame");
    assert_eq!(ride.after(minutes(23 * 60)).len(), 1);
}

#[test]
fn rollout_without_progress_pauses() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 3, "a b c")]), budget(1, None));
    let began = ride.world.now;
    ride.world.silent("web1", seconds(0));
    ride.go();
    assert_eq!(ride.look().recheck, Some(began + minutes(60)));
    ride.after(minutes(60));
    assert_eq!(ride.phase(), RolloutPhase::Paused { why: PauseReason::NoProgress { since: began } });
    ride.world.connected("web1");
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    assert_eq!(ride.go().len(), 1);
}

#[test]
fn released_slot_is_reused() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 3, "a b c")]), budget(1, None));
    let granted = ride.go();
    ride.world.silent(&granted[0], seconds(0));
    assert_eq!(ride.go(), NOBODY);
    assert!(ride.say(&RolloutCommand::Release { node: node(&granted[0]) }).unwrap());
    assert!(!ride.say(&RolloutCommand::Release { node: node(&granted[0]) }).unwrap(), "it is said once");
    assert_eq!(ride.go().len(), 1);
}

#[test]
fn only_unavailable_nodes_release_a_slot() {
    let mut ride =
        Ride::begin(FakeFleet::of(&[("web", 4, "a b c d")]), Strategy { failures: lenient(), ..budget(1, None) });
    let release = |name: &str| RolloutCommand::Release { node: node(name) };
    let first = ride.go();
    let other = waiting(&["web1", "web2"], &first);
    assert!(matches!(ride.say(&release(other)), Err(CommandRefused::HoldsNoSlot { .. })), "it holds none");
    assert_eq!(ride.answers(&first[0], failed()), NOBODY, "it has failed, and keeps its slot");
    assert!(ride.say(&release(&first[0])).unwrap());
    let second = ride.go();
    assert_eq!(second.len(), 1);
    assert!(ride.say(&RolloutCommand::Retry(RetryTarget::Nodes(vec![node(&first[0])]))).unwrap());
    assert_eq!(ride.go(), NOBODY, "the slot is used by another");
    assert_eq!(ride.well(&second[0]), first, "in its turn");
    assert!(ride.record().operator.released.is_empty());
    assert_eq!(ride.go(), NOBODY, "and it holds the slot again");
}

#[test]
fn sixty_grants_per_transaction() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 150, "a b c")]), budget(150, None));
    assert_eq!(ride.look().change.unwrap().grants.len(), crate::step::MAX_GRANTS);
    assert_eq!(ride.go().len(), 150);
}

#[test]
fn nodes_moved_at_once_are_not_broken() {
    let mut world = FakeFleet::of(&[("web", 4, "a b")]);
    // All nodes get v2 at once, and none has reported when the next rollout starts.
    world.choose("v2");
    let mut ride = Ride::of(world, &crate::testing::request("v3", budget(1, None)));
    assert_eq!(ride.go(), NOBODY, "they may run at any moment: the budget is used up");
    ["web1", "web2", "web3", "web4"].iter().for_each(|name| ride.world.answers(name, RunEnd::Validated));
    assert_eq!(ride.go().len(), 1);
}
