//! Status of a node, one case for each obstacle, and the dependents of a leaving node: nodes that have yet to run without it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::{DesiredVersion, Fleet, KeyChange, Node};
use muster_core::keys::{self, Keys};
use muster_core::lookup::services::Service;
use muster_core::lookup::{Lookups, Tag};
use muster_core::names::{EnvName, NodeName, Role, RunId, ServiceName, Version};
use muster_core::node::decommission::{DRAIN_TIMEOUT, RoleLookups, begin, dependents};
use muster_core::node::liveness::Link;
use muster_core::node::pause::{NodePause, PauseRecord, PauseScope};
use muster_core::node::record::{MachinePhase, MachineRecord, MachineStage, NodeRecord};
use muster_core::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use muster_core::node::status::{Activity, node_status};
use muster_core::report::reason::{Need, RunReason};
use muster_core::report::record::{ActiveRole, LastRun, ObservedRecord, StatusLeaf};
use muster_core::report::{Counts, Interfaces, Outcome, ResourceError, RunResult};
use muster_core::txn::{Generation, Revision};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn version(text: &str) -> Version {
    Version::new(text).unwrap()
}

/// An environment in which `db1` is active, and `lb1` has looked up some web node that is not.
fn fleet() -> Fleet {
    let env = EnvName::new("test").unwrap();
    let (keys, lb1) = (Keys::new(&env), NodeName::new("lb1").unwrap());
    let db1 =
        ActiveRole { role: Role::new("db").unwrap(), interfaces: Interfaces::new(), services: Default::default() };
    let seen = Lookups::from([("active_roles::web".to_owned(), Tag::absent())]);
    let observed = ObservedRecord { looked_up: RoleLookups::new(&seen), ..ObservedRecord::default() };
    let values = [
        (keys.active_role(&version("v1"), &NodeName::new("db1").unwrap()), serde_json::to_vec(&db1)),
        (keys.observed(&lb1), serde_json::to_vec(&observed)),
        (keys.node(&lb1), serde_json::to_vec(&record("lb"))),
        (keys.node(&NodeName::new("web2").unwrap()), serde_json::to_vec(&record("web"))),
    ];
    let mut fleet = Fleet::new(env);
    for (key, value) in values {
        let change = KeyChange { key: &key, value: Some(&value.unwrap()), revision: Revision(1) };
        fleet.apply(Revision(1), [(change, keys::parse(&key).unwrap().1)]);
    }
    fleet
}

fn record(role: &str) -> NodeRecord {
    NodeRecord {
        role: Role::new(role).unwrap(),
        profile: None,
        labels: BTreeMap::new(),
        failure_domain: "a".into(),
        position: 0,
        flavor: None,
        host_name: None,
        leaving: None,
        created: None,
    }
}

/// A web node that leaves, after it was in service.
fn leaving(node: Node) -> Node {
    let observed = ObservedRecord { passed: Some(version("v1")), ..ObservedRecord::default() };
    let record = NodeRecord { leaving: Some(begin(at(70))), ..record("web") };
    Node { record: Some(record), observed: Some((observed, Revision(1))), ..node }
}

fn last(reason: Option<RunReason>, errors: Vec<ResourceError>) -> LastRun {
    LastRun {
        run: RunId::new("r1").unwrap(),
        outcome: Outcome::Configured(RunResult::Failed),
        version: version("v1"),
        digest: String::new(),
        generation: Generation::default(),
        causes: Vec::new(),
        reason,
        attempt: 2,
        started: at(0),
        ended: at(0),
        counts: Counts::default(),
        first_failure: None,
        errors,
        log: None,
    }
}

