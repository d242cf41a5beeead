//! Short histories for the tests of the checker.

use muster_core::names::{RunId, Version};
use muster_core::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use muster_core::report::record::{LastRun, ObservedRecord};
use muster_core::report::{Cause, Counts, Outcome, RunResult, Verdict};
use muster_etcd_rig::{RawChange, RevisionChanges};

use super::HistoryChecker;
use muster_core::txn::Generation;

pub(super) fn put(key: &str, value: &str) -> RawChange {
    RawChange::Put { key: format!("/muster/test/{key}"), value: value.into(), lease: 0 }
}

pub(super) fn leased(key: &str, value: &str) -> RawChange {
    RawChange::Put { key: format!("/muster/test/{key}"), value: value.into(), lease: 7 }
}

pub(super) fn delete(key: &str) -> RawChange {
    RawChange::Delete { key: format!("/muster/test/{key}") }
}

/// The first transaction is revision 2, as in a new etcd.
pub(super) fn history(transactions: &[Vec<RawChange>]) -> Vec<RevisionChanges> {
    let numbered = transactions.iter().zip(2..);
    numbered.map(|(changes, revision)| RevisionChanges { revision, changes: changes.clone() }).collect()
}

/// Violations of a history, except those about the missing choice of a version.
pub(super) fn violations(transactions: &[Vec<RawChange>]) -> Vec<String> {
    let mut checker = HistoryChecker::default();
    checker.read(&history(transactions));
    checker.violations().iter().filter(|violation| !violation.contains("which chose")).cloned().collect()
}

fn run(run: &str, version: &str, outcome: Outcome, causes: Vec<Cause>) -> LastRun {
    LastRun {
        run: RunId::new(run).unwrap(),
        outcome,
        version: Version::new(version).unwrap(),
        digest: String::new(),
        generation: Generation { epoch: 1, number: 2 },
        causes,
        reason: None,
        attempt: 0,
        started: jiff_now(),
        ended: jiff_now(),
        counts: Counts::default(),
        first_failure: None,
        errors: Vec::new(),
        log: None,
    }
}

fn jiff_now<T: std::str::FromStr>() -> T {
    "2026-11-15T10:00:00Z".parse().unwrap_or_else(|_| panic!("a time"))
}

fn version(version: &str) -> Vec<Cause> {
    vec![Cause::Version { version: Version::new(version).unwrap() }]
}

pub(super) fn configured(id: &str, of: &str) -> LastRun {
    run(id, of, Outcome::Configured(RunResult::Changed), version(of))
}

pub(super) fn validated(id: &str, of: &str) -> LastRun {
    run(id, of, Outcome::Validated(Verdict::Passed), version(of))
}

pub(super) fn caused(id: &str, causes: Vec<Cause>) -> LastRun {
    run(id, "v1", Outcome::Configured(RunResult::Changed), causes)
}

/// The record that a report of this run leaves.
pub(super) fn observed(node: &str, incarnation: u64, seq: u64, last: LastRun) -> RawChange {
    let version = last.version.clone();
    let (state, passed) = match last.outcome {
        Outcome::Configured(_) | Outcome::Previewed(_) => {
            (ServiceState::Configured { result: ConfigureResult::Success, version }, None)
        }
        Outcome::Validated(_) => {
            let passed = Some(version.clone());
            (ServiceState::Validated { result: ValidationResult::Success, version }, passed)
        }
    };
    let observed = ObservedRecord {
        incarnation,
        seq,
        state: Some(state),
        running: passed.clone(),
        passed,
        last: Some(last),
        ..ObservedRecord::default()
    };
    put(&format!("observed/{node}"), &serde_json::to_string(&observed).unwrap())
}
