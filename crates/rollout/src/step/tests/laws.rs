//! Invariants under random events: nodes that validate, fail, are late or never report, join and leave, and operators
//! who send commands at any time.

use muster_core::fleet::Node;
use muster_core::names::NodeName;
use muster_core::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use muster_core::rollout::record::{DesiredRecord, PauseReason, RolloutPhase, RolloutRecord};
use muster_core::rollout::strategy::{self, Amount, MaxUnavailable, PerLabel, Promote, Reach, Wave};
use proptest::prelude::*;

use crate::command::{RetryTarget, RolloutCommand};
use crate::step::{Grant, RolloutChange, Step};
use crate::testing::{FakeFleet, RunEnd, after, node, request};

use super::RolloutHarness;
use super::harness::{failed, invalid, minutes, pending, seconds};

#[derive(Clone, Debug)]
enum Event {
    /// The node with this number reports its desired version.
    Answers(usize, u8),
    Away(usize),
    Back(usize),
    Reboots(usize),
    Joins(bool),
    Leaves(usize),
    Paused(usize),
    Cordoned(usize, bool),
    Passes(i64),
    Command(u8, usize),
    /// A replica decides and commits, or something else happens between the two.
    Steps,
    StaleStep(Box<Event>),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let simple = prop_oneof![
        8 => (0..20_usize, 0..8_u8).prop_map(|(node, how)| Event::Answers(node, how)),
        1 => (0..20_usize).prop_map(Event::Away),
        2 => (0..20_usize).prop_map(Event::Back),
        1 => (0..20_usize).prop_map(Event::Reboots),
        1 => any::<bool>().prop_map(Event::Joins),
        1 => (0..20_usize).prop_map(Event::Leaves),
        1 => (0..20_usize).prop_map(Event::Paused),
        1 => (0..20_usize, any::<bool>()).prop_map(|(node, on)| Event::Cordoned(node, on)),
        3 => (1..2000_i64).prop_map(Event::Passes),
        2 => (0..7_u8, 0..20_usize).prop_map(|(word, node)| Event::Command(word, node)),
        8 => Just(Event::Steps),
    ];
    let late = simple.clone().prop_map(|event| Event::StaleStep(Box::new(event)));
    prop::collection::vec(prop_oneof![9 => simple, 1 => late], 0..80)
}

prop_compose! {
    fn strategies()(
        first in 1..60_u8,
        soaks in any::<bool>(),
        manual in prop::bool::weighted(0.2),
        most in 1..4_u32,
        per in prop::option::of(1..3_u32),
        ramp in any::<bool>(),
        tolerated in 0..3_u32,
    ) -> strategy::Strategy {
        let wave = |percent, promote| Wave {
            reach: Reach::Percent(percent),
            soak: Some(if soaks { minutes(1) } else { seconds(0) }),
            promote,
        };
        let promote = if manual { Promote::Manual } else { Promote::Auto };
        let mut strategy = strategy::Strategy {
            waves: vec![wave(first, promote), wave(100, Promote::Auto)],
            max_unavailable: MaxUnavailable {
                default: Amount::Nodes(most),
                per: per.map(|count| PerLabel { label: "failure_domain".into(), count }),
                ..MaxUnavailable::default()
            },
            ramp,
            soak: seconds(if soaks { 10 } else { 0 }),
            ..strategy::Strategy::default()
        };
        strategy.failures.wave = Amount::Nodes(tolerated);
        strategy.failures.total = Amount::Nodes(tolerated + 1);
        strategy
    }
}

/// Applies events, and checks every transaction against the rules, which are written a second time here.
struct RandomRun {
    harness: RolloutHarness,
    joined: u32,
}

impl RandomRun {
    fn names(&self) -> Vec<NodeName> {
        self.harness.world.fleet.designed().map(|(name, _, _)| name.clone()).collect()
    }

    fn pick(&self, number: usize) -> Option<String> {
        let names = self.names();
        names.get(number % names.len().max(1)).map(ToString::to_string)
    }