fn node(state: Option<ServiceState>, last_run: Option<LastRun>) -> Node {
    // A state is the result of a run.
    let last = last_run.or_else(|| state.as_ref().map(|_| last(None, vec![])));
    let leaf = StatusLeaf { since: at(50), run: RunId::new("r1").unwrap(), log: None };
    Node {
        states: state.into_iter().map(|state| (state, leaf.clone())).collect::<BTreeMap<_, _>>(),
        observed: Some((ObservedRecord { last, ..ObservedRecord::default() }, Revision(1))),
        ..Node::default()
    }
}

fn machine(phase: MachinePhase) -> Node {
    let record = MachineRecord { driver: "local".into(), phase, attempt: 3, since: at(10) };
    Node { machine: Some((record, Revision(1))), ..Node::default() }
}

/// Compares the state and the reason of nodes that should run v1.
fn assert_states<const N: usize>(table: [(Node, Link, Activity, &str); N]) {
    for (node, link, activity, expected) in table {
        let status = node_status(&fleet(), &node, Some(&desired_v1()), link, &activity, None);
        let reason = status.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        assert_eq!(format!("{}{reason}", status.state.as_str()), expected);
    }
}

fn desired_v1() -> DesiredVersion {
    DesiredVersion {
        version: version("v1"),
        generation: Generation::default(),
        allow_older: false,
        confirm_within: None,
    }
}

const CONNECTED: Link = Link::Connected { since: Timestamp::UNIX_EPOCH };
const SILENT: Link = Link::Silent { since: Timestamp::UNIX_EPOCH };

#[test]
fn machine_of_a_node_determines_its_state() {
    let leaves = |phase| leaving(machine(phase));
    let failed = |during, cause: &str| MachinePhase::Failed { during, cause: cause.into(), retry: None };
    assert_states([
        (
            leaves(MachinePhase::Provisioned),
            CONNECTED,
            Activity::Idle,
            "leaving: waits until lb1 has run without it, at the latest until 00:03:10 UTC",
        ),
        (
            Node { observed: None, ..leaves(MachinePhase::Booting) },
            SILENT,
            Activity::Idle,
            "leaving: its machine is about to be released",
        ),
        (leaves(MachinePhase::Releasing), CONNECTED, Activity::Idle, "leaving: its machine is being released"),
        (
            leaves(failed(MachineStage::Releasing, "it hangs")),
            SILENT,
            Activity::Idle,
            "leaving: its machine failed while releasing (attempt 3): it hangs",
        ),
        (machine(MachinePhase::Booting), SILENT, Activity::Idle, "provisioning: its machine is booting"),
        (
            machine(failed(MachineStage::Booting, "no agent")),
            SILENT,
            Activity::Idle,
            "unprovisioned: its machine failed while booting (attempt 3): no agent",
        ),
    ]);
}

#[test]
fn agent_and_last_run_determine_the_state() {
    let configured = |result| Some(ServiceState::Configured { result, version: version("v1") });
    let validated = |result| Some(ServiceState::Validated { result, version: version("v1") });
    let needs = vec![Need::Role { role: Role::new("db").unwrap(), want: 2, have: 0 }];
    let broken = ResourceError {
        resource: Some("File[/x]".into()),
        file: Some("site.pp".into()),
        line: Some(3),
        message: "no".into(),
    };
    let applying = Activity::Applying { run: RunId::new("r9").unwrap(), version: version("v1"), since: at(40) };
    assert_states([
        (
            node(validated(ValidationResult::Success), None),
            SILENT,
            Activity::Idle,
            "silent: its agent is not connected",
        ),
        (node(validated(ValidationResult::Success), None), CONNECTED, applying, "applying: run r9 is in progress"),
        (node(None, None), CONNECTED, Activity::Blocked { problem: "disk full".into() }, "blocked: disk full"),
        (node(None, None), CONNECTED, Activity::Idle, "outdated: has not begun to run v1"),
        (
            node(configured(ConfigureResult::Pending), Some(last(Some(RunReason::Waiting { needs }), vec![]))),
            CONNECTED,
            Activity::Idle,
            // One is active by now, although there was none when the run stopped.
            "pending: waiting for role db: 1 of 2 active",
        ),
        (
            node(configured(ConfigureResult::Failure), Some(last(Some(RunReason::NotCompiled), vec![broken]))),
            CONNECTED,
            Activity::Idle,
            "failed: File[/x]: no (site.pp:3)",
        ),
        (
            node(
                validated(ValidationResult::Failure),
                Some(last(Some(RunReason::ChecksFailed { names: vec!["up".into()] }), vec![])),
            ),
            CONNECTED,
            Activity::Idle,
            "invalid: checks failed: up",
        ),
        (
            node(configured(ConfigureResult::Success), None),
            CONNECTED,
            Activity::Idle,
            "configured: configured; its validation has not been reported",
        ),
        (node(validated(ValidationResult::Success), None), CONNECTED, Activity::Idle, "validated"),
    ]);
}

