//! Gives incarnations to agents.

use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::records::Observed;
use muster_core::status_move;
use muster_store::{Outcome, Store, StoreError};
use thiserror::Error;

/// Only another server that greets the same node at the same moment makes a try fail.
const TRIES: usize = 5;

#[derive(Debug, Error)]
pub(crate) enum GreetError {
    #[error("an incarnation cannot be given out")]
    Store(#[source] StoreError),
    #[error("what the store holds of {node} cannot be read")]
    Unreadable {
        node: NodeName,
        #[source]
        source: serde_json::Error,
    },
    #[error("{node} is being greeted elsewhere")]
    Contended { node: NodeName },
}

/// Welcomes an agent that says hello, and gives the incarnation that it is to use.
///
/// An agent that has kept its memory, on a machine that was not started again, keeps its incarnation: a fleet that
/// reconnects writes nothing.
pub(crate) async fn greet(
    store: &dyn Store,
    env: &EnvName,
    node: &NodeName,
    has: Option<u64>,
    boot: Option<&str>,
) -> Result<u64, GreetError> {
    let keys = Keys::of(env);
    for _ in 0..TRIES {
        let kv = store.get(&keys.observed(node)).await.map_err(GreetError::Store)?;
        let unreadable = |source| GreetError::Unreadable { node: node.clone(), source };
        let observed: Option<(Observed, _)> = kv
            .map(|kv| serde_json::from_slice(&kv.value).map(|observed| (observed, kv.revision)))
            .transpose()
            .map_err(unreadable)?;
        let seen = observed.as_ref().map(|(observed, at)| (observed, *at));
        let welcome = status_move::greet(&keys, node, seen, has, boot).map_err(unreadable)?;
        let Some(txn) = welcome.txn else { return Ok(welcome.incarnation) };
        match store.commit(txn).await {
            Ok(Outcome::Committed { .. }) => return Ok(welcome.incarnation),
            // After an unknown outcome a further number is given out: gaps do no harm.
            Ok(Outcome::Refused { .. }) | Err(StoreError::Unknown { .. }) => {}
            Err(error) => return Err(GreetError::Store(error)),
        }
    }
    Err(GreetError::Contended { node: node.clone() })
}
