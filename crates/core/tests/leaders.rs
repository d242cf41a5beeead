//! Leader election: one case for each cause, and random histories of a small fleet.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::{Fleet, KeyChange, Node};
use muster_core::keys::{self, Keys};
use muster_core::names::{EnvName, NodeName, Role, Version};
use muster_core::node::agent::{AgentInfo, PROTOCOL};
use muster_core::node::decommission::begin;
use muster_core::node::leaders::{ElectionCause, ElectionDecision, LeaderRecord, decide};
use muster_core::node::liveness::{Link, LivenessTimeouts};
use muster_core::node::policy::{NodePolicy, PolicyRecord};
use muster_core::node::record::{MachinePhase, MachineRecord, NodeRecord};
use muster_core::replica::PresenceRecord;
use muster_core::report::Interfaces;
use muster_core::report::record::ActiveRole;
use muster_core::txn::{Guard, Op, Revision};
use proptest::prelude::*;

const NODES: [&str; 4] = ["db1", "db2", "db3", "web1"];

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn role(name: &str) -> Role {
    Role::new(name).unwrap()
}

/// A fleet of four nodes, in a store that is a map, and who of them is connected.
struct ElectionWorld {
    keys: Keys,
    fleet: Fleet,
    revision: u64,
    silent_since: BTreeMap<NodeName, Timestamp>,
    now: i64,
}

impl ElectionWorld {
    /// No agent is connected yet, and the server has been listening since second 0.
    fn new(now: i64) -> Self {
        let env = EnvName::new("test").unwrap();
        let silent_since = NODES.map(|name| (node(name), at(0))).into();
        let mut world = Self { keys: Keys::new(&env), fleet: Fleet::new(env), revision: 0, silent_since, now };
        for name in NODES {
            world.designs(name, true);
        }
        world
    }

    fn apply(&mut self, ops: Vec<Op>) {
        self.revision += 1;
        let revision = Revision(self.revision);
        let parts: Vec<(String, Option<Vec<u8>>)> = ops
            .into_iter()
            .map(|op| match op {
                Op::Put { key, value, .. } => (key, Some(value)),
                Op::Delete { key } => (key, None),
            })
            .collect();
        let changes = parts
            .iter()
            .map(|(key, value)| (KeyChange { key, value: value.as_deref(), revision }, keys::parse(key).unwrap().1));
        self.fleet.apply(revision, changes);
    }

    fn record(name: &str) -> NodeRecord {
        NodeRecord {
            role: role(name.trim_end_matches(|c: char| c.is_ascii_digit())),
            profile: None,
            labels: BTreeMap::new(),
            failure_domain: name.into(),
            position: 0,
            flavor: None,
            host_name: None,
            leaving: None,
            created: None,
        }
    }

    fn designs(&mut self, name: &str, wanted: bool) {
        let key = self.keys.node(&node(name));
        let op = if wanted { Op::put_json(key, &Self::record(name)).unwrap() } else { Op::delete(key) };
        self.apply(vec![op]);
    }

    fn leaves(&mut self, name: &str) {
        let record = NodeRecord { leaving: Some(begin(at(self.now))), ..Self::record(name) };
        self.apply(vec![Op::put_json(self.keys.node(&node(name)), &record).unwrap()]);
    }

    fn in_domain(&mut self, name: &str, failure_domain: &str) {
        let record = NodeRecord { failure_domain: failure_domain.into(), ..Self::record(name) };
        self.apply(vec![Op::put_json(self.keys.node(&node(name)), &record).unwrap()]);
    }

    fn machine(&mut self, name: &str, phase: MachinePhase) {
        let machine = MachineRecord { driver: "test".into(), phase, attempt: 1, since: at(self.now) };
        self.apply(vec![Op::put_json(self.keys.machine(&node(name)), &machine).unwrap()]);
    }

    fn cordon(&mut self, name: &str, cordoned: bool) {
        let key = self.keys.policy(&node(name));
        let (policy, by, since) = (NodePolicy::Cordoned, "ada".into(), at(self.now));
        let record = PolicyRecord { policy, by, reason: "disk".into(), since, keeps: None };
        self.apply(vec![if cordoned { Op::put_json(key, &record).unwrap() } else { Op::delete(key) }]);
    }

    fn active(&mut self, name: &str, active: bool) {
        let key = self.keys.active_role(&Version::new("v1").unwrap(), &node(name));
        let value =
            ActiveRole { role: Self::record(name).role, interfaces: Interfaces::new(), services: Default::default() };
        self.apply(vec![if active { Op::put_json(key, &value).unwrap() } else { Op::delete(key) }]);
    }

    fn epoch(&mut self, epoch: u64) {
        self.apply(vec![Op::put(self.keys.store_epoch(), epoch.to_string())]);
    }

