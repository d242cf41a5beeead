//! Tests of grants: budgets, ramp, braked failure domains, pauses and maintenance windows.

use jiff::civil::time;
use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{Amount, FailureLimits, MaxUnavailable, Strategy, Window};

use crate::command::{CommandRefused, RetryTarget, RolloutCommand};
use crate::plan::Request;
use crate::progress::{hold_reason, progress};
use crate::testing::{FakeFleet, RunEnd, node, request, role};

use super::RolloutHarness;
use super::harness::{budget, failed, minutes, pending, percents, seconds};

fn lenient() -> FailureLimits {
    let all = Amount::Percent(100);
    FailureLimits { canary: all, wave: all, total: all }
}

const NO_NODES: [String; 0] = [];

fn holds(harness: &RolloutHarness) -> Vec<&'static str> {
    let record = harness.record();
    harness.world.with_input(|input| progress(&harness.plan, &record, input)).holds.iter().map(Hold::word).collect()
}

fn hold_word(harness: &RolloutHarness, name: &str) -> Option<&'static str> {
    let record = harness.record();
    harness.world.with_input(|input| hold_reason(&harness.plan, &record, input, &node(name))).as_ref().map(Hold::word)
}

/// The first of these names that is not granted.
fn waiting<'n>(names: &[&'n str], granted: &[String]) -> &'n str {
    names.iter().find(|name| !granted.contains(&(**name).to_owned())).unwrap()
}

#[test]
fn each_role_has_its_own_budget() {
    let roles = [(role("web"), Amount::Percent(50))].into_iter().collect();
    let max_unavailable = MaxUnavailable { roles, ..MaxUnavailable::default() };
    let mut harness = RolloutHarness::start(
        FakeFleet::with_roles(&[("web", 4, "a b"), ("db", 3, "a b")]),
        Strategy { max_unavailable, ..percents(&[100]) },
    );
    let granted = harness.settle();
    let of = |role: &str| granted.iter().filter(|name| name.starts_with(role)).count();
    assert_eq!((of("web"), of("db")), (2, 1));
    let web = waiting(&["web1", "web2", "web3"], &granted);
    assert_eq!(hold_word(&harness, web), Some("role_budget"));
    assert_eq!(holds(&harness), ["role_budget", "role_budget", "node", "node", "node"]);
}

#[test]
fn domain_budget_spans_roles() {
    let world = FakeFleet::with_roles(&[("web", 4, "a b"), ("db", 4, "a b")]);
    let mut harness = RolloutHarness::start(world, budget(4, Some(("failure_domain", 1))));
    assert_eq!(harness.settle().len(), 2, "one in each domain");
    assert!(holds(&harness).contains(&"domain_budget"));
}

#[test]
fn nodes_without_the_label_share_one_budget() {
    let world = FakeFleet::with_roles(&[("web", 4, "a b")]);
    let mut harness = RolloutHarness::start(world, budget(4, Some(("rack", 2))));
    assert_eq!(harness.settle().len(), 2);
}

#[test]
fn down_node_uses_budget_and_is_granted_freely() {
    for (name, ended) in [("failed", failed()), ("pending", pending())] {
        let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 3, "a b")]), budget(1, None));
        // It breaks after the plan was made, without a grant.
        let last = harness.plan.plan().nodes().last().unwrap().node.to_string();
        harness.world.answers(&last, ended);
        assert_eq!(harness.settle().join(" "), last, "{name}");
        assert_eq!(harness.validate(&last).len(), 1, "then the others, one by one");
    }
}

#[test]
fn disconnected_node_uses_budget_and_is_not_granted() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 3, "a b c")]), budget(1, None));
    harness.world.silent("web1", seconds(1));
    assert_eq!(harness.settle(), NO_NODES);
    assert_eq!(hold_word(&harness, "web1"), Some("silent"));
    harness.world.connected("web1");
    assert_eq!(harness.settle().len(), 1);
}

