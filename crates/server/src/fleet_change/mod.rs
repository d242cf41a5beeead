//! Makes the nodes of an environment follow a design: a pure comparison ([`compare`]), and the executor that commits it.
//!
//! Idempotent: an interrupted change is executed again.

mod txns;

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::node::record::NodeRecord;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::StoreError;
use thiserror::Error;

use crate::app::Writer;
use crate::transactions::{ConflictRetry, commit_all, pack};

pub use self::txns::compare;
pub(crate) use self::txns::removal;

/// Attempts without progress. Reports change nodes during an attempt, and an attempt that commits a part does not count.
const ATTEMPTS: usize = 8;

/// Changes of a fleet that a design makes. All lists are in the order of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetChange {
    pub added: Vec<NodeName>,
    /// Another role, flavor, profile, failure domain, or other labels. The position in the design does not count.
    pub changed: Vec<NodeName>,
    /// They were leaving, and are in the design again.
    pub returned: Vec<NodeName>,
    /// They leave service now. Their machines are released later, and then their keys are removed.
    pub leaving: Vec<NodeName>,
    /// They have no machine to release: their keys are removed at once.
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
    let mut parts = txns::parts(fleet, design, &change, now).map_err(FollowError::Record)?;
    parts.extend(beginning(fleet, u64::try_from(now.as_second()).unwrap_or(1)));
    Ok((pack(parts), change))
}

/// Creates the epoch of an environment, if it has none.
pub(crate) fn beginning(fleet: &Fleet, epoch: u64) -> Option<Txn> {
    let key = Keys::new(&fleet.env).store_epoch();
    let absent = Guard::Absent { key: key.clone() };
    (fleet.epoch() == 0).then(|| Txn::new().guard(absent).op(Op::put(key, epoch.to_string())))
}

#[cfg(test)]
mod tests;
