//! Makes the node records of an environment follow a design: a pure comparison ([`compare`]), and the executor that
//! commits it.
//!
//! Idempotent: an interrupted change is executed again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::design::plan::NodeDiff;
use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::node::decommission::{begin, dependents};
use muster_core::node::record::NodeRecord;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::StoreError;
use thiserror::Error;

use crate::app::Writer;
use crate::transactions::{ConflictRetry, commit_all, pack};

/// Attempts without progress. Reports change nodes during an attempt, and an attempt that commits a part does not count.
const ATTEMPTS: usize = 8;

/// Changes of a fleet that a design makes. All lists are in the order of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetChange {
    pub added: Vec<NodeName>,
    /// Another role, host name, flavor, profile, failure domain, or other labels. The position in the design does not count.
    pub changed: Vec<NodeName>,
    /// They were leaving, and are in the design again.
    pub returned: Vec<NodeName>,
    /// They leave service now. Their machines are drained and released, and then their keys are removed.
    pub leaving: Vec<NodeName>,
    /// They have no machine to drain: their keys are removed at once.
    pub removed: Vec<NodeName>,
    /// Revision at which all of this is visible. None: nothing was written.
    pub revision: Option<Revision>,
}

impl FleetChange {
    /// Returns true if nothing changes.
    pub fn is_nothing(&self) -> bool {
        let Self { added, changed, returned, leaving, removed, revision: _ } = self;
        [added, changed, returned, leaving, removed].into_iter().all(Vec::is_empty)
    }
}