#[test]
fn slot_is_freed_after_the_soak() {
    let strategy = Strategy { soak: seconds(10), ..budget(1, None) };
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), strategy);
    let granted = harness.settle();
    assert_eq!(harness.report(&granted[0], RunEnd::Configured), NO_NODES, "it has not validated");
    assert_eq!(harness.validate(&granted[0]), NO_NODES);
    assert_eq!(harness.decide().recheck, Some(harness.world.now + seconds(10)));
    assert_eq!(harness.advance(seconds(9)), NO_NODES);
    assert_eq!(harness.advance(seconds(1)).len(), 1);
}

#[test]
fn ramp_doubles_the_grants() {
    let strategy = Strategy { ramp: true, ..budget(20, None) };
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 12, "a b")]), strategy);
    let mut sizes = Vec::new();
    let mut granted = harness.settle();
    while !granted.is_empty() {
        sizes.push(granted.len());
        granted.iter().for_each(|name| harness.world.answers(name, RunEnd::Validated));
        granted = harness.settle();
    }
    assert_eq!(sizes, [1, 2, 4, 5]);
    assert_eq!(harness.phase(), RolloutPhase::Completed);
}

#[test]
fn brake_stops_grants_in_a_silent_domain() {
    let world = FakeFleet::with_roles(&[("web", 6, "a b")]);
    let mut harness = RolloutHarness::start(world, budget(6, None));
    harness.world.silent("web1", seconds(1));
    harness.world.silent("web3", seconds(1));
    let granted = harness.settle();
    assert_eq!(granted.len(), 3, "{granted:?}");
    assert!(!granted.contains(&"web5".to_owned()), "two of three in its domain are silent");
    assert_eq!(hold_word(&harness, "web5"), Some("brake"));
    harness.world.connected("web3");
    assert_eq!(harness.settle().len(), 2);
}

#[test]
fn paused_node_stops_the_progress_deadline() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(2, None));
    harness.world.pause("web1");
    assert_eq!(harness.settle(), ["web2"]);
    assert_eq!(hold_word(&harness, "web1"), Some("paused"));
    harness.validate("web2");
    assert!(harness.record().steps.idle.is_some());
    harness.advance(minutes(300));
    assert_eq!(harness.phase(), RolloutPhase::Running);
    harness.world.delete(harness.world.keys.pause(&muster_core::node::pause::PauseScope::Host { node: node("web1") }));
    assert_eq!(harness.settle(), ["web1"]);
    assert_eq!((harness.record().steps.idle, harness.record().steps.progress), (None, harness.world.now));
}

#[test]
fn cordoned_node_is_granted_nothing_and_waited_for() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(1, None));
    harness.world.cordon("web1");
    assert_eq!(harness.settle(), ["web2"], "a healthy cordoned node uses no budget");
    assert_eq!(hold_word(&harness, "web1"), Some("cordoned"));
    harness.validate("web2");
    assert_eq!(holds(&harness), ["cordoned"]);
    harness.advance(minutes(300));
    assert_eq!(harness.phase(), RolloutPhase::Running, "a cordon stops the progress deadline");
    assert_eq!(harness.desired_version("web1"), "v1");
    harness.world.uncordon("web1");
    assert_eq!(harness.settle(), ["web1"]);
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
}

#[test]
fn rollout_completes_without_a_skipped_cordoned_node() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(2, None));
    harness.world.cordon("web1");
    harness.settle();
    harness.validate("web2");
    assert_eq!(harness.phase(), RolloutPhase::Running);
    harness.command(&RolloutCommand::Skip { node: node("web1") }).unwrap();
    harness.settle();
    assert_eq!(harness.phase(), RolloutPhase::Completed);
    assert!(!harness.record().all_nodes_at_target);
    harness.world.uncordon("web1");
    assert_eq!(harness.desired_version("web1"), "v1", "as any skipped node");
}

#[test]
fn cordon_between_decision_and_commit_refuses_the_grant() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(1, None));
    let (_, at) = harness.stored_record();
    let change = harness.decide().change.unwrap();
    let txn = change.txn(&harness.world.fleet, at).unwrap();
    harness.world.cordon(change.grants[0].node.as_str());
    assert!(harness.world.commit(&txn).is_err());
}

