//! Random histories of a small fleet, checked after every step against invariants 1 to 4 and 15 of the design.
//!
//! The store here is a map; the moves, the fleet and the tags are the real ones.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::fleet::{Effects, Fleet, KeyChange};
use muster_core::keys::{self, Keys};
use muster_core::lookup::services::Service;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{DataKey, EnvName, NodeName, Role, RunId, ServiceName, Version};
use muster_core::node::decommission;
use muster_core::node::record::NodeRecord;
use muster_core::node::service_state::ServiceState;
use muster_core::report::history::{HISTORY_LENGTH, NodeHistory};
use muster_core::report::reason::{Need, RunReason};
use muster_core::report::record::{ActiveRole, ObservedRecord};
use muster_core::report::status_move::{self, MoveInput, StatusMove};
use muster_core::report::summary::OBSERVED_LIMIT;
use muster_core::report::{
    Cause, CheckResult, Counts, Facts, FirstFailure, Interfaces, LookupChange, Outcome, Report, ResourceError,
    RunResult, Verdict,
};
use muster_core::txn::{Generation, Guard, Op, Revision, Txn};
use proptest::prelude::*;
use serde_json::Value;

const NODES: [(&str, &str); 4] = [("db1", "db"), ("web1", "web"), ("web2", "web"), ("k8s-node1_blue", "k8s-node")];
const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];

/// An event in a fleet.
#[derive(Clone, Debug)]
enum FleetStep {
    /// The agent sends its next report.
    Report {
        node: usize,
        version: usize,
        outcome: Outcome,
        applied_nothing: bool,
        address: u8,
    },
    /// A report that was sent before arrives again.
    Repeat {
        node: usize,
        back: usize,
    },
    /// An agent without an incarnation connects.
    Hello {
        node: usize,
        rebooted: bool,
    },
    /// The node is lost; or is back.
    Withdraw {
        node: usize,
    },
    Restore {
        node: usize,
    },
    /// The operator takes the node out of service, or returns it. The next report is decided by that.
    Service {
        node: usize,
        on: bool,
    },
    /// The node leaves the design, or returns to it.
    Design {
        node: usize,
        leaves: bool,
    },
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        1 => Just(Outcome::Configured(RunResult::Unchanged)),
        1 => Just(Outcome::Configured(RunResult::Changed)),
        1 => Just(Outcome::Configured(RunResult::Failed)),
        1 => Just(Outcome::Configured(RunResult::Pending)),
        3 => Just(Outcome::Validated(Verdict::Passed)),
        1 => Just(Outcome::Validated(Verdict::Failed)),
        1 => Just(Outcome::Previewed(RunResult::Changed)),
    ]
}

fn step() -> impl Strategy<Value = FleetStep> {
    let node = 0..NODES.len();
    prop_oneof![
        6 => (node.clone(), 0..VERSIONS.len(), outcome(), any::<bool>(), 0..3u8).prop_map(
            |(node, version, outcome, applied_nothing, address)| FleetStep::Report { node, version, outcome, applied_nothing, address }
        ),
        2 => (node.clone(), 0..5usize).prop_map(|(node, back)| FleetStep::Repeat { node, back }),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, rebooted)| FleetStep::Hello { node, rebooted }),
        1 => node.clone().prop_map(|node| FleetStep::Withdraw { node }),
        1 => node.clone().prop_map(|node| FleetStep::Restore { node }),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, on)| FleetStep::Service { node, on }),
        1 => (node, any::<bool>()).prop_map(|(node, leaves)| FleetStep::Design { node, leaves }),
    ]
}

/// The store as a map, with the fleet that follows it.
struct FleetWorld {
    env: EnvName,
    keys: Keys,
    store: BTreeMap<String, (Vec<u8>, Revision)>,
    revision: Revision,
    fleet: Fleet,
    agents: Vec<ReportingAgent>,
    in_service: Vec<bool>,
}

/// State of an agent, and the real result of its node's last validation.
#[derive(Default)]
struct ReportingAgent {
    incarnation: u64,
    seq: u64,
    sent: Vec<Report>,
    /// The truth that the store must agree with: the version at which the last validation passed.
    passed: Option<Version>,
    /// True if a run since then has applied another version.
    overwritten: bool,
    boot: u32,
    /// True if that validation was made since the machine was last started.
    proved: bool,
}

