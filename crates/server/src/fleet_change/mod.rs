//! Makes the nodes of an environment follow a design: a pure plan ([`compare`]), and the executor that commits it.
//!
//! Doing it again changes nothing, and whoever is cut off half way does it again.

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
use crate::transactions::{commit_all, pack};

pub use self::txns::compare;
pub(crate) use self::txns::removal;

/// Reports move nodes under a plan all the time, and each plan that gets something done is worth another one. So many may
/// come to nothing.
const TRIES: usize = 8;

/// What a design changes in a fleet. All lists are in the order of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetChange {
    pub added: Vec<NodeName>,
    /// Another role, flavor, profile, failure domain, or other labels. Its place in the design does not count.
    pub changed: Vec<NodeName>,
    /// They were leaving, and are wanted again.
    pub returned: Vec<NodeName>,
    /// They are taken out of service now; later their machines are released, and their keys removed.
    pub leaving: Vec<NodeName>,
    /// They have no machine, so nothing has to be released: their keys are gone.
    pub removed: Vec<NodeName>,
    /// The revision at which all of this is visible. None: nothing was written.
    pub revision: Option<Revision>,
}

impl FleetChange {
    /// Whether nothing changes.
    pub fn is_nothing(&self) -> bool {
        let Self { added, changed, returned, leaving, removed, revision: _ } = self;
        [added, changed, returned, leaving, removed].into_iter().all(Vec::is_empty)
    }
}

#[derive(Debug, Error)]
pub enum FollowError {
    #[error(
        "environment {env} is being restored since {since}: bring that to its end with the same `muster restore FILE`"
    )]
    Restoring { env: EnvName, since: Timestamp },
    #[error("environment {env} is being destroyed since {since}: no nodes come to it any more")]
    Destroying { env: EnvName, since: Timestamp },
    #[error("the nodes cannot be written to the store")]
    Store(#[source] StoreError),
    #[error("a record cannot be written")]
    Record(#[source] serde_json::Error),
    #[error("someone else changes environment {env} at the same time")]
    Contended { env: EnvName },
    #[error("what was written did not come back")]
    StaleView(#[source] crate::view::StaleView),
}

/// Makes `nodes/` follow a design, and waits until the view shows it. An environment that is not there yet begins.
///
/// Only what the design says is written; what becomes of machines is for the provisioning controller to see to.
pub async fn follow_design(
    writer: &Writer,
    env: &EnvName,
    design: &BTreeMap<NodeName, NodeRecord>,
) -> Result<FleetChange, FollowError> {
    follow_design_while(writer, env, design, &[]).await
}

/// The same for as long as some guards hold: every transaction compares them.
pub async fn follow_design_while(
    writer: &Writer,
    env: &EnvName,
    design: &BTreeMap<NodeName, NodeRecord>,
    guards: &[Guard],
) -> Result<FleetChange, FollowError> {
    let empty = Fleet::new(env.clone());
    let mut first: Option<FleetChange> = None;
    let mut revision = None;
    let mut tries = TRIES;
    while tries > 0 {
        let now = writer.clock.now();
        let (txns, change) = {
            let fleets = writer.view.fleets();
            plan(fleets.get(env).unwrap_or(&empty), design, now)?
        };
        let txns = txns.into_iter().map(|txn| guards.iter().cloned().fold(txn, Txn::guard)).collect();
        // What the first plan was to do is done in the end, by whomever.
        let first = first.get_or_insert(change);
        let summary = commit_all(writer, txns).await.map_err(FollowError::Store)?;
        if summary.moved {
            revision = revision.max(Some(summary.reached));
        }
        writer.view.reach(summary.reached).await.map_err(FollowError::StaleView)?;
        if summary.done {
            return Ok(FleetChange { revision, ..first.clone() });
        }
        if !summary.moved {
            tries -= 1;
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

/// Gives an environment its epoch, if it has none.
pub(crate) fn beginning(fleet: &Fleet, epoch: u64) -> Option<Txn> {
    let key = Keys::new(&fleet.env).store_epoch();
    let absent = Guard::Absent { key: key.clone() };
    (fleet.epoch() == 0).then(|| Txn::new().guard(absent).op(Op::put(key, epoch.to_string())))
}

#[cfg(test)]
mod tests;