    fn apply(&mut self, event: &Event) {
        let picked = |number: &usize| self.pick(*number);
        match event {
            Event::Answers(number, how) => {
                let Some(name) = picked(number) else { return };
                let ended = match how {
                    0 => failed(),
                    1 => invalid(),
                    2 => pending(),
                    3 => RunEnd::Configured,
                    _ => RunEnd::Validated,
                };
                self.harness.world.answers(&name, ended);
            }
            Event::Away(number) => {
                let Some(name) = picked(number) else { return };
                self.harness.world.silent(&name, seconds(0));
            }
            Event::Back(number) => {
                let Some(name) = picked(number) else { return };
                self.harness.world.connected(&name);
            }
            Event::Reboots(number) => {
                let Some(name) = picked(number) else { return };
                if self.harness.world.fleet.get(&node(&name)).unwrap().observed.is_some() {
                    self.harness.world.reboots(&name);
                }
            }
            Event::Joins(is_made) => {
                self.joined += 1;
                let name = format!("web{}", 100 + self.joined);
                self.harness.world.node(&name, "web", "b", &[]);
                if !is_made {
                    self.harness.world.unmade(&name);
                }
            }
            Event::Leaves(number) => {
                let Some(name) = picked(number).filter(|_| self.names().len() > 3) else { return };
                self.harness.world.leaves(&name);
            }
            Event::Paused(number) => {
                let Some(name) = picked(number) else { return };
                self.harness.world.pause(&name);
            }
            Event::Cordoned(number, on) => {
                let Some(name) = picked(number) else { return };
                if *on {
                    self.harness.world.cordon(&name);
                } else {
                    self.harness.world.uncordon(&name);
                }
            }
            Event::Passes(time) => self.harness.world.pass(seconds(*time)),
            Event::Command(word, number) => {
                let Some(name) = picked(number).map(|name| node(&name)) else { return };
                let command = match word {
                    0 => RolloutCommand::Pause { reason: String::new() },
                    1 | 2 => RolloutCommand::Resume,
                    3 => RolloutCommand::Promote { full: false },
                    4 => RolloutCommand::Retry(RetryTarget::AllFailed),
                    5 => RolloutCommand::Skip { node: name },
                    _ => RolloutCommand::Release { node: name },
                };
                // A refusal is fine here.
                drop(self.harness.command(&command));
            }
            Event::Steps => self.step(None),
            Event::StaleStep(meanwhile) => self.step(Some(meanwhile)),
        }
    }

    fn step(&mut self, meanwhile: Option<&Event>) {
        let (record, at) = self.harness.stored_record();
        let Step { change, roll_back, .. } = self.harness.decide();
        assert_eq!(roll_back, None);
        let Some(change) = change else { return };
        assert_eq!(record.phase, RolloutPhase::Running, "only a running rollout steps");
        self.check(&record, &change);
        let txn = change.txn(&self.harness.world.fleet, at).unwrap();
        if let Some(event) = meanwhile {
            self.apply(event);
        }
        let is_cordoned =
            |grant: &Grant| self.harness.world.fleet.get(&grant.node).is_some_and(|n| n.cordon().is_some());
        let is_stale = self.harness.stored_record().1 != at || change.grants.iter().any(is_cordoned);
        let committed = self.harness.world.commit(&txn);
        assert!(!(is_stale && committed.is_ok()), "a decision on a stale record was committed");
    }

