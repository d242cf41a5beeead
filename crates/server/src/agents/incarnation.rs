//! Gives incarnations to agents.
//!
//! Decided on the view: a fleet that reconnects reads nothing from the store, and one that has kept its memory writes
//! nothing. Where something is written, a guard finds out if the view was behind.

use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::report::status_move;
use muster_store::{CommitOutcome, StoreError};
use thiserror::Error;

use crate::App;
use crate::view::StaleView;

/// Only another server that greets the same node at the same moment, or a report of it, makes a try fail.
const TRIES: usize = 5;

#[derive(Debug, Error)]
pub(crate) enum IncarnationError {
    #[error("an incarnation cannot be given out")]
    Store(#[source] StoreError),
    #[error("what the store holds of {node} cannot be read: {problem}")]
    Unreadable { node: NodeName, problem: String },
    #[error("what is to be remembered of {node} cannot be written")]
    Unwritable {
        node: NodeName,
        #[source]
        source: serde_json::Error,
    },
    #[error(transparent)]
    StaleView(#[from] StaleView),
    #[error("{node} is being greeted elsewhere")]
    Contended { node: NodeName },
}

/// Welcomes an agent that says hello, and gives the incarnation that it is to use.
///
/// An agent that has kept its memory, on a machine that was not started again, keeps its incarnation.
pub(crate) async fn assign(
    app: &App,
    env: &EnvName,
    node: &NodeName,
    has: Option<u64>,
    boot: Option<&str>,
) -> Result<u64, IncarnationError> {
    let keys = Keys::new(env);
    for _ in 0..TRIES {
        let welcome = {
            let fleets = app.view.fleets();
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
        match app.store.commit(txn).await {
            Ok(CommitOutcome::Committed { .. }) => return Ok(welcome.incarnation),
            Ok(CommitOutcome::Conflict { revision, .. }) => app.view.reach(revision).await?,
            // A further number is given out if this one was: gaps do no harm.
            Err(StoreError::Unknown { .. }) => {
                let newest = app.latest_revision.read().await.map_err(IncarnationError::Store)?;
                app.view.reach(newest).await?;
            }
            Err(error) => return Err(IncarnationError::Store(error)),
        }
    }
    Err(IncarnationError::Contended { node: node.clone() })
}
