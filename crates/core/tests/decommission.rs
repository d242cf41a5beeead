//! Dependents of a leaving node: nodes that have yet to run without it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::{Fleet, KeyChange};
use muster_core::keys::{self, Keys};
use muster_core::lookup::Lookups;
use muster_core::names::{EnvName, NodeName, Role, RunId, Version};
use muster_core::node::decommission::{DRAIN_TIMEOUT, RoleLookups, begin, dependents};
use muster_core::node::record::NodeRecord;
use muster_core::report::record::{LastRun, ObservedRecord};
use muster_core::report::{Counts, Outcome, RunResult};
use muster_core::txn::{Generation, Revision};

const CAME: i64 = 1_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn record(role: &str) -> NodeRecord {
    NodeRecord {
        role: Role::new(role).unwrap(),
        profile: None,
        labels: BTreeMap::new(),
        failure_domain: "a".into(),
        position: 0,
        flavor: None,
        leaving: None,
    }
}

fn run(started: i64) -> LastRun {
    LastRun {
        run: RunId::new("r1").unwrap(),
        outcome: Outcome::Configured(RunResult::Changed),
        version: Version::new("v1").unwrap(),
        digest: String::new(),
        generation: Generation::default(),
        causes: Vec::new(),
        reason: None,
        attempt: 0,
        started: at(started),
        ended: at(started),
        counts: Counts::default(),
        first_failure: None,
        errors: Vec::new(),
        log: None,
    }
}

/// `web2` came into its role at a moment, and left it at another. The last report of `lb1` is of a run that looked the role
/// up, began when it is said, and saw what is there now: no `web2`.
fn waits(left: Timestamp, lb_began: i64) -> Vec<NodeName> {
    let env = EnvName::new("test").unwrap();
    let keys = Keys::new(&env);
    let passed = Some(Version::new("v1").unwrap());
    let of_web = ObservedRecord { passed, since: Some(at(CAME)), ..ObservedRecord::default() };
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
    let seen = Lookups::from([("active_roles::web".to_owned(), fleet.tag("active_roles::web", None))]);
    let of_lb =
        ObservedRecord { looked_up: RoleLookups::new(&seen), last: Some(run(lb_began)), ..ObservedRecord::default() };
    put(&mut fleet, keys.observed(&name("lb1")), serde_json::to_vec(&of_lb).unwrap());
    dependents(&fleet, fleet.get(&name("web2")).unwrap())
}

#[test]
fn unreported_run_of_a_dependent_is_waited_for() {
    // It came, `lb1` was woken, and it left before `lb1` could report what it had found.
    assert_eq!(waits(at(CAME + 5), CAME - 60), [name("lb1")]);
    // That run, or the next one, has been reported.
    assert_eq!(waits(at(CAME + 5), CAME + 1), []);
    // It has been there for so long that whoever has not run since was not woken by it.
    assert_eq!(waits(at(CAME) + DRAIN_TIMEOUT, CAME - 60), []);
    assert_eq!(waits(at(CAME) + DRAIN_TIMEOUT - SignedDuration::from_secs(1), CAME - 60), [name("lb1")]);
}