    fn check(&self, before: &RolloutRecord, change: &RolloutChange) {
        let fleet = &self.harness.world.fleet;
        let plan = self.harness.plan.plan();
        let now = &change.record;
        for (number, wave) in now.waves.iter().enumerate() {
            let is_last = number + 1 == now.waves.len();
            assert!(is_last || wave.passed.is_some(), "a wave starts after the previous one has passed");
        }
        let granted: Vec<&NodeName> = change.grants.iter().map(|grant| &grant.node).collect();
        for name in &granted {
            let wave = plan.waves.iter().position(|wave| wave.nodes.iter().any(|planned| planned.node == **name));
            assert!(wave.is_none_or(|wave| wave < now.waves.len()), "{name} before its wave");
            assert!(self.is_connected(name), "{name} is disconnected");
            assert!(!now.operator.skipped.contains(*name), "{name} was skipped");
            let node = fleet.get(name).unwrap();
            let role = &node.record.as_ref().unwrap().role;
            assert_eq!(fleet.pause_of(name, role, self.harness.world.now), None);
            assert_eq!(node.cordon(), None);
            let parents = plan.after.get(role).into_iter().flatten();
            for parent in parents {
                let wave = plan.waves.iter().rposition(|wave| wave.nodes.iter().any(|node| node.role == *parent));
                let has_passed = |wave: usize| now.waves.get(wave).is_some_and(|wave| wave.passed.is_some());
                assert!(wave.is_none_or(has_passed), "{name} before {parent}");
            }
        }
        if before.operator.reviewed.is_none()
            && before.operator.retry.is_empty()
            && before.operator.retry_before.is_none()
        {
            let broken = plan.nodes().filter(|planned| {
                let known = fleet.get(&planned.node).filter(|node| node.is_designed());
                let excused = planned.repair || now.operator.skipped.contains(&planned.node);
                !excused && known.is_some_and(|node| self.has_failed(node, now))
            });
            let most = plan.strategy.failures.total.count_of(plan.node_count());
            assert!(broken.count() <= most || granted.is_empty(), "more nodes have failed than are tolerated");
        }
        self.check_budgets(now, &granted);
    }

    /// No budget that a grant uses is exceeded by it.
    fn check_budgets(&self, record: &RolloutRecord, granted: &[&NodeName]) {
        let fleet = &self.harness.world.fleet;
        let max = &self.harness.plan.plan().strategy.max_unavailable;
        let counts = |name: &NodeName| !record.operator.released.contains(name);
        let after = |of: &dyn Fn(&Node) -> bool| {
            let down = |name: &NodeName, node: &Node| granted.contains(&name) || !self.is_up(name, node, record);
            let new =
                |name: &NodeName, node: &Node| crate::preflight::is_unprovisioned(node) && !granted.contains(&name);
            let nodes = fleet.designed().filter(|(name, node, _)| of(node) && counts(name) && !new(name, node));
            nodes.filter(|(name, node, _)| down(name, node)).count()
        };
        for name in granted {
            let node = fleet.get(name).unwrap();
            if !self.is_up(name, node, record) || !counts(name) {
                continue;
            }
            let record = node.record.as_ref().unwrap();
            let of_role = |node: &Node| node.record.as_ref().is_some_and(|other| other.role == record.role);
            let all = fleet.designed().filter(|(_, node, _)| of_role(node)).count();
            assert!(after(&of_role) <= max.for_role(&record.role).at_least_one_of(all), "budget of {}", record.role);
            if let Some(per) = &max.per {
                let domain = &record.failure_domain;
                let of_domain = |node: &Node| node.record.as_ref().is_some_and(|other| other.failure_domain == *domain);
                assert!(after(&of_domain) <= usize::try_from(per.count).unwrap(), "budget of {domain}");
            }
        }
    }

    fn is_connected(&self, name: &NodeName) -> bool {
        self.harness.world.with_input(|input| input.is_connected(name))
    }

    /// It has validated its desired version.
    fn is_up(&self, name: &NodeName, node: &Node, record: &RolloutRecord) -> bool {
        let Some(desired) = self.harness.world.fleet.desired_of(name) else { return false };
        let Some((state, leaf)) = node.state() else { return false };
        let is_ours = |grant: &DesiredRecord| grant.rollout == record.id && grant.kept.is_none();
        let is_granted = node.desired.as_ref().is_some_and(|(grant, _)| is_ours(grant));
        let soak = self.harness.plan.plan().strategy.soak;
        let is_watched = is_granted && self.harness.world.now < leaf.since + soak;
        let rebooted = node.observed.as_ref().is_some_and(|(observed, _)| observed.rebooted);
        let validated =
            state.is_validated() && *state.version() == desired.version && node.has_answered(desired.generation);
        validated && !rebooted && !is_watched && self.is_connected(name)
    }