impl ReportingAgent {
    /// Records a report that was sent, and the node's state by it.
    fn record(&mut self, report: &Report, applied_nothing: bool) {
        match report.outcome {
            Outcome::Validated(Verdict::Passed) => {
                (self.passed, self.overwritten, self.proved) = (Some(report.version.clone()), false, true);
            }
            Outcome::Validated(Verdict::Failed) => (self.passed, self.overwritten) = (None, false),
            Outcome::Configured(RunResult::Pending) | Outcome::Previewed(_) => {}
            Outcome::Configured(RunResult::Failed) if applied_nothing => {}
            // An overwritten version stays so until a validation passes.
            Outcome::Configured(_) => self.overwritten |= self.passed.as_ref() != Some(&report.version),
        }
        self.sent.push(report.clone());
    }
}

impl FleetWorld {
    fn new() -> Self {
        let env = EnvName::new("test").unwrap();
        let keys = Keys::new(&env);
        let fleet = Fleet::new(env.clone());
        let agents = NODES.iter().map(|_| ReportingAgent::default()).collect();
        let mut world = Self {
            env,
            keys,
            store: BTreeMap::new(),
            revision: Revision(0),
            fleet,
            agents,
            in_service: vec![true; NODES.len()],
        };
        for (index, (name, role)) in NODES.iter().enumerate() {
            let record = NodeRecord {
                role: Role::new(*role).unwrap(),
                profile: None,
                labels: BTreeMap::new(),
                failure_domain: "default".into(),
                position: index as u32,
                flavor: None,
                host_name: None,
                leaving: None,
                created: None,
            };
            let key = world.keys.node(&NodeName::new(*name).unwrap());
            world.commit(Txn::new().op(Op::put_json(key, &record).unwrap())).unwrap();
        }
        world
    }

    fn commit(&mut self, txn: Txn) -> Option<Effects> {
        let holds = |guard: &Guard| match guard {
            Guard::Absent { key } => !self.store.contains_key(key),
            Guard::Unchanged { key, since } => self.store.get(key).is_some_and(|(_, at)| at == since),
            Guard::NoneNewer { .. } => panic!("a report compares single keys"),
        };
        if !txn.guards.iter().all(holds) {
            return None;
        }
        let mut names: Vec<&str> = txn.ops.iter().map(Op::key).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before, "a transaction names a key twice: {txn:?}");
        assert!(txn.ops.len() <= 12, "a move is at most 12 operations: {txn:?}");

