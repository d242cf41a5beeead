//! Incarnation of an agent that connects.
//!
//! It is decided on the view: a fleet that reconnects causes no reads of the store, and an agent that still has its incarnation
//! causes no write. A write carries a guard, which fails when the view was behind.

use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::report::status_move;
use muster_store::StoreError;
use thiserror::Error;

use crate::app::Writer;
use crate::transactions::{ConflictRetry, commit_all};
use crate::view::StaleView;

/// An attempt fails only when another replica assigns an incarnation to the same node, or commits a report of it.
const MAX_ATTEMPTS: usize = 5;

#[derive(Debug, Error)]
pub(crate) enum IncarnationError {
    #[error("the incarnation cannot be committed")]
    Store(#[source] StoreError),
    #[error("the status of {node} in the store cannot be read: {problem}")]
    Unreadable { node: NodeName, problem: String },
    #[error("the status of {node} cannot be encoded")]
    Unwritable {
        node: NodeName,
        #[source]
        source: serde_json::Error,
    },
    #[error(transparent)]
    StaleView(#[from] StaleView),
    #[error("another server assigns an incarnation to {node} at the same time")]
    Contended { node: NodeName },
}

/// Assigns the incarnation of an agent that connects. An agent that still knows its own, on a machine that was not
/// rebooted, keeps it.
pub(crate) async fn assign(
    writer: &Writer,
    env: &EnvName,
    node: &NodeName,
    has: Option<u64>,
    boot: Option<&str>,
) -> Result<u64, IncarnationError> {
    let keys = Keys::new(env);
    let mut retry = ConflictRetry::new(MAX_ATTEMPTS);
    while retry.begin_attempt() {
        let welcome = {
            let fleets = writer.view.fleets();
            let fleet = fleets.get(env);
            if let Some(problem) = fleet.and_then(|fleet| fleet.unreadable().get(&keys.observed(node))) {
                return Err(IncarnationError::Unreadable { node: node.clone(), problem: problem.clone() });
            }
            let observed = fleet.and_then(|fleet| fleet.get(node)?.observed.as_ref());
            let seen = observed.map(|(observed, at)| (observed, *at));
            let unwritable = |source| IncarnationError::Unwritable { node: node.clone(), source };
            status_move::assign_incarnation(&keys, node, seen, has, boot).map_err(unwritable)?
        };
        let Some(txn) = welcome.txn else { return Ok(welcome.incarnation) };
        // After an unknown outcome the next attempt may assign a further number: gaps are harmless.
        let committed = commit_all(writer, vec![txn]).await.map_err(IncarnationError::Store)?;
        if committed.complete {
            return Ok(welcome.incarnation);
        }
        writer.view.reach(committed.revision).await?;
    }
    Err(IncarnationError::Contended { node: node.clone() })
}