    fn leader(&mut self, name: Option<&str>, epoch: u64) {
        let record = LeaderRecord { node: name.map(node), epoch, since: at(0) };
        self.apply(vec![Op::put_json(self.keys.leader(&role("db")), &record).unwrap()]);
    }

    fn connect(&mut self, name: &str) {
        self.silent_since.remove(&node(name));
    }

    /// Cron starts the agent at this interval. Its last call has just ended.
    fn cron(&mut self, name: &str, every: SignedDuration) {
        let agent = AgentInfo::new(Some("1.0"), PROTOCOL, every.try_into().ok());
        let record = PresenceRecord { since: at(self.now), agent, ..PresenceRecord::default() };
        self.apply(vec![Op::put_json(self.keys.presence(&node(name)), &record).unwrap()]);
        self.silent_since.insert(node(name), at(self.now));
    }

    fn silence(&mut self, name: &str) {
        self.silent_since.entry(node(name)).or_insert(at(self.now));
    }

    fn link(&self, name: &NodeName) -> Link {
        match self.silent_since.get(name) {
            Some(since) => {
                let every = self.fleet.get(name).and_then(Node::call_interval);
                Link::without_connection(*since, every, at(0), at(self.now))
            }
            None => Link::Connected { since: at(0) },
        }
    }

    fn decide(&self) -> ElectionDecision {
        decide(&self.fleet, |name| self.link(name), LivenessTimeouts::default(), at(0), at(self.now))
    }

    /// Carries a decision out, as the controller does.
    fn carry_out(&mut self) -> ElectionDecision {
        let decision = self.decide();
        for change in &decision.changes {
            let txn = change.txn(&self.fleet).unwrap();
            self.apply(txn.ops);
        }
        decision
    }

    /// Node, epoch and cause of the decision for `db`.
    fn db_decision(&self) -> Option<(Option<String>, u64, ElectionCause)> {
        let change = self.decide().changes.into_iter().find(|change| change.role == role("db"))?;
        assert_eq!(change.now.since, at(self.now));
        Some((change.now.node.map(String::from), change.now.epoch, change.because))
    }
}

fn named(name: &str, epoch: u64, because: ElectionCause) -> Option<(Option<String>, u64, ElectionCause)> {
    Some((Some(name.to_owned()), epoch, because))
}

/// An hour after the start: no grace.
const LATER: i64 = 3600;

#[test]
fn node_of_cron_leads_only_if_no_other_can() {
    let mut world = ElectionWorld::new(LATER);
    world.cron("db1", SignedDuration::from_mins(30));
    world.active("db1", true);
    assert_eq!(world.db_decision(), named("db1", 1, ElectionCause::Vacant), "it is the only active one");
    world.connect("db2");
    world.active("db2", true);
    assert_eq!(world.db_decision(), named("db2", 1, ElectionCause::Vacant), "db2 is connected");
    // A leader stays between its calls, until two of them are missing.
    world.leader(Some("db1"), 3);
    assert_eq!(world.db_decision(), None);
    world.now += 3659;
    assert_eq!(world.db_decision(), None);
    world.now += 1;
    assert_eq!(world.db_decision(), named("db2", 4, ElectionCause::Lost));
}

#[test]
fn no_leader_without_connected_nodes() {
    assert_eq!(ElectionWorld::new(LATER).db_decision(), None);
}

#[test]
fn first_connected_node_leads_without_active_ones() {
    let mut world = ElectionWorld::new(LATER);
    world.connect("db3");
    world.connect("db2");
    assert_eq!(world.db_decision(), named("db2", 1, ElectionCause::Vacant));
}

#[test]
fn active_node_leads_before_inactive_one() {
    let mut world = ElectionWorld::new(LATER);
    world.connect("db1");
    world.connect("db2");
    world.active("db2", true);
    assert_eq!(world.db_decision(), named("db2", 1, ElectionCause::Vacant));
}

#[test]
fn inactive_leader_yields_to_first_active_node() {
    let mut world = ElectionWorld::new(LATER);
    world.connect("db1");
    world.connect("db2");
    world.leader(Some("db1"), 4);
    assert_eq!(world.db_decision(), None);
    world.active("db2", true);
    assert_eq!(world.db_decision(), named("db2", 5, ElectionCause::NotActive));
}

#[test]
fn active_leader_stays() {
    let mut world = ElectionWorld::new(LATER);
    for name in NODES {
        world.connect(name);
        world.active(name, true);
    }
    world.leader(Some("db2"), 4);
    assert_eq!(world.db_decision(), None);
}

#[test]
fn sole_leader_stays_after_failed_validation() {
    let mut world = ElectionWorld::new(LATER);
    world.connect("db1");
    world.connect("db2");
    world.leader(Some("db2"), 4);
    assert_eq!(world.db_decision(), None, "no node is active, and it is connected");
}