        self.revision = Revision(self.revision.0 + 1);
        let mut changes = Vec::new();
        for op in &txn.ops {
            match op {
                Op::Put { key, value, .. } => {
                    self.store.insert(key.clone(), (value.clone(), self.revision));
                    changes.push((key.as_str(), Some(value.as_slice())));
                }
                Op::Delete { key } => {
                    if self.store.remove(key).is_some() {
                        changes.push((key.as_str(), None));
                    }
                }
            }
        }
        let revision = self.revision;
        let changes = changes.into_iter().filter_map(|(key, value)| {
            let (_, parsed) = keys::parse(key)?;
            Some((KeyChange { key, value, revision }, parsed))
        });
        let before = self.fleet.snapshot();
        let effects = self.fleet.apply(revision, changes.collect::<Vec<_>>());
        // Servers keep the text of a snapshot until the effects report a change in it.
        if effects.lookups.is_empty() && effects.roles.is_empty() {
            assert_eq!(Snapshot { revision, ..before }, Snapshot { revision, ..self.fleet.snapshot() });
        }
        Some(effects)
    }

    fn name(node: usize) -> NodeName {
        NodeName::new(NODES[node].0).unwrap()
    }

    fn observed(&self, node: usize) -> Option<(ObservedRecord, Revision)> {
        let (value, at) = self.store.get(&self.keys.observed(&Self::name(node)))?;
        Some((serde_json::from_slice(value).unwrap(), *at))
    }

    fn decide_report(&mut self, node: usize, report: &Report) -> (StatusMove, Option<Effects>) {
        let name = Self::name(node);
        let observed = self.observed(node);
        let prefix = self.keys.past_runs(&name);
        let runs = self.store.iter().filter(|(key, _)| key.starts_with(&prefix));
        let runs = runs.map(|(key, (value, at))| (key.as_str(), &value[..], *at));
        let history = NodeHistory::from_store(runs, None).unwrap();
        let known = MoveInput {
            keys: &self.keys,
            node: &name,
            role: &Role::new(NODES[node].1).unwrap(),
            designed_at: self.fleet.get(&name).and_then(|node| node.record_at).unwrap(),
            in_service: self.in_service[node] && !self.fleet.get(&name).unwrap().is_leaving(),
            observed: observed.as_ref().map(|(observed, at)| (observed, *at)),
            history: &history,
            log: Some("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
            now: Timestamp::from_second(1_000_000 + self.revision.0 as i64).unwrap(),
        };
        let decided = status_move::decide(known, report).unwrap();
        let effects = match &decided {
            StatusMove::Apply(applied) => {
                Some(self.commit(applied.txn.clone()).expect("the guard holds: there is no other writer"))
            }
            StatusMove::AlreadyApplied | StatusMove::Outdated => None,
        };
        (decided, effects)
    }

    fn check(&self) {
        for (index, (name, _)) in NODES.iter().enumerate() {
            let name = NodeName::new(*name).unwrap();
            let node = self.fleet.get(&name).unwrap();
            let truth = &self.agents[index];

            // 1: at most one service state, at one version.
            assert!(node.states.len() <= 1, "{name} is in {:?}", node.states.keys());
            // 2: running_version only where the last validation passed, one at most, gone when overwritten.
            assert!(node.running.len() <= 1, "{name} runs {:?}", node.running);
            let running = truth.passed.as_ref().filter(|_| !truth.overwritten);
            assert_eq!(node.running.first(), running, "{name} has proved something else than it runs");
            // 4: active only after a passed validation.
            assert!(node.active.len() <= 1, "{name} is active at {:?}", node.active.keys());
            let offers = self.fleet.services().iter().any(|(_, nodes)| nodes.contains_key(&name));
            assert!(!offers || !node.active.is_empty(), "{name} offers a service, and is not active");
            if let Some(version) = node.active.keys().next() {
                assert_eq!(Some(version), truth.passed.as_ref(), "{name} is active at a version that it did not pass");
                assert!(truth.proved, "{name} is active, but has not proved itself since its machine was started");
            }
            // A leaving node is out of its role, and its validation does not count.
            if node.is_leaving() {
                assert!(node.active.is_empty(), "{name} leaves, and is active");
                assert!(self.fleet.running().values().all(|nodes| !nodes.contains(&name)), "{name} leaves, and counts");
                assert!(!self.fleet.late().contains(&name));
            } else {
                let counts = |version: &Version| self.fleet.running().get(version).is_some_and(|n| n.contains(&name));
                assert!(node.running.iter().all(counts), "{name} runs something that does not count");
            }
            // Limits of the records in the store.
            if let Some((value, _)) = self.store.get(&self.keys.observed(&name)) {
                assert!(value.len() <= OBSERVED_LIMIT, "observed of {name} is {} bytes", value.len());
            }
            assert!(node.history.keys().len() <= HISTORY_LENGTH);
        }

        // 14: a view that is built again from the store is the same.
        let mut rebuilt = Fleet::new(self.env.clone());
        for (key, (value, at)) in self.store.iter().rev() {
            let (_, parsed) = keys::parse(key).unwrap();
            rebuilt.apply(*at, [(KeyChange { key, value: Some(value), revision: *at }, parsed)]);
        }
        rebuilt.revision = self.fleet.revision;
        assert_eq!(rebuilt, self.fleet);

        // The server's tag of a key equals the one that an agent computes from its snapshot.
        let snapshot = self.fleet.snapshot();
        for key in [
            "active_roles",
            "services::s0",
            "services::nothing",
            "active_roles::db",
            "active_roles::web",
            "active_roles::web::eth0",
            "active_roles::k8s-node::eth1_5",
            "active_roles::nobody",
            "published::key::a0",
            "published::key::a1",
            "leader::db",
            "x",
        ] {
            assert_eq!(snapshot.tag(key), self.fleet.tag(key, None), "{key}");
        }
    }
}

fn reason(outcome: Outcome, applied_nothing: bool) -> Option<RunReason> {
    let needs = || vec![Need::Role { role: Role::new("db").unwrap(), want: 2, have: 0 }; 9];
    match outcome {
        Outcome::Configured(RunResult::Pending) => Some(RunReason::Waiting { needs: needs() }),
        Outcome::Configured(RunResult::Failed) if applied_nothing => Some(RunReason::NotCompiled),
        Outcome::Configured(RunResult::Failed) => Some(RunReason::Machine { problem: "long ".repeat(500) }),
        Outcome::Configured(_) | Outcome::Validated(_) | Outcome::Previewed(_) => None,
    }
}

