//! What a step writes.

use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::NodeName;
use muster_core::rollout::record::{ActiveRollout, DesiredRecord, RolloutRecord};
use muster_core::txn::{Guard, Op, Revision, Txn};

/// So many grants are made in one transaction at most: each of them is a comparison and an operation, and etcd takes 128
/// of either. The rest follows in the next one, at once.
pub const MOST_GRANTS: usize = 60;

/// The record as it is to be, and what follows from it: all of it is written, or nothing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub record: RolloutRecord,
    pub grants: Vec<Grant>,
    /// The rollout is over: whoever has no word of its own goes by the environment's version from now on.
    pub completes: bool,
}

/// A node may move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub node: NodeName,
    pub desired: DesiredRecord,
    /// What the design said of the node when this was decided: one that has left meanwhile is granted nothing.
    pub record_at: Revision,
}

impl Change {
    /// The transaction. It is refused if the record was rewritten since `at`, by an operator or by another server; whoever
    /// acts for a controller adds the guard of that.
    pub fn txn(&self, fleet: &Fleet, at: Revision) -> Result<Txn, serde_json::Error> {
        let keys = Keys::new(&fleet.env);
        let mut txn = untouched(&keys, fleet, &self.record, at);
        for Grant { node, record_at, .. } in &self.grants {
            txn.guards.push(Guard::Unchanged { key: keys.node(node), since: *record_at });
        }
        txn.ops.push(Op::put_json(keys.rollout(self.record.id), &self.record)?);
        for Grant { node, desired, .. } in &self.grants {
            txn.ops.push(Op::put_json(keys.desired(node), desired)?);
        }
        if let Some((active, _)) = fleet.active_rollout().filter(|_| self.completes) {
            let active = ActiveRollout { completed: true, ..active.clone() };
            txn.ops.push(Op::put_json(keys.active_rollout(), &active)?);
        }
        Ok(txn)
    }
}

/// Nobody has decided anything about this rollout, or instead of it, since it was looked at.
pub(crate) fn untouched(keys: &Keys, fleet: &Fleet, record: &RolloutRecord, at: Revision) -> Txn {
    let active = fleet.active_rollout().map(|(_, at)| at);
    Txn::new()
        .guard(Guard::Unchanged { key: keys.rollout(record.id), since: at })
        .guard(Guard::observed(keys.active_rollout(), active))
        .guard(Guard::Absent { key: keys.destroying() })
        .guard(Guard::Absent { key: keys.restoring() })
}