#[test]
fn silent_leader_stays_until_it_is_lost() {
    let mut world = ElectionWorld::new(LATER);
    for name in ["db1", "db2", "web1"] {
        world.connect(name);
        world.active(name, true);
    }
    world.leader(Some("db2"), 4);
    world.silence("db2");
    world.now += 29;
    assert_eq!(world.db_decision(), None);
    assert_eq!(world.decide().recheck, Some(at(LATER + 30)), "the controller has to decide again at that time");
    world.now += 1;
    assert_eq!(world.db_decision(), named("db1", 5, ElectionCause::Lost));
    // It is back: the other one stays.
    world.carry_out();
    world.connect("db2");
    assert_eq!(world.db_decision(), None);
}

#[test]
fn inactive_leader_is_lost_after_the_timeout() {
    let mut world = ElectionWorld::new(LATER);
    world.connect("db1");
    world.leader(Some("db2"), 4);
    world.silent_since.insert(node("db2"), at(LATER));
    world.now += 29;
    assert_eq!(world.db_decision(), None);
    world.now += 1;
    assert_eq!(world.db_decision(), named("db1", 5, ElectionCause::Lost));
}

#[test]
fn grace_period_keeps_leaders() {
    let mut world = ElectionWorld::new(59);
    world.connect("db1");
    world.leader(Some("db2"), 4);
    assert_eq!(world.db_decision(), None);
    assert_eq!(world.decide().recheck, Some(at(60)));
    world.now = 60;
    assert_eq!(world.db_decision(), named("db1", 5, ElectionCause::Lost));
}

#[test]
fn silent_domain_keeps_its_leaders() {
    let mut world = ElectionWorld::new(LATER);
    for name in NODES {
        world.in_domain(name, "rack1");
        world.connect(name);
        world.active(name, true);
    }
    world.leader(Some("db2"), 4);
    for name in ["db1", "db2", "db3"] {
        world.silence(name);
    }
    world.now += 3600;
    assert_eq!(world.db_decision(), None, "the cause is the server or the network");
}

#[test]
fn losing_the_last_leader_keeps_the_epoch() {
    let mut world = ElectionWorld::new(LATER);
    world.leader(Some("db1"), 4);
    assert_eq!(world.db_decision(), Some((None, 4, ElectionCause::Lost)));
    world.carry_out();
    assert_eq!(world.db_decision(), None, "that is written once");
    world.connect("db3");
    assert_eq!(world.db_decision(), named("db3", 5, ElectionCause::Vacant));
}

#[test]
fn leaving_node_loses_leadership() {
    for leaves in [
        |world: &mut ElectionWorld| world.leaves("db1"),
        |world: &mut ElectionWorld| world.designs("db1", false),
        |world: &mut ElectionWorld| world.machine("db1", MachinePhase::Releasing),
    ] {
        let mut world = ElectionWorld::new(LATER);
        world.connect("db1");
        world.connect("db2");
        world.active("db1", true);
        world.leader(Some("db1"), 4);
        world.machine("db1", MachinePhase::Provisioned);
        assert_eq!(world.db_decision(), None);
        leaves(&mut world);
        assert_eq!(world.db_decision(), named("db2", 5, ElectionCause::Left));
    }
}

#[test]
fn cordoned_node_does_not_lead() {
    let mut world = ElectionWorld::new(LATER);
    for name in ["db1", "db2"] {
        world.connect(name);
        world.active(name, true);
    }
    world.leader(Some("db1"), 4);
    assert_eq!(world.db_decision(), None);
    world.cordon("db1", true);
    let change = world.decide().changes.into_iter().find(|change| change.role == role("db")).unwrap();
    assert_eq!(world.db_decision(), named("db2", 5, ElectionCause::Cordoned));
    let policy = Guard::Absent { key: world.keys.policy(&node("db2")) };
    assert!(change.txn(&world.fleet).unwrap().guards.contains(&policy), "db2 may be cordoned meanwhile");
    world.cordon("db2", true);
    assert_eq!(world.db_decision(), Some((None, 4, ElectionCause::Cordoned)), "an active node is not enough");
    world.carry_out();
    assert_eq!(world.db_decision(), None);
    world.cordon("db1", false);
    assert_eq!(world.db_decision(), named("db1", 5, ElectionCause::Vacant));
}

#[test]
fn removed_role_keeps_its_epoch() {
    let mut world = ElectionWorld::new(LATER);
    world.leader(Some("db1"), 4);
    for name in ["db1", "db2", "db3"] {
        world.connect(name);
        world.designs(name, false);
    }
    assert_eq!(world.db_decision(), Some((None, 4, ElectionCause::Left)));
    world.carry_out();
    world.designs("db2", true);
    assert_eq!(world.db_decision(), named("db2", 5, ElectionCause::Vacant));
}