#[test]
fn validation_older_than_the_choice_does_not_count() {
    let node = node(Some(ServiceState::Validated { result: ValidationResult::Success, version: version("v1") }), None);
    let chosen_since = Generation { epoch: 0, number: 1 };
    let desired = DesiredVersion { generation: chosen_since, ..desired_v1() };
    let status = node_status(&fleet(), &node, Some(&desired), CONNECTED, &Activity::Idle, None);
    assert_eq!(status.reason.unwrap().to_string(), "has not begun to run v1");
}

#[test]
fn new_desired_version_makes_a_node_outdated() {
    let node = node(Some(ServiceState::Validated { result: ValidationResult::Success, version: version("v1") }), None);
    let desired = DesiredVersion { version: version("v2"), ..desired_v1() };
    let status = node_status(&fleet(), &node, Some(&desired), CONNECTED, &Activity::Idle, None);
    assert_eq!(status.reason.unwrap().to_string(), "has not begun to run v2");
    let status = node_status(&fleet(), &node, None, CONNECTED, &Activity::Idle, None);
    assert_eq!(status.reason.unwrap().to_string(), "no version was chosen yet: run `muster trigger-update VERSION`");
}

#[test]
fn pause_is_a_reason_only_before_a_run() {
    let pause = PauseRecord {
        by: "jo@desk".into(),
        reason: "disk swap".into(),
        since: at(50),
        until: Some("2026-11-15T12:00:00Z".parse().unwrap()),
    };
    let paused = NodePause { scope: PauseScope::Role { role: Role::new("web").unwrap() }, pause };
    let desired = desired_v1();
    let status_of = |node: &Node, activity: &Activity, link: Link| {
        let status = node_status(&fleet(), node, Some(&desired), link, activity, Some(&paused));
        (status.state.as_str(), status.reason.map(|why| why.to_string()))
    };
    let behind = "has not begun to run v1: role web is paused by jo@desk: disk swap (until 2026-11-15 12:00:00 UTC)";
    assert_eq!(status_of(&Node::default(), &Activity::Idle, CONNECTED), ("outdated", Some(behind.to_owned())));
    // Other obstacles come first: the node would not run without the pause either.
    assert_eq!(status_of(&Node::default(), &Activity::Idle, SILENT).0, "silent");
    let blocked = Activity::Blocked { problem: "its disk is full".into() };
    assert_eq!(status_of(&Node::default(), &blocked, CONNECTED), ("blocked", Some("its disk is full".into())));
    // A node that has validated its version, and one that failed.
    let state = |result| {
        let state = ServiceState::Validated { result, version: version("v1") };
        let leaf = StatusLeaf { since: at(60), run: RunId::new("r1").unwrap(), log: None };
        let observed =
            ObservedRecord { last: Some(last(Some(RunReason::NotCompiled), Vec::new())), ..ObservedRecord::default() };
        Node { states: BTreeMap::from([(state, leaf)]), observed: Some((observed, Revision(1))), ..Node::default() }
    };
    assert_eq!(status_of(&state(ValidationResult::Success), &Activity::Idle, CONNECTED), ("validated", None));
    assert_eq!(status_of(&state(ValidationResult::Failure), &Activity::Idle, CONNECTED).0, "invalid");
}