    fn has_failed(&self, node: &Node, record: &RolloutRecord) -> bool {
        let Some((grant, at)) = node.desired.as_ref() else { return false };
        let Some((state, _)) = node.state() else { return false };
        let is_ours = grant.rollout == record.id && grant.kept.is_none();
        let answered = node.observed.as_ref().and_then(|(observed, _)| observed.last.as_ref());
        let has_answered = answered.is_some_and(|last| last.generation.number >= at.0);
        let is_bad = match state {
            ServiceState::Configured { result, .. } => *result == ConfigureResult::Failure,
            ServiceState::Validated { result, .. } => *result == ValidationResult::Failure,
        };
        is_ours && has_answered && is_bad && *state.version() == record.to
    }

    /// From now on everything succeeds, and an operator helps: the rollout ends.
    fn finishes(&mut self) {
        let pauses: Vec<_> = self.harness.world.fleet.pauses().keys().cloned().collect();
        for scope in pauses {
            self.harness.world.delete(self.harness.world.keys.pause(&scope));
        }
        for name in self.names() {
            self.harness.world.uncordon(name.as_str());
            self.harness.world.connected(name.as_str());
        }
        for _ in 0..400 {
            for name in self.names() {
                let node = self.harness.world.fleet.get(&name).unwrap().clone();
                let record = self.harness.record();
                if !self.is_up(&name, &node, &record)
                    && !node.state().is_some_and(|(state, _)| state.is_validated() && self.on_time(&name, &node))
                {
                    self.harness.world.answers(name.as_str(), RunEnd::Validated);
                }
            }
            self.step(None);
            match self.harness.phase() {
                RolloutPhase::Completed => return,
                RolloutPhase::Paused { why } => {
                    assert!(!matches!(why, PauseReason::Blocked { .. }));
                    assert!(self.harness.command(&RolloutCommand::Resume).unwrap());
                }
                RolloutPhase::Running => {}
                other @ (RolloutPhase::Aborted { .. }
                | RolloutPhase::RolledBack { .. }
                | RolloutPhase::Superseded { .. }) => {
                    panic!("no command has ended it: {other:?}")
                }
            }
            drop(self.harness.command(&RolloutCommand::Promote { full: false }));
            let step = self.harness.decide();
            if let (None, Some(at)) = (step.change, step.recheck) {
                self.harness.world.now = at.max(self.harness.world.now);
            }
        }
        panic!("the rollout does not end: {:?}", self.harness.record());
    }

    /// It has reported its desired version, and only soak time is missing.
    fn on_time(&self, name: &NodeName, node: &Node) -> bool {
        let desired = self.harness.world.fleet.desired_of(name).unwrap();
        let rebooted = node.observed.as_ref().is_some_and(|(observed, _)| observed.rebooted);
        node.has_answered(desired.generation) && !rebooted
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_under_random_events(
        strategy in strategies(),
        ordered in any::<bool>(),
        webs in 2..8_u32,
        dbs in 1..4_u32,
        broken in any::<bool>(),
        happens in events(),
    ) {
        let mut world = FakeFleet::with_roles(&[("web", webs, "a b"), ("db", dbs, "a b")]);
        if broken {
            world.answers("web1", failed());
        }
        let mut plan_request = request("v2", strategy);
        if ordered {
            plan_request.after = after(&[("web", "db")]);
        }
        let mut run = RandomRun { harness: RolloutHarness::with_request(world, &plan_request), joined: 0 };
        happens.iter().for_each(|event| run.apply(event));
        run.finishes();
        let record = run.harness.record();
        for name in run.names() {
            if !record.operator.skipped.contains(&name) {
                let desired = run.harness.desired_version(name.as_str());
                prop_assert_eq!(desired, "v2", "{} does not have the target version", name);
            }
        }
        prop_assert!(run.harness.world.fleet.active_rollout_pointer().unwrap().0.completed);
    }
}