#[test]
fn restore_keeps_the_leader_with_a_new_epoch() {
    let mut world = ElectionWorld::new(LATER);
    world.connect("db1");
    world.epoch(1000);
    world.leader(Some("db1"), 1003);
    assert_eq!(world.db_decision(), None);
    world.epoch(2000);
    assert_eq!(world.db_decision(), named("db1", 2000, ElectionCause::Restored));
}

#[test]
fn no_election_during_restore_or_destruction() {
    for key in [Keys::restoring, Keys::destroying] {
        let mut world = ElectionWorld::new(LATER);
        world.connect("db1");
        world.apply(vec![Op::put(key(&world.keys), "{}")]);
        assert_eq!(world.decide(), ElectionDecision::default());
    }
}

#[test]
fn unreadable_leader_record_is_not_changed() {
    let mut world = ElectionWorld::new(LATER);
    world.connect("db1");
    world.apply(vec![Op::put(world.keys.leader(&role("db")), "no JSON")]);
    assert_eq!(world.db_decision(), None);
}

#[derive(Clone, Debug)]
enum ElectionStep {
    Connect(usize),
    Silence(usize),
    Active(usize, bool),
    Design(usize, bool),
    Cordon(usize, bool),
    Pass(i64),
    Restore,
}

fn step() -> impl Strategy<Value = ElectionStep> {
    let any_node = 0..NODES.len();
    prop_oneof![
        any_node.clone().prop_map(ElectionStep::Connect),
        any_node.clone().prop_map(ElectionStep::Silence),
        (any_node.clone(), any::<bool>()).prop_map(|(node, active)| ElectionStep::Active(node, active)),
        (any_node.clone(), any::<bool>()).prop_map(|(node, wanted)| ElectionStep::Design(node, wanted)),
        (any_node, any::<bool>()).prop_map(|(node, cordoned)| ElectionStep::Cordon(node, cordoned)),
        (1i64..60).prop_map(ElectionStep::Pass),
        Just(ElectionStep::Restore),
    ]
}

proptest! {
    /// The epoch only grows. A leader is able to lead, and leads for as long as it is. There is no leader only if no node is able.
    #[test]
    fn leader_is_unique_and_sticky(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = ElectionWorld::new(LATER);
        let mut store_epoch = 0;
        for step in steps {
            let before = world.fleet.leaders().clone();
            match step {
                ElectionStep::Connect(n) => world.connect(NODES[n]),
                ElectionStep::Silence(n) => world.silence(NODES[n]),
                ElectionStep::Active(n, active) => world.active(NODES[n], active),
                ElectionStep::Design(n, wanted) => world.designs(NODES[n], wanted),
                ElectionStep::Cordon(n, cordoned) => world.cordon(NODES[n], cordoned),
                ElectionStep::Pass(seconds) => world.now += seconds,
                ElectionStep::Restore => {
                    store_epoch = world.now.unsigned_abs();
                    world.epoch(store_epoch);
                }
            }
            world.carry_out();
            prop_assert!(world.decide().changes.is_empty(), "a second decision is a no-op");
            for (role, (now, _)) in world.fleet.leaders() {
                let was = before.get(role).map(|(was, _)| was);
                let live = |name: &NodeName| match world.link(name) {
                    Link::Connected { .. } | Link::BetweenCalls { .. } => true,
                    Link::Silent { since } => world.now - since.as_second() < 30,
                };
                let can_serve = |(_, node, record): &(&NodeName, &Node, &NodeRecord)| {
                    record.role == *role && node.policy() == NodePolicy::InService
                };
                let members: BTreeSet<&NodeName> =
                    world.fleet.designed().filter(can_serve).map(|(name, ..)| name).collect();
                let active: BTreeSet<&NodeName> = members
                    .iter()
                    .copied()
                    .filter(|name| live(name) && world.fleet.get(name).unwrap().active().is_some())
                    .collect();
                let can = |name: &NodeName| {
                    members.contains(name) && live(name) && (active.is_empty() || active.contains(name))
                };
                if let Some(was) = was {
                    prop_assert!(now.epoch >= was.epoch);
                    if now.node.is_some() && now.node != was.node {
                        prop_assert!(now.epoch > was.epoch);
                    }
                    if was.node.as_ref().is_some_and(can) {
                        prop_assert_eq!(&now.node, &was.node, "it is sticky");
                    }
                }
                match &now.node {
                    Some(leader) => {
                        prop_assert!(can(leader), "{} leads {}", leader, role);
                        prop_assert!(now.epoch >= store_epoch);
                    }
                    None => {
                        let connected = |name: &&NodeName| matches!(world.link(name), Link::Connected { .. });
                        prop_assert!(active.is_empty() && !members.into_iter().any(|name| connected(&name)));
                    }
                }
            }
        }
    }
}