/// Time at which `web2` joined its role.
const CAME: i64 = 1_000;

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn changed_at(started: i64) -> LastRun {
    let outcome = Outcome::Configured(RunResult::Changed);
    LastRun { outcome, attempt: 0, started: at(started), ended: at(started), ..last(None, Vec::new()) }
}

/// Dependents of `web2`, which joined its role at [`CAME`] and left it at `left`. The last report of `lb1` is of a run that
/// looked the role up, began at `lb_began`, and found no `web2`.
fn dependents_of_web2(left: Timestamp, lb_began: i64) -> Vec<NodeName> {
    dependents_by("active_roles::web", left, lb_began)
}

/// As [`dependents_of_web2`], with another lookup of `lb1`.
fn dependents_by(key: &str, left: Timestamp, lb_began: i64) -> Vec<NodeName> {
    let env = EnvName::new("test").unwrap();
    let keys = Keys::new(&env);
    let passed = Some(version("v1"));
    let http = Service { address: "10.0.0.2".into(), port: 80, tags: Vec::new() };
    let services = [(ServiceName::new("http").unwrap(), http)].into();
    let of_web = ObservedRecord { passed, since: Some(at(CAME)), services, ..ObservedRecord::default() };
    let leaving = NodeRecord { leaving: Some(begin(left)), ..record("web") };
    let values = [
        (keys.node(&name("lb1")), serde_json::to_vec(&record("lb"))),
        (keys.node(&name("web2")), serde_json::to_vec(&leaving)),
        (keys.observed(&name("web2")), serde_json::to_vec(&of_web)),
    ];
    let mut fleet = Fleet::new(env);
    let put = |fleet: &mut Fleet, key: String, value: Vec<u8>| {
        let change = KeyChange { key: &key, value: Some(&value), revision: Revision(1) };
        fleet.apply(Revision(1), [(change, keys::parse(&key).unwrap().1)]);
    };
    for (key, value) in values {
        put(&mut fleet, key, value.unwrap());
    }
    let seen = Lookups::from([(key.to_owned(), fleet.tag(key, None))]);
    let of_lb = ObservedRecord {
        looked_up: RoleLookups::new(&seen),
        last: Some(changed_at(lb_began)),
        ..ObservedRecord::default()
    };
    put(&mut fleet, keys.observed(&name("lb1")), serde_json::to_vec(&of_lb).unwrap());
    dependents(&fleet, fleet.get(&name("web2")).unwrap())
}

#[test]
fn unreported_run_of_a_dependent_is_waited_for() {
    // It joined, `lb1` was woken, and it left before the report of `lb1`.
    assert_eq!(dependents_of_web2(at(CAME + 5), CAME - 60), [name("lb1")]);
    // That run, or the next one, has been reported.
    assert_eq!(dependents_of_web2(at(CAME + 5), CAME + 1), []);
    // It was there for so long that nodes that have not run since were not woken by it.
    assert_eq!(dependents_of_web2(at(CAME) + DRAIN_TIMEOUT, CAME - 60), []);
    assert_eq!(dependents_of_web2(at(CAME) + DRAIN_TIMEOUT - SignedDuration::from_secs(1), CAME - 60), [name("lb1")]);
}

#[test]
fn readers_of_services_and_of_all_roles_are_waited_for() {
    let by = |key| dependents_by(key, at(CAME + 5), CAME - 60);
    assert_eq!(by("services::http"), [name("lb1")]);
    assert_eq!(by("active_roles"), [name("lb1")]);
    assert_eq!(by("services::smtp"), [], "web2 does not offer it");
    assert_eq!(by("active_roles::db"), []);
}