fn report(
    world: &FleetWorld,
    node: usize,
    version: usize,
    outcome: Outcome,
    applied_nothing: bool,
    address: u8,
) -> Report {
    let agent = &world.agents[node];
    let now = Timestamp::from_second(1_000_000 + world.revision.0 as i64).unwrap();
    let failed = matches!(outcome, Outcome::Configured(RunResult::Failed));
    Report {
        node: FleetWorld::name(node),
        incarnation: agent.incarnation,
        seq: agent.seq,
        run: RunId::new(format!("r{}-{}", agent.incarnation, agent.seq.div_ceil(2))).unwrap(),
        outcome,
        version: Version::new(VERSIONS[version]).unwrap(),
        digest: "sha256:0".into(),
        generation: Generation { epoch: 1, number: 1 },
        causes: match outcome {
            // Some are made between runs.
            Outcome::Validated(_) if address == 0 => vec![Cause::Schedule],
            Outcome::Validated(_) | Outcome::Configured(_) | Outcome::Previewed(_) => {
                vec![
                    Cause::LookedUp { changes: vec![LookupChange { key: "k".repeat(300), what: "w".repeat(300) }; 50] };
                    20
                ]
            }
        },
        reason: reason(outcome, applied_nothing),
        attempt: 0,
        started: now,
        ended: now,
        counts: Counts::default(),
        errors: vec![
            ResourceError {
                resource: Some("r".repeat(500)),
                file: Some("/f".repeat(500)),
                line: Some(1),
                message: "ä".repeat(4000)
            };
            if failed { 30 } else { 0 }
        ],
        changes: Vec::new(),
        first_failure: failed.then(|| FirstFailure {
            run: RunId::new("r1").unwrap(),
            at: now,
            error: ResourceError { message: "ä".repeat(4000), ..ResourceError::default() },
        }),
        checks: match outcome {
            Outcome::Validated(Verdict::Failed) => vec![failed_check(); 30],
            Outcome::Validated(_) | Outcome::Configured(_) | Outcome::Previewed(_) => Vec::new(),
        },
        hooks: Vec::new(),
        // One of the addresses stands for a node that offers more than can be kept.
        services: (0..if address == 2 { 40 } else { 1 })
            .map(|number| ServiceName::new(format!("s{number}")).unwrap())
            .map(|name| {
                (name, Service { address: format!("10.0.0.{address}"), port: 80, tags: vec!["t".repeat(63); 9] })
            })
            .collect(),
        published: (address < 2).then(|| {
            let values = (0..=address).map(|number| (format!("key::a{number}"), Value::from(agent.seq % 3)));
            values.map(|(key, value)| (DataKey::new(key).unwrap(), value)).collect()
        }),
        facts: Facts {
            interfaces: Interfaces::from([
                ("eth0".into(), format!("10.0.0.{address}")),
                ("eth1.5".into(), "10.1.0.1".into()),
            ]),
            boot: Some(agent.boot.to_string()),
            agent: String::new(),
            ..Facts::default()
        },
        // One of the addresses stands for a run that looked up more than can be kept.
        lookups: (0..if address == 2 { 200 } else { 3 })
            .map(|number| format!("active_roles::web::eth{number}"))
            .map(|key| (key.clone(), world.fleet.tag(&key, None)))
            .collect(),
        log: String::new(),
    }
}

fn failed_check() -> CheckResult {
    CheckResult { name: "c".repeat(500), verdict: Verdict::Failed, message: "ä\n".repeat(4000), millis: 1 }
}

/// Applies the steps to a fleet, and checks all invariants after each.
fn play(steps: &[FleetStep]) {
    let mut world = FleetWorld::new();
    for step in steps {
        match step {
            FleetStep::Hello { node, rebooted } => world.hello(*node, *rebooted),
            FleetStep::Report { node, version, outcome, applied_nothing, address } => {
                if world.agents[*node].incarnation > 0 {
                    world.send_report(*node, *version, *outcome, *applied_nothing, *address);
                }
            }
            FleetStep::Repeat { node, back } => world.repeat_report(*node, *back),
            FleetStep::Withdraw { node } => world.withdraw(*node),
            FleetStep::Restore { node } => world.restore(*node),
            FleetStep::Service { node, on } => world.in_service[*node] = *on,
            FleetStep::Design { node, leaves } => world.redesign(*node, *leaves),
        }
        world.check();
    }
}

