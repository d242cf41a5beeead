//! Validations from another epoch of the store: the first report of a node after a restore removes them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, Role, RunId, Version};
use muster_core::node::service_state::{ConfigureResult, ServiceState};
use muster_core::report::history::NodeHistory;
use muster_core::report::record::ObservedRecord;
use muster_core::report::status_move::{MoveInput, StatusMove, decide};
use muster_core::report::{Counts, Facts, Outcome, Report, RunResult, Verdict};
use muster_core::txn::{Generation, Op, Revision};

fn report(seq: u64, epoch: u64, outcome: Outcome) -> Report {
    Report {
        node: NodeName::new("web1").unwrap(),
        incarnation: 1,
        seq,
        run: RunId::new(format!("run-{seq}")).unwrap(),
        outcome,
        version: Version::new("v1").unwrap(),
        digest: "sha256:1".into(),
        generation: Generation { epoch, number: 5 },
        causes: Vec::new(),
        reason: None,
        attempt: 0,
        started: Timestamp::UNIX_EPOCH,
        ended: Timestamp::UNIX_EPOCH,
        counts: Counts::default(),
        errors: Vec::new(),
        changes: Vec::new(),
        first_failure: None,
        checks: Vec::new(),
        hooks: Vec::new(),
        services: Default::default(),
        published: None,
        facts: Facts { agent: "test".into(), ..Facts::default() },
        lookups: BTreeMap::new(),
        log: String::new(),
    }
}

/// The observed record after a report, and the deleted keys.
fn after(observed: Option<&ObservedRecord>, report: &Report) -> (ObservedRecord, Vec<String>) {
    let (keys, role) = (Keys::new(&EnvName::new("test").unwrap()), Role::new("web").unwrap());
    let known = MoveInput {
        keys: &keys,
        node: &report.node,
        role: &role,
        designed_at: Revision(1),
        in_service: true,
        observed: observed.map(|observed| (observed, Revision(2))),
        history: &NodeHistory::default(),
        log: None,
        now: Timestamp::UNIX_EPOCH,
    };
    let StatusMove::Apply(applied) = decide(known, report).unwrap() else { panic!("it is newer") };
    let gone = applied.txn.ops.iter().filter(|op| matches!(op, Op::Delete { .. }));
    (applied.observed, gone.map(|op| op.key().to_owned()).collect())
}

#[test]
fn first_report_clears_state_of_another_epoch() {
    let v1 = Version::new("v1").unwrap();
    let (proved, _) = after(None, &report(1, 7, Outcome::Validated(Verdict::Passed)));
    assert_eq!(proved.running.as_ref(), Some(&v1));
    for result in [RunResult::Unchanged, RunResult::Changed, RunResult::Pending] {
        let (same, gone) = after(Some(&proved), &report(2, 7, Outcome::Configured(result)));
        assert_eq!(same.running.as_ref(), Some(&v1), "{result:?} in the same life");
        assert!(!gone.contains(&"/muster/test/running_version/v1/web1".to_owned()));

        let (other, gone) = after(Some(&proved), &report(2, 8, Outcome::Configured(result)));
        assert_eq!(other.running, None, "{result:?} in another");
        assert!(gone.contains(&"/muster/test/running_version/v1/web1".to_owned()), "{gone:?}");
        assert!(gone.contains(&"/muster/test/status/validated/success/v1/web1".to_owned()), "{gone:?}");
        // Other nodes still use it: an upgrade does not hide a node either.
        assert_eq!(other.passed.as_ref(), Some(&v1));
        let (validated, _) = after(Some(&other), &report(3, 8, Outcome::Validated(Verdict::Passed)));
        assert_eq!(validated.running.as_ref(), Some(&v1));
    }
    let (unchanged, _) = after(Some(&proved), &report(2, 8, Outcome::Configured(RunResult::Unchanged)));
    assert_eq!(unchanged.state, Some(ServiceState::Configured { result: ConfigureResult::Success, version: v1 }));
}