#[derive(Debug, Error)]
pub enum FollowError {
    #[error("environment {env} is being restored since {since}: complete that with the same `muster restore FILE`")]
    Restoring { env: EnvName, since: Timestamp },
    #[error("environment {env} is being destroyed since {since}: no nodes can be added")]
    Destroying { env: EnvName, since: Timestamp },
    #[error("the nodes cannot be written to the store")]
    Store(#[source] StoreError),
    #[error("a record cannot be written")]
    Record(#[source] serde_json::Error),
    #[error("conflict: other servers kept changing environment {env}")]
    Contended { env: EnvName },
    #[error("the view did not catch up with the write")]
    StaleView(#[source] crate::view::StaleView),
}

/// Makes `nodes/` follow a design, and waits until the view shows it. Creates an environment that does not exist.
///
/// Writes node records only; the provisioning controller handles machines.
pub async fn follow_design(
    writer: &Writer,
    env: &EnvName,
    design: &BTreeMap<NodeName, NodeRecord>,
) -> Result<FleetChange, FollowError> {
    follow_design_while(writer, env, design, &[]).await
}

/// Like [`follow_design`], with guards in every transaction.
pub async fn follow_design_while(
    writer: &Writer,
    env: &EnvName,
    design: &BTreeMap<NodeName, NodeRecord>,
    guards: &[Guard],
) -> Result<FleetChange, FollowError> {
    let empty = Fleet::new(env.clone());
    let mut first: Option<FleetChange> = None;
    let mut revision = None;
    let mut retry = ConflictRetry::new(ATTEMPTS);
    while retry.begin_attempt() {
        let now = writer.clock.now();
        let (txns, change) = {
            let fleets = writer.view.fleets();
            plan(fleets.get(env).unwrap_or(&empty), design, now)?
        };
        let txns = txns.into_iter().map(|txn| guards.iter().cloned().fold(txn, Txn::guard)).collect();
        // The first attempt says what changes, whichever server commits it.
        let first = first.get_or_insert(change).clone();
        let committed = commit_all(writer, txns).await.map_err(FollowError::Store)?;
        if committed.any {
            revision = revision.max(Some(committed.revision));
        }
        writer.view.reach(committed.revision).await.map_err(FollowError::StaleView)?;
        if committed.complete {
            return Ok(FleetChange { revision, ..first });
        }
        if committed.any {
            retry.made_progress();
        }
    }
    Err(FollowError::Contended { env: env.clone() })
}

fn plan(
    fleet: &Fleet,
    design: &BTreeMap<NodeName, NodeRecord>,
    now: Timestamp,
) -> Result<(Vec<Txn>, FleetChange), FollowError> {
    if let Some(restoring) = fleet.restoring() {
        return Err(FollowError::Restoring { env: fleet.env.clone(), since: restoring.since });
    }
    if let Some((destroying, _)) = fleet.destroying()
        && !design.is_empty()
    {
        return Err(FollowError::Destroying { env: fleet.env.clone(), since: destroying.since });
    }
    let change = compare(fleet, design);
    let mut parts = parts(fleet, design, &change, now).map_err(FollowError::Record)?;
    parts.extend(epoch_txn(fleet, u64::try_from(now.as_second()).unwrap_or(1)));
    Ok((pack(parts), change))
}

/// Creates the epoch of an environment, if it has none.
pub(crate) fn epoch_txn(fleet: &Fleet, epoch: u64) -> Option<Txn> {
    let key = Keys::new(&fleet.env).store_epoch();
    let absent = Guard::Absent { key: key.clone() };
    (fleet.epoch() == 0).then(|| Txn::new().guard(absent).op(Op::put(key, epoch.to_string())))
}

/// Compares a fleet with a design, and says how the difference is executed. Writes nothing.
pub fn compare(fleet: &Fleet, design: &BTreeMap<NodeName, NodeRecord>) -> FleetChange {
    let registered = fleet.recorded().map(|(name, _, record)| (name, record));
    let NodeDiff { create, change, remove } = NodeDiff::compute(registered, wanted(fleet, design));
    let (returned, added) = create.into_iter().partition(|name| known(fleet, name).is_some());
    let mut change = FleetChange { added, returned, changed: change.into_iter().collect(), ..FleetChange::default() };
    let is_wanted = |name: &NodeName| design.contains_key(name) && !fleet.is_retired(name);
    for (name, node, _) in fleet.recorded().filter(|(name, ..)| !is_wanted(name)) {
        if !node.has_machine() {
            change.removed.push(name.clone());
        } else if remove.contains(name) {
            change.leaving.push(name.clone());
        } // Else it is leaving already.
    }
    change
}

/// Nodes of a design without those that an operator has retired.
fn wanted<'a>(
    fleet: &Fleet,
    design: &'a BTreeMap<NodeName, NodeRecord>,
) -> impl Iterator<Item = (&'a NodeName, &'a NodeRecord)> {
    design.iter().filter(|(name, _)| !fleet.is_retired(name))
}

/// Transactions of a change, each guarded by the data that it was decided on.
fn parts(
    fleet: &Fleet,
    design: &BTreeMap<NodeName, NodeRecord>,
    change: &FleetChange,
    now: Timestamp,
) -> Result<Vec<Txn>, serde_json::Error> {
    let keys = Keys::new(&fleet.env);
    let empty = Node::default();
    let mut parts = Vec::new();
    for (name, wanted) in wanted(fleet, design) {
        let known = known(fleet, name);
        let wanted = match known {
            Some(known) => wanted.registered_as(known),
            None => NodeRecord { leaving: None, created: Some(now), ..wanted.clone() },
        };
        if known != Some(&wanted) {
            let seen = Guard::observed(keys.node(name), fleet.get(name).and_then(|node| node.record_at));
            parts.push(Txn::new().guard(seen).op(Op::put_json(keys.node(name), &wanted)?));
        }
    }
    let leaving = change.leaving.iter().filter_map(|name| Some((name, fleet.get(name)?)));
    for (name, node) in leaving {
        parts.extend(decommission_txn(&keys, name, node, now)?);
    }
    for name in &change.removed {
        parts.push(removal(&keys, name, fleet.get(name).unwrap_or(&empty)));
    }
    Ok(parts)
}

/// Marks a node as leaving, and removes it from its role in the same transaction. Guarded by its last report: that report
/// added the role that is removed, and the next report finds the node out of service.
fn decommission_txn(
    keys: &Keys,
    name: &NodeName,
    node: &Node,
    now: Timestamp,
) -> Result<Option<Txn>, serde_json::Error> {
    let Some(record) = &node.record else { return Ok(None) };
    let record = NodeRecord { leaving: Some(begin(now)), ..record.clone() };
    let seen = [(keys.node(name), node.record_at), (keys.observed(name), node.observed.as_ref().map(|(_, at)| *at))];
    let mut ops = withdrawal(keys, name, node);
    ops.push(Op::put_json(keys.node(name), &record)?);
    Ok(Some(Txn { guards: seen.map(|(key, at)| Guard::observed(key, at)).into(), ops }))
}

fn known<'a>(fleet: &'a Fleet, name: &NodeName) -> Option<&'a NodeRecord> {
    fleet.get(name)?.record.as_ref()
}