impl FleetWorld {
    fn hello(&mut self, node: usize, rebooted: bool) {
        if rebooted {
            self.agents[node].boot += 1;
            self.agents[node].proved = false;
        }
        let boot = self.agents[node].boot.to_string();
        let observed = self.observed(node);
        let seen = observed.as_ref().map(|(observed, at)| (observed, *at));
        let welcome = status_move::assign_incarnation(&self.keys, &Self::name(node), seen, None, Some(&boot)).unwrap();
        self.commit(welcome.txn.expect("an agent without an incarnation gets a new one")).unwrap();
        let agent = &mut self.agents[node];
        assert!(welcome.incarnation > agent.incarnation, "an incarnation was assigned twice");
        (agent.incarnation, agent.seq) = (welcome.incarnation, 0);
    }

    fn send_report(&mut self, node: usize, version: usize, outcome: Outcome, applied_nothing: bool, address: u8) {
        self.agents[node].seq += 1;
        let report = report(self, node, version, outcome, applied_nothing, address);
        let name = Self::name(node);
        let before = self.store.clone();
        let state_before: Vec<ServiceState> = self.fleet.get(&name).unwrap().states.keys().cloned().collect();
        let active_before = self.fleet.get(&name).unwrap().active().cloned();
        let (decided, effects) = self.decide_report(node, &report);
        assert!(matches!(decided, StatusMove::Apply(_)), "a new report is applied");
        self.agents[node].record(&report, applied_nothing);

        // 15: an unchanged run of a validated node touches no status leaf.
        let was_validated = |state: &ServiceState| matches!(state, ServiceState::Validated { version, .. } if *version == report.version);
        if report.outcome == Outcome::Configured(RunResult::Unchanged) && state_before.iter().any(was_validated) {
            assert_eq!(status_leaves(&before), status_leaves(&self.store), "an unchanged run touched a status leaf");
        }
        // 4: a change of the version alone wakes no node; an upgrade does not hide the node.
        let active_after = self.fleet.get(&name).unwrap().active().cloned();
        if active_before == active_after {
            let woken = effects.unwrap().lookups;
            let by_role = woken.iter().filter(|key| !key.starts_with("published::")).count();
            assert_eq!(by_role, 0, "woken although nothing changed for other nodes: {woken:?}");
        }
        if matches!(report.outcome, Outcome::Configured(_)) {
            assert_eq!(active_before, active_after, "a run without a validation changed what other nodes look up");
        }
    }

    /// 3: a report that is applied twice has the effect of one; an older one is a no-op.
    fn repeat_report(&mut self, node: usize, back: usize) {
        let Some(report) = self.agents[node].sent.iter().rev().nth(back).cloned() else { return };
        let before = self.store.clone();
        let (decided, _) = self.decide_report(node, &report);
        assert!(!matches!(decided, StatusMove::Apply(_)), "a report was applied twice");
        assert_eq!(before, self.store, "an old report changed something");
    }

    fn withdraw(&mut self, node: usize) {
        let Some((observed, at)) = self.observed(node) else { return };
        let Some(passed) = observed.passed else { return };
        let name = Self::name(node);
        let guard = Guard::observed(self.keys.observed(&name), Some(at));
        let txn = Txn::new().guard(guard).op(Op::delete(self.keys.active_role(&passed, &name)));
        self.commit(txn).unwrap();
    }

    fn restore(&mut self, node: usize) {
        let name = Self::name(node);
        let Some((observed, at)) = self.observed(node) else { return };
        if observed.rebooted || self.fleet.get(&name).unwrap().is_leaving() {
            return;
        }
        let Some(passed) = observed.passed.clone() else { return };
        let guard = Guard::observed(self.keys.observed(&name), Some(at));
        let role = Role::new(NODES[node].1).unwrap();
        let value = ActiveRole::new(role, &observed);
        let txn = Txn::new().guard(guard).op(Op::put_json(self.keys.active_role(&passed, &name), &value).unwrap());
        self.commit(txn).unwrap();
    }