#[test]
fn at_once_rollout_waits_for_a_cordoned_node() {
    let mut world = FakeFleet::with_roles(&[("web", 2, "a b")]);
    world.cordon("web1");
    let mut harness = RolloutHarness::with_request(world, &Request { at_once: true, ..request("v2", budget(1, None)) });
    harness.validate("web2");
    harness.advance(minutes(300));
    assert_eq!(harness.phase(), RolloutPhase::Running);
    assert_eq!(hold_word(&harness, "web1"), Some("cordoned"));
    assert_eq!(harness.desired_version("web1"), "v1");
    let other = harness.command(&RolloutCommand::Skip { node: node("web2") });
    assert!(matches!(other, Err(CommandRefused::AtOnce { .. })), "web2 has been moved");
    assert!(harness.command(&RolloutCommand::Skip { node: node("web1") }).unwrap());
    harness.settle();
    assert_eq!(harness.phase(), RolloutPhase::Completed);
    assert!(!harness.record().all_nodes_at_target);
    harness.world.uncordon("web1");
    assert_eq!(harness.desired_version("web1"), "v1");
}

#[test]
fn at_once_rollout_moves_an_uncordoned_node() {
    let mut world = FakeFleet::with_roles(&[("web", 2, "a b")]);
    world.cordon("web1");
    let mut harness = RolloutHarness::with_request(world, &Request { at_once: true, ..request("v2", budget(1, None)) });
    harness.validate("web2");
    harness.world.uncordon("web1");
    assert_eq!(harness.desired_version("web1"), "v2");
    harness.validate("web1");
    assert_eq!(harness.phase(), RolloutPhase::Completed);
    assert!(harness.record().all_nodes_at_target);
}

#[test]
fn node_paused_after_its_grant_is_granted_again() {
    for answer in [None, Some(pending())] {
        let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 1, "a")]), budget(1, None));
        harness.settle();
        harness.world.pause("web1");
        answer.into_iter().for_each(|pending| harness.world.answers("web1", pending));
        harness.advance(minutes(600));
        assert_eq!(harness.phase(), RolloutPhase::Running);
        assert_eq!(hold_word(&harness, "web1"), Some("paused"));
        harness
            .world
            .delete(harness.world.keys.pause(&muster_core::node::pause::PauseScope::Host { node: node("web1") }));
        assert_eq!(harness.settle(), ["web1"]);
        assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
    }
}

#[test]
fn closed_window_grants_nothing() {
    // It is Monday, 10:00.
    let window = Window { days: vec![1, 2], from: time(11, 0, 0, 0), to: time(12, 0, 0, 0), tz: "UTC".into() };
    let strategy = Strategy { windows: vec![window], ..budget(1, None) };
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 3, "a b")]), strategy);
    assert_eq!(harness.settle(), NO_NODES);
    assert_eq!(hold_word(&harness, "web1"), Some("window"));
    let opens = harness.world.now + minutes(60);
    assert_eq!(harness.decide().recheck, Some(opens));
    assert_eq!(harness.advance(minutes(59)), NO_NODES);
    let first = harness.advance(minutes(1));
    assert_eq!(first.len(), 1);
    harness.world.pass(minutes(60));
    assert_eq!(harness.validate(&first[0]), NO_NODES, "the window has closed");
    assert_eq!(harness.phase(), RolloutPhase::Running, "a closed window is no lack of progress");
    assert_eq!(harness.advance(minutes(23 * 60)).len(), 1);
}

#[test]
fn rollout_without_progress_pauses() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 3, "a b c")]), budget(1, None));
    let began = harness.world.now;
    harness.world.silent("web1", seconds(0));
    harness.settle();
    assert_eq!(harness.decide().recheck, Some(began + minutes(60)));
    harness.advance(minutes(60));
    assert_eq!(harness.phase(), RolloutPhase::Paused { why: PauseReason::NoProgress { since: began } });
    harness.world.connected("web1");
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    assert_eq!(harness.settle().len(), 1);
}

