//! Builds the transaction that stores a machine's record, and the key that says whether it is provisioned.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use muster_core::keys::Keys;
use muster_core::names::NodeName;
use muster_core::node::record::{MachinePhase, MachineRecord, MachineStage};
use muster_core::txn::{Guard, Op, Revision, Txn};

/// `status/provisioned/{success,failure}/<node>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionedLeaf {
    pub since: Timestamp,
    pub driver: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// Writes a machine's record and the matching leaf. `before` is the revision that the decision used; if the record has
/// changed since, nothing is written.
///
/// The leaf records whether the node has a machine. It does not change while that is undecided: a machine that reboots
/// stays a success, and one that is retried stays a failure until it is provisioned.
pub fn record_txn(
    keys: &Keys,
    node: &NodeName,
    before: Option<Revision>,
    record: &MachineRecord,
) -> Result<Txn, serde_json::Error> {
    let key = keys.machine(node);
    let mut txn = Txn::new().guard(Guard::observed(key.clone(), before)).op(Op::put_json(key, record)?);
    let leaf = |cause: Option<&String>| ProvisionedLeaf {
        since: record.since,
        driver: record.driver.clone(),
        cause: cause.cloned(),
    };
    let (success, failure) = (keys.provisioned(true, node), keys.provisioned(false, node));
    match &record.phase {
        // There is no machine.
        MachinePhase::Declared | MachinePhase::Allocating | MachinePhase::Deploying => {
            txn = txn.op(Op::delete(success));
        }
        MachinePhase::Booting | MachinePhase::Bootstrapping => {}
        // The machine exists until it is gone, and then the leaves are deleted too.
        MachinePhase::Releasing | MachinePhase::Failed { during: MachineStage::Releasing, .. } => {}
        MachinePhase::Provisioned => {
            txn = txn.op(Op::put_json(success, &leaf(None))?).op(Op::delete(failure));
        }
        MachinePhase::Failed { cause, .. } => {
            txn = txn.op(Op::delete(success)).op(Op::put_json(failure, &leaf(Some(cause)))?);
        }
    }
    Ok(txn)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use muster_core::names::EnvName;

    const SUCCESS: &str = "/muster/prod/status/provisioned/success/web1";
    const FAILURE: &str = "/muster/prod/status/provisioned/failure/web1";

    fn record(phase: MachinePhase) -> MachineRecord {
        MachineRecord { driver: "local".into(), phase, attempt: 1, since: Timestamp::UNIX_EPOCH }
    }

    fn failed() -> MachinePhase {
        MachinePhase::Failed { during: MachineStage::Booting, cause: "no program".into(), retry: None }
    }

    fn txn(phase: MachinePhase, before: Option<Revision>) -> Txn {
        let keys = Keys::new(&EnvName::new("prod").unwrap());
        record_txn(&keys, &NodeName::new("web1").unwrap(), before, &record(phase)).unwrap()
    }

    /// The leaves after a transaction.
    fn leaves(before: &[&str], txn: &Txn) -> Vec<String> {
        let mut there: BTreeMap<String, Vec<u8>> = before.iter().map(|key| ((*key).to_owned(), Vec::new())).collect();
        for op in &txn.ops {
            match op {
                Op::Put { key, value, .. } => there.insert(key.clone(), value.clone()),
                Op::Delete { key } => there.remove(key),
            };
        }
        there.into_keys().filter(|key| key.contains("/status/")).collect()
    }

    #[test]
    fn record_is_fenced_by_its_revision() {
        let key = "/muster/prod/machines/web1".to_owned();
        assert_eq!(txn(MachinePhase::Booting, None).guards, [Guard::Absent { key: key.clone() }]);
        assert_eq!(
            txn(MachinePhase::Booting, Some(Revision(7))).guards,
            [Guard::Unchanged { key, since: Revision(7) }]
        );
    }

    #[test]
    fn leaf_matches_the_record() {
        for before in [&[][..], &[SUCCESS], &[FAILURE], &[SUCCESS, FAILURE]] {
            assert_eq!(leaves(before, &txn(MachinePhase::Provisioned, None)), [SUCCESS], "{before:?}");
            assert_eq!(leaves(before, &txn(failed(), None)), [FAILURE], "{before:?}");
            for phase in [MachinePhase::Declared, MachinePhase::Allocating, MachinePhase::Deploying] {
                assert!(!leaves(before, &txn(phase, None)).contains(&SUCCESS.to_owned()), "{before:?}");
            }
        }
    }

    #[test]
    fn leaf_is_unchanged_while_undecided() {
        for before in [SUCCESS, FAILURE] {
            for phase in [MachinePhase::Booting, MachinePhase::Bootstrapping] {
                assert_eq!(leaves(&[before], &txn(phase, None)), [before]);
            }
        }
        assert_eq!(leaves(&[FAILURE], &txn(MachinePhase::Allocating, None)), [FAILURE], "it is retried");
    }

    #[test]
    fn failure_leaf_has_its_cause() {
        let txn = txn(failed(), None);
        let Some(Op::Put { value, .. }) = txn.ops.iter().find(|op| op.key() == FAILURE) else { panic!("{txn:?}") };
        let leaf: ProvisionedLeaf = serde_json::from_slice(value).unwrap();
        assert_eq!(leaf.cause.as_deref(), Some("no program"));
    }

    #[test]
    fn transaction_has_each_key_once() {
        for phase in [MachinePhase::Declared, MachinePhase::Booting, MachinePhase::Provisioned, failed()] {
            let txn = txn(phase, None);
            let mut keys: Vec<&str> = txn.ops.iter().map(Op::key).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), txn.ops.len());
        }
    }
}