    fn redesign(&mut self, node: usize, leaves: bool) {
        let name = Self::name(node);
        let known = self.fleet.get(&name).unwrap();
        let leaving = leaves.then(|| decommission::begin(Timestamp::from_second(1_000_000).unwrap()));
        let record = NodeRecord { leaving, ..known.record.clone().unwrap() };
        let mut txn = Txn::new().op(Op::put_json(self.keys.node(&name), &record).unwrap());
        if leaves {
            let active = known.active.keys().map(|version| Op::delete(self.keys.active_role(version, &name)));
            txn.ops.extend(active);
        }
        let effects = self.commit(txn).unwrap();
        assert!(effects.records && !effects.desired);
    }
}

fn status_leaves(store: &BTreeMap<String, (Vec<u8>, Revision)>) -> Vec<(String, Revision)> {
    let leaves = store.iter().filter(|(key, _)| key.contains("/status/"));
    leaves.map(|(key, (_, at))| (key.clone(), *at)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_the_invariants(steps in prop::collection::vec(step(), 1..60)) {
        play(&steps);
    }
}

#[test]
fn upgrade_keeps_the_node_active() {
    let mut world = FleetWorld::new();
    let node = 0;
    let name = FleetWorld::name(node);
    let seen = |world: &FleetWorld| {
        let node = world.fleet.get(&name).unwrap();
        let state = node.state().map(|(state, _)| format!("{state} {}", state.version()));
        let running = node.running.first().map_or("nothing".into(), Version::to_string);
        format!(
            "{}, runs {running}, active at {:?}",
            state.unwrap_or_default(),
            node.active.keys().map(Version::as_str).collect::<Vec<_>>()
        )
    };
    let welcome = status_move::assign_incarnation(&world.keys, &name, None, None, Some("0")).unwrap();
    world.commit(welcome.txn.unwrap()).unwrap();
    world.agents[node].incarnation = 1;
    let mut states = Vec::new();
    for (version, outcome) in [
        (0, Outcome::Configured(RunResult::Pending)),
        (0, Outcome::Configured(RunResult::Changed)),
        (0, Outcome::Validated(Verdict::Passed)),
        (1, Outcome::Configured(RunResult::Pending)),
        (1, Outcome::Configured(RunResult::Changed)),
        (1, Outcome::Validated(Verdict::Passed)),
        (1, Outcome::Configured(RunResult::Unchanged)),
        (1, Outcome::Validated(Verdict::Failed)),
    ] {
        world.agents[node].seq += 1;
        let report = report(&world, node, version, outcome, false, 1);
        world.decide_report(node, &report);
        states.push(format!("{} {} of {}: {}", outcome.phase(), outcome.word(), VERSIONS[version], seen(&world)));
    }
    assert_eq!(
        states,
        [
            "configured pending of v1: pending v1, runs nothing, active at []",
            "configured changed of v1: configured v1, runs nothing, active at []",
            "validated passed of v1: validated v1, runs v1, active at [\"v1\"]",
            "configured pending of v2: pending v2, runs v1, active at [\"v1\"]",
            "configured changed of v2: configured v2, runs nothing, active at [\"v1\"]",
            "validated passed of v2: validated v2, runs v2, active at [\"v2\"]",
            "configured unchanged of v2: validated v2, runs v2, active at [\"v2\"]",
            "validated failed of v2: invalid v2, runs nothing, active at []",
        ]
    );
}

/// Otherwise a rollout would wait for each node whose drift is repaired, and a fleet always has such nodes.
#[test]
fn repaired_drift_keeps_the_node_validated() {
    let mut world = FleetWorld::new();
    let name = FleetWorld::name(0);
    let welcome = status_move::assign_incarnation(&world.keys, &name, None, None, Some("0")).unwrap();
    world.commit(welcome.txn.unwrap()).unwrap();
    world.agents[0].incarnation = 1;
    let mut send = |version, outcome, causes: &[Cause]| {
        world.agents[0].seq += 1;
        let report = Report { causes: causes.to_vec(), ..report(&world, 0, version, outcome, false, 1) };
        world.decide_report(0, &report);
        let node = world.fleet.get(&name).unwrap();
        let (state, leaf) = node.state().unwrap();
        (format!("{state} {}", state.version()), leaf.clone())
    };
    let (changed, timed) = (Outcome::Configured(RunResult::Changed), [Cause::Schedule]);
    assert_eq!(send(0, changed, &timed).0, "configured v1", "it was not validated before");
    let validated = send(0, Outcome::Validated(Verdict::Passed), &timed);
    assert_eq!(validated.0, "validated v1");
    assert_eq!(send(0, changed, &timed), validated, "neither state nor leaf change");
    assert_eq!(send(0, Outcome::Validated(Verdict::Passed), &timed), validated);
    assert_eq!(send(0, changed, &timed), validated);
    assert_eq!(send(0, Outcome::Validated(Verdict::Failed), &timed).0, "invalid v1", "the repair has broken it");
    assert_eq!(send(0, changed, &timed).0, "configured v1");
    assert_eq!(send(0, Outcome::Validated(Verdict::Passed), &timed).0, "validated v1");
    assert_eq!(send(0, changed, &[Cause::Retry { attempt: 1 }]).0, "configured v1", "a run of another cause");
    assert_eq!(send(0, Outcome::Validated(Verdict::Passed), &timed).0, "validated v1");
    assert_eq!(send(0, Outcome::Configured(RunResult::Failed), &timed).0, "failed v1");
}

#[test]
fn validation_of_old_release_keeps_newer_reason() {
    let waits = (Outcome::Configured(RunResult::Pending), "pending v2");
    let is_refused = (Outcome::Configured(RunResult::Failed), "failed v2");
    for (newer, left) in [waits, is_refused] {
        let mut world = FleetWorld::new();
        let name = FleetWorld::name(0);
        let welcome = status_move::assign_incarnation(&world.keys, &name, None, None, Some("0")).unwrap();
        world.commit(welcome.txn.unwrap()).unwrap();
        world.agents[0].incarnation = 1;
        let mut send = |version, outcome, address| {
            world.agents[0].seq += 1;
            let report = report(&world, 0, version, outcome, true, address);
            world.decide_report(0, &report);
            let node = world.fleet.get(&name).unwrap();
            let (state, leaf) = node.state().map(|(state, leaf)| (state.clone(), leaf.clone())).unwrap();
            let last = world.observed(0).unwrap().0.last.unwrap();
            let active = node.active.keys().next().cloned();
            (format!("{state} {}", state.version()), leaf, last.reason, node.running.first().cloned(), active)
        };
        let (between_runs, in_a_run) = (0, 1);
        send(0, Outcome::Configured(RunResult::Changed), in_a_run);
        send(0, Outcome::Validated(Verdict::Passed), in_a_run);
        let (state, leaf, reason, running, active) = send(1, newer, in_a_run);
        assert_eq!(state, left);
        assert!(reason.is_some() && running.is_some() && active.is_some());
        for _ in 0..2 * HISTORY_LENGTH {
            let fails = send(0, Outcome::Validated(Verdict::Failed), between_runs);
            assert_eq!(fails, (state.clone(), leaf.clone(), reason.clone(), None, None));
            let passes = send(0, Outcome::Validated(Verdict::Passed), between_runs);
            assert_eq!(passes, (state.clone(), leaf.clone(), reason.clone(), running.clone(), active.clone()));
        }
        let (state, ..) = send(1, Outcome::Validated(Verdict::Passed), between_runs);
        assert_eq!(state, "validated v2", "its own checks count");
    }
}

#[test]
fn newest_incarnation_wins() {
    let mut world = FleetWorld::new();
    let name = FleetWorld::name(0);
    world.agents[0] = ReportingAgent { incarnation: 2, seq: 1, ..ReportingAgent::default() };
    let newer = report(&world, 0, 0, Outcome::Configured(RunResult::Changed), false, 1);
    assert!(matches!(world.decide_report(0, &newer).0, StatusMove::Apply(_)));
    world.agents[0] = ReportingAgent { incarnation: 1, seq: 99, ..ReportingAgent::default() };
    let zombie = report(&world, 0, 1, Outcome::Validated(Verdict::Passed), false, 1);
    assert_eq!(world.decide_report(0, &zombie).0, StatusMove::Outdated);
    assert_eq!(world.fleet.get(&name).unwrap().running.len(), 0);
}

#[test]
fn unreadable_values_are_listed() {
    let mut world = FleetWorld::new();
    let key = world.keys.observed(&FleetWorld::name(0));
    world.commit(Txn::new().op(Op::put(key.clone(), "not json"))).unwrap();
    assert_eq!(world.fleet.unreadable().keys().collect::<Vec<_>>(), [&key]);
    world.commit(Txn::new().op(Op::delete(key))).unwrap();
    assert_eq!(world.fleet.unreadable().len(), 0);
}