/// Takes a retired node out of service: it is drained as a node that was removed from the design.
pub(crate) fn retirement(keys: &Keys, name: &NodeName, node: &Node, now: Timestamp) -> Result<Txn, serde_json::Error> {
    let leaves = match &node.record {
        None => None,
        Some(_) if !node.has_machine() => Some(key_removal(keys, name, node)),
        Some(record) if record.is_leaving() => None,
        Some(_) => decommission_txn(keys, name, node, now)?,
    };
    Ok(leaves.unwrap_or_default())
}

/// Removes a node with its cordon. The policy of a retired node stays: the design must not bring the node back.
pub(crate) fn removal(keys: &Keys, name: &NodeName, node: &Node) -> Txn {
    let mut txn = key_removal(keys, name, node);
    let policy = node.policy.as_ref();
    txn.guards.push(Guard::observed(keys.policy(name), policy.map(|(_, at)| *at)));
    if node.cordon().is_some() {
        txn.ops.push(Op::delete(keys.policy(name)));
    }
    txn
}

/// Removes all keys that a node has, including published values and a requested run. Data and pauses of operators for this
/// node stay: they apply to a later node of the same name. Guarded by its record, machine, certificate and last report, so that nothing
/// is left behind.
fn key_removal(keys: &Keys, name: &NodeName, node: &Node) -> Txn {
    let seen = [
        (keys.node(name), node.record_at),
        (keys.machine(name), node.machine.as_ref().map(|(_, at)| *at)),
        (keys.certificate(name), node.certificate.as_ref().map(|(_, at)| *at)),
        (keys.observed(name), node.observed.as_ref().map(|(_, at)| *at)),
    ];
    let fixed = [
        keys.node(name),
        keys.machine(name),
        keys.observed(name),
        keys.run_list(name),
        keys.self_values(name),
        keys.published(name),
        keys.requested_run(name),
        keys.desired(name),
        keys.presence(name),
        keys.certificate(name),
        keys.provisioned(true, name),
        keys.provisioned(false, name),
    ];
    let states = node.states.keys().map(|state| keys.status(state, name));
    let running = node.running.iter().map(|version| keys.running_version(version, name));
    let runs = node.history.keys().iter().map(|key| keys.past_run(name, &key.run));
    let gone = fixed.into_iter().chain(states).chain(running).chain(runs).map(Op::delete);
    let ops = gone.chain(withdrawal(keys, name, node));
    Txn { guards: seen.map(|(key, at)| Guard::observed(key, at)).into(), ops: ops.collect() }
}

/// Machines that have joined and are leaving.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    /// Removals of those that no other node uses any more, or whose time is over. The removal of its certificate ends the
    /// connections of a machine.
    pub(crate) removals: Vec<Txn>,
    /// Deadline of the next of the others.
    pub(crate) next: Option<Timestamp>,
}

/// Decides which leaving machines are removed now. The provision controller releases those of a driver.
pub(crate) fn drain(fleet: &Fleet, now: Timestamp) -> Draining {
    let keys = Keys::new(&fleet.env);
    let mut draining = Draining::default();
    for (name, node, record) in fleet.recorded() {
        let Some(leaving) = record.leaving.filter(|_| node.machine.is_none()) else { continue };
        if leaving.until <= now || dependents(fleet, node).is_empty() {
            draining.removals.push(removal(&keys, name, node));
        } else {
            draining.next = Some(draining.next.map_or(leaving.until, |next| next.min(leaving.until)));
        }
    }
    draining
}

/// Removes a node from its role. Liveness may just have added it at the version that it validated: that key is removed
/// whether or not the view shows it.
pub(crate) fn withdrawal(keys: &Keys, name: &NodeName, node: &Node) -> Vec<Op> {
    let passed = node.observed.as_ref().and_then(|(observed, _)| observed.passed.as_ref());
    let unseen = passed.filter(|passed| !node.active.contains_key(*passed));
    node.active.keys().chain(unseen).map(|version| Op::delete(keys.active_role(version, name))).collect()
}

#[cfg(test)]
mod tests;
