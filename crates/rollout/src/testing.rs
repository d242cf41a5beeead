//! A small environment in memory, for tests of the engine and its hosts.
//!
//! It is built from keys, as a real one is. Its clock moves only when a test advances it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests alone use it")]

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::changes::ChangeLog;
use muster_core::fleet::{Fleet, KeyChange, Node};
use muster_core::keys::{self, Keys};
use muster_core::names::{EnvName, NodeName, Role, RunId, Version};
use muster_core::node::agent::{AgentInfo, PROTOCOL};
use muster_core::node::liveness::Link;
use muster_core::node::pause::{PauseRecord, PauseScope};
use muster_core::node::policy::{NodePolicy, PolicyRecord};
use muster_core::node::record::{Decommission, NodeRecord};
use muster_core::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use muster_core::release::ReleaseRecord;
use muster_core::release::manifest::SignedManifest;
use muster_core::replica::PresenceRecord;
use muster_core::report::reason::RunReason;
use muster_core::report::record::{LastRun, ObservedRecord, StatusLeaf};
use muster_core::report::{Cause, Counts, Outcome, ResourceError, RunResult, Verdict};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::{PlannedNode, PlannedWave, Prediction, RoleBudget, RolloutPlan, UnhealthyNode};
use muster_core::rollout::record::{ActiveRollout, DesiredRecord, FromVersion};
use muster_core::rollout::strategy::{Promote, Strategy};
use muster_core::txn::Generation;
use muster_core::txn::{Guard, Op, Revision, Txn};

use crate::decision::{DecisionInput, MIN_OPS};
use crate::plan::Request;

/// The time for which a disconnection is tolerated in these tests.
pub const DISCONNECT_GRACE: SignedDuration = SignedDuration::from_secs(30);

pub fn role(name: &str) -> Role {
    Role::new(name).unwrap()
}

pub fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub fn version(name: &str) -> Version {
    Version::new(name).unwrap()
}

/// An order of roles: `after(&[("web", "db cache")])`.
pub fn after(order: &[(&str, &str)]) -> BTreeMap<Role, BTreeSet<Role>> {
    let parents = |names: &str| names.split_whitespace().map(role).collect();
    order.iter().map(|(name, names)| (role(name), parents(names))).collect()
}

/// A request with this version and strategy, seed 1, and defaults otherwise.
pub fn request(to: &str, strategy: Strategy) -> Request {
    Request {
        to: version(to),
        strategy,
        after: BTreeMap::new(),
        seed: 1,
        at_once: false,
        allow_older: false,
        rolls_back: None,
    }
}

/// The end of a node's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    Validated,
    Configured,
    Pending(RunReason),
    Failed(RunReason),
    Invalid(RunReason),
}

/// An environment and its connections.
#[derive(Clone, Debug)]
pub struct FakeFleet {
    pub fleet: Fleet,
    pub keys: Keys,
    pub now: Timestamp,
    /// The run time that nodes report.
    pub run_time: SignedDuration,
    revision: u64,
    /// The revision of the last write of each key.
    put_at: BTreeMap<String, Revision>,
    silent: BTreeMap<NodeName, Timestamp>,
    link_changes: ChangeLog,
    /// Since when the deciding replica has observed the store; none if it trusts the times there.
    pub known_since: Option<Timestamp>,
}

impl FakeFleet {
    /// Releases v1 to v4 with serials 1 to 4, and no version chosen.
    pub fn new() -> Self {
        let env = EnvName::new("test").unwrap();
        let mut world = Self {
            keys: Keys::new(&env),
            fleet: Fleet::new(env),
            now: "2026-11-16T10:00:00Z".parse().unwrap(),
            run_time: SignedDuration::from_secs(20),
            revision: 0,
            put_at: BTreeMap::new(),
            silent: BTreeMap::new(),
            link_changes: ChangeLog::default(),
            known_since: None,
        };
        world.put(world.keys.store_epoch(), "7");
        for serial in 1..=4 {
            world.release(&format!("v{serial}"), serial);
        }
        world
    }

    /// The same with v1 chosen, and nodes that run it: `FakeFleet::with_roles(&[("web", 4, "a b"), ("db", 2, "a b")])` has
    /// web1 to web4, db1 and db2, in the failure domains a and b by turns.
    pub fn with_roles(roles: &[(&str, u32, &str)]) -> Self {
        let mut world = Self::new();
        world.choose("v1");
        for (name, count, domains) in roles {
            let domains: Vec<&str> = domains.split_whitespace().collect();
            for number in 1..=*count {
                let at = usize::try_from(number - 1).unwrap() % domains.len();
                let node = format!("{name}{number}");
                world.node(&node, name, domains[at], &[]);
                world.ends(&node, "v1", RunEnd::Validated);
            }
        }
        world
    }