#[test]
fn released_slot_is_reused() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 3, "a b c")]), budget(1, None));
    let granted = harness.settle();
    harness.world.silent(&granted[0], seconds(0));
    assert_eq!(harness.settle(), NO_NODES);
    assert!(harness.command(&RolloutCommand::Release { node: node(&granted[0]) }).unwrap());
    assert!(
        !harness.command(&RolloutCommand::Release { node: node(&granted[0]) }).unwrap(),
        "the second release is a no-op"
    );
    assert_eq!(harness.settle().len(), 1);
}

#[test]
fn only_unavailable_nodes_release_a_slot() {
    let mut harness = RolloutHarness::start(
        FakeFleet::with_roles(&[("web", 4, "a b c d")]),
        Strategy { failures: lenient(), ..budget(1, None) },
    );
    let release = |name: &str| RolloutCommand::Release { node: node(name) };
    let first = harness.settle();
    let other = waiting(&["web1", "web2"], &first);
    assert!(matches!(harness.command(&release(other)), Err(CommandRefused::HoldsNoSlot { .. })), "it holds none");
    assert_eq!(harness.report(&first[0], failed()), NO_NODES, "a failed node keeps its slot");
    assert!(harness.command(&release(&first[0])).unwrap());
    let second = harness.settle();
    assert_eq!(second.len(), 1);
    assert!(harness.command(&RolloutCommand::Retry(RetryTarget::Nodes(vec![node(&first[0])]))).unwrap());
    assert_eq!(harness.settle(), NO_NODES, "another node uses the slot");
    assert_eq!(harness.validate(&second[0]), first, "the failed node is retried next");
    assert!(harness.record().operator.released.is_empty());
    assert_eq!(harness.settle(), NO_NODES, "it holds the slot again");
}

#[test]
fn transaction_grants_as_many_nodes_as_the_store_takes() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 300, "a b c")]), budget(300, None));
    assert_eq!(harness.decide().change.unwrap().grants.len(), 116);
    assert_eq!(harness.settle().len(), 300);
}

#[test]
fn node_that_was_cordoned_meanwhile_is_not_granted() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), budget(4, None));
    harness.world.cordon("web9");
    let stale = harness.decide().change.unwrap();
    let at = harness.stored_record().1;
    let txn = stale.txn(&harness.world.fleet, at).unwrap();
    harness.world.cordon("web2");
    assert!(harness.world.commit(&txn).is_err(), "a policy is newer than the decision");
    let mut granted = harness.settle();
    granted.sort_unstable();
    assert_eq!(granted, ["web1", "web3", "web4"]);
}

#[test]
fn nodes_moved_at_once_are_not_broken() {
    let mut world = FakeFleet::with_roles(&[("web", 4, "a b")]);
    // All nodes get v2 at once, and none has reported when the next rollout starts.
    world.choose("v2");
    let mut harness = RolloutHarness::with_request(world, &crate::testing::request("v3", budget(1, None)));
    assert_eq!(harness.settle(), NO_NODES, "they may run at any moment: the budget is used");
    ["web1", "web2", "web3", "web4"].iter().for_each(|name| harness.world.answers(name, RunEnd::Validated));
    assert_eq!(harness.settle().len(), 1);
}

#[test]
fn soak_by_observation_ends_although_the_clock_was_set_back() {
    let strategy = Strategy { soak: seconds(10), ..budget(1, None) };
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), strategy);
    let first = harness.settle();
    harness.world.answers(&first[0], RunEnd::Validated);
    // Its state is old by the time in the store, and this replica has observed it for five seconds.
    harness.world.pass(minutes(1));
    harness.world.known_since = Some(harness.world.now - seconds(5));
    assert_eq!(harness.settle(), NO_NODES);
    // Three seconds later, during which the clock was set back by two.
    harness.world.pass(seconds(1));
    harness.world.known_since = Some(harness.world.now - seconds(8));
    assert_eq!(harness.settle().len(), 1);
}