    /// Calls a function with the current decision input.
    pub fn with_input<R>(&self, read: impl FnOnce(&DecisionInput<'_>) -> R) -> R {
        let link = |node: &NodeName| match self.silent.get(node) {
            Some(since) => {
                let every = self.fleet.get(node).and_then(Node::call_interval);
                Link::without_connection(*since, every, *since, self.now)
            }
            None => Link::Connected { since: Timestamp::UNIX_EPOCH },
        };
        let observed_for = |_: Revision| self.known_since.map(|since| self.now.duration_since(since));
        read(&DecisionInput {
            fleet: &self.fleet,
            link: &link,
            link_changes: &|since| self.link_changes.read(since),
            disconnect_grace: DISCONNECT_GRACE,
            max_ops: MIN_OPS,
            now: self.now,
            observed_for: &observed_for,
        })
    }

    pub fn pass(&mut self, time: SignedDuration) {
        self.now += time;
    }

    pub fn release(&mut self, name: &str, serial: u64) {
        let digest = format!("sha256:{serial:064x}");
        let record = ReleaseRecord {
            digest: digest.clone(),
            serial,
            size: 1,
            content: digest,
            signed: SignedManifest::default(),
            pushed: self.now,
            by: "test".into(),
            checks: None,
        };
        self.put_json(self.keys.release(&version(name)), &record);
    }

    /// Makes it the version of the environment.
    pub fn choose(&mut self, name: &str) -> Revision {
        self.put(self.keys.current_version(), name)
    }

    /// Adds a node of the design with a machine and a connected agent, and no report.
    pub fn node(&mut self, name: &str, of: &str, failure_domain: &str, labels: &[(&str, &str)]) {
        let record = NodeRecord {
            role: role(of),
            profile: None,
            labels: labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect(),
            failure_domain: failure_domain.into(),
            position: 0,
            flavor: None,
            host_name: None,
            leaving: None,
            created: None,
        };
        self.put_json(self.keys.node(&node(name)), &record);
        self.put(self.keys.provisioned(true, &node(name)), "{}");
    }

    /// Changes the node's record in the design.
    pub fn redesign(&mut self, name: &str, change: impl FnOnce(&mut NodeRecord)) {
        let mut record = self.fleet.get(&node(name)).unwrap().record.clone().unwrap();
        change(&mut record);
        self.put_json(self.keys.node(&node(name)), &record);
    }

    pub fn leaves(&mut self, name: &str) {
        let leaving = Some(Decommission { since: self.now, until: self.now });
        self.redesign(name, |record| record.leaving = leaving);
    }

    pub fn remove(&mut self, name: &str) {
        self.delete(self.keys.node(&node(name)));
    }

    /// The node has never had a machine or an agent.
    pub fn unmade(&mut self, name: &str) {
        self.delete(self.keys.provisioned(true, &node(name)));
        self.silent(name, SignedDuration::from_hours(1));
    }

    /// The agent disconnected this long ago.
    pub fn silent(&mut self, name: &str, ago: SignedDuration) {
        self.silent.insert(node(name), self.now - ago);
        self.link_changes.record(node(name), self.silent.len());
    }

    /// Cron starts the agent at this interval. Its last call has just ended.
    pub fn cron(&mut self, name: &str, every: SignedDuration) {
        let agent = AgentInfo::new(Some("1.0"), PROTOCOL, every.try_into().ok());
        let record = PresenceRecord { since: self.now, agent, ..PresenceRecord::default() };
        self.put_json(self.keys.presence(&node(name)), &record);
        self.silent(name, SignedDuration::ZERO);
    }

    pub fn connected(&mut self, name: &str) {
        self.silent.remove(&node(name));
        self.link_changes.record(node(name), self.silent.len());
    }

    pub fn pause(&mut self, name: &str) {
        let pause = PauseRecord { by: "ann".into(), reason: "disk".into(), since: self.now, until: None };
        self.put_json(self.keys.pause(&PauseScope::Host { node: node(name) }), &pause);
    }

    pub fn cordon(&mut self, name: &str) {
        let keeps = self.fleet.desired_of(&node(name)).map(|desired| FromVersion {
            version: desired.version,
            generation: desired.generation,
            allow_older: desired.allow_older,
        });
        let (policy, by, reason) = (NodePolicy::Cordoned, "ann".into(), "disk".into());
        self.put_json(self.keys.policy(&node(name)), &PolicyRecord { policy, by, reason, since: self.now, keeps });
    }

    pub fn uncordon(&mut self, name: &str) {
        self.delete(self.keys.policy(&node(name)));
    }

    /// A run of the node's desired version ends, and is reported.
    pub fn answers(&mut self, name: &str, ended: RunEnd) {
        let desired = self.fleet.desired_of(&node(name)).expect("a version was chosen").version;
        self.ends(name, desired.as_str(), ended);
    }

    /// A run of this version ends, for the node's current generation.
    pub fn ends(&mut self, name: &str, at: &str, ended: RunEnd) {
        let generation = self.fleet.desired_of(&node(name)).map(|desired| desired.generation).unwrap_or_default();
        let (result, outcome, reason) = match ended {
            RunEnd::Validated => (Ok(ValidationResult::Success), Outcome::Validated(Verdict::Passed), None),
            RunEnd::Invalid(reason) => {
                (Ok(ValidationResult::Failure), Outcome::Validated(Verdict::Failed), Some(reason))
            }
            RunEnd::Configured => (Err(ConfigureResult::Success), Outcome::Configured(RunResult::Changed), None),
            RunEnd::Pending(reason) => {
                (Err(ConfigureResult::Pending), Outcome::Configured(RunResult::Pending), Some(reason))
            }
            RunEnd::Failed(reason) => {
                (Err(ConfigureResult::Failure), Outcome::Configured(RunResult::Failed), Some(reason))
            }
        };
        let state = match result {
            Ok(result) => ServiceState::Validated { result, version: version(at) },
            Err(result) => ServiceState::Configured { result, version: version(at) },
        };
        let known = self.fleet.get(&node(name)).cloned().unwrap_or_default();
        let mut txn = Txn::new();
        for old in known.states.keys().filter(|old| **old != state) {
            txn = txn.op(Op::delete(self.keys.status(old, &node(name))));
        }
        let run = RunId::new(format!("run-{}", self.revision)).unwrap();
        // A state that repeats keeps its start.
        let since = known.states.get(&state).map_or(self.now, |leaf| leaf.since);
        let leaf = StatusLeaf { since, run: run.clone(), log: None };
        txn = txn.op(Op::put_json(self.keys.status(&state, &node(name)), &leaf).unwrap());
        let before = known.observed.map(|(observed, _)| observed).unwrap_or_default();
        let last = LastRun {
            run,
            outcome,
            version: version(at),
            digest: String::new(),
            generation,
            causes: vec![Cause::Version { version: version(at) }],
            reason,
            attempt: 0,
            started: self.now - self.run_time,
            ended: self.now,
            counts: Counts::default(),
            first_failure: None,
            errors: Vec::new(),
            log: None,
        };
        let observed = ObservedRecord {
            incarnation: 1,
            seq: before.seq + 1,
            state: Some(state.clone()),
            since: Some(self.now),
            passed: if state.is_validated() { Some(version(at)) } else { before.passed.clone() },
            rebooted: false,
            last: Some(last),
            ..before
        };
        txn = txn.op(Op::put_json(self.keys.observed(&node(name)), &observed).unwrap());
        self.commit(&txn).unwrap();
    }

    /// The node could not report in time, and rolled itself back.
    pub fn rolled_itself_back(&mut self, name: &str, from: &str, to: &str) {
        self.ends(name, to, RunEnd::Validated);
        let mut observed = self.fleet.get(&node(name)).unwrap().observed.clone().unwrap().0;
        if let Some(last) = &mut observed.last {
            last.causes = vec![Cause::AutoRollback { version: version(from), within: DISCONNECT_GRACE }];
        }
        self.put_json(self.keys.observed(&node(name)), &observed);
    }

    /// The node's last run has a very long error.
    pub fn reports_long_error(&mut self, name: &str) {
        let mut observed = self.fleet.get(&node(name)).unwrap().observed.clone().unwrap().0;
        let long = "long ".repeat(300);
        if let Some(last) = &mut observed.last {
            let (resource, file) = (Some(long.clone()), Some(long.clone()));
            last.errors = vec![ResourceError { resource, file, line: Some(7), message: long }];
        }
        self.put_json(self.keys.observed(&node(name)), &observed);
    }

    /// The machine rebooted.
    pub fn reboots(&mut self, name: &str) {
        let mut observed = self.fleet.get(&node(name)).unwrap().observed.clone().unwrap().0;
        observed.rebooted = true;
        self.put_json(self.keys.observed(&node(name)), &observed);
    }

    /// A staged rollout is active: `current_version` and `rollouts/active` in one transaction.
    pub fn active(&mut self, id: u64, from: &str, to: &str) {
        let number = self.fleet.current_version().map(|(_, at)| at.0).unwrap_or_default();
        let generation = Generation { epoch: 7, number };
        let active = ActiveRollout {
            id: RolloutId(id),
            from: Some(FromVersion { version: version(from), generation, allow_older: false }),
            to: version(to),
            floor: RolloutId(0),
            at_once: false,
            completed: false,
        };
        let txn = Txn::new().op(Op::put(self.keys.current_version(), to)).op(Op::put_json(
            self.keys.active_rollout(),
            &active,
        )
        .unwrap());
        self.commit(&txn).unwrap();
    }

    pub fn grant(&mut self, name: &str, to: &str, rollout: u64) -> Revision {
        let record = DesiredRecord {
            version: version(to),
            rollout: RolloutId(rollout),
            granted: self.now,
            expires: None,
            allow_older: false,
            confirm_within: None,
            kept: None,
        };
        self.put_json(self.keys.desired(&node(name)), &record)
    }

    pub fn put(&mut self, key: String, value: impl Into<Vec<u8>>) -> Revision {
        self.commit(&Txn::new().op(Op::put(key, value))).unwrap()
    }

    pub fn put_json<T: serde::Serialize>(&mut self, key: String, value: &T) -> Revision {
        self.commit(&Txn::new().op(Op::put_json(key, value).unwrap())).unwrap()
    }

    pub fn delete(&mut self, key: String) -> Revision {
        self.commit(&Txn::new().op(Op::delete(key))).unwrap()
    }

    /// Commits a transaction as a store would; returns the guard that failed, and then changes nothing.
    pub fn commit(&mut self, txn: &Txn) -> Result<Revision, Guard> {
        for guard in &txn.guards {
            let holds = match guard {
                Guard::Absent { key } => !self.put_at.contains_key(key),
                Guard::Unchanged { key, since } => self.put_at.get(key) == Some(since),
                Guard::NoneNewer { prefix, than } => {
                    let keys = self.put_at.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(prefix));
                    keys.into_iter().all(|(_, at)| at <= than)
                }
            };
            if !holds {
                return Err(guard.clone());
            }
        }
        self.revision += 1;
        let revision = Revision(self.revision);
        let mut changes = Vec::new();
        for op in &txn.ops {
            let value = match op {
                Op::Put { value, .. } => Some(value.as_slice()),
                Op::Delete { .. } => None,
            };
            match value {
                Some(_) => self.put_at.insert(op.key().to_owned(), revision),
                None => self.put_at.remove(op.key()),
            };
            let (_, key) = keys::parse(op.key()).unwrap();
            changes.push((KeyChange { key: op.key(), value, revision }, key));
        }
        self.fleet.apply(revision, changes);
        Ok(revision)
    }
}

impl Default for FakeFleet {
    fn default() -> Self {
        Self::new()
    }
}

/// A plan as text: one line per wave, `*` for repairs.
pub fn describe_plan(plan: &RolloutPlan) -> String {
    let mut lines = Vec::new();
    let from = plan.from.as_ref().map_or("nothing", Version::as_str);
    lines.push(format!("{from} -> {}{}", plan.to, if plan.at_once { ", at once" } else { "" }));
    for PlannedWave { stage, wave, nodes, soak, promote, .. } in &plan.waves {
        let shown = |planned: &PlannedNode| {
            let domain = planned.domain.as_ref().map(|domain| format!("@{domain}")).unwrap_or_default();
            format!("{}{}{domain}", if planned.repair { "*" } else { "" }, planned.node)
        };
        let nodes: Vec<String> = nodes.iter().map(shown).collect();
        let mut line = format!("stage {stage} wave {wave}: {}", nodes.join(" "));
        if !soak.is_zero() {
            line += &format!(", soak {soak:#}");
        }
        if *promote == Promote::Manual {
            line += ", then a manual promotion";
        }
        lines.push(line);
    }
    if !plan.already.is_empty() {
        let already: Vec<&str> = plan.already.iter().map(NodeName::as_str).collect();
        lines.push(format!("already there: {}", already.join(" ")));
    }
    for UnhealthyNode { node, state, why, repaired } in &plan.unhealthy {
        let then = if *repaired { "is repaired" } else { "waits" };
        lines.push(format!("{} {node}: {why}; {then}", state.as_str()));
    }
    let budget =
        |(role, budget): (&Role, &RoleBudget)| format!("{role} {} of {}", budget.max_unavailable, budget.nodes);
    let roles: Vec<String> = plan.budgets.roles.iter().map(budget).collect();
    let domains = plan.budgets.domains.iter().map(|(domain, count)| format!("@{domain} {count}"));
    lines.push(format!("unavailable at most: {}", roles.into_iter().chain(domains).collect::<Vec<_>>().join(", ")));
    let Prediction { node, measured, total } = plan.predicted;
    lines.push(format!("{total:#} if a node takes {node:#}{}", if measured { "" } else { ", which is a guess" }));
    lines.join("\n")
}
