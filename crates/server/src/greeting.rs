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

/// The incarnation for an agent that says hello: the one that it has, if that is the newest; else the next.
///
/// An agent that has kept its memory keeps its incarnation, so a fleet that reconnects writes nothing.
pub(crate) async fn greet(
    store: &dyn Store,
    env: &EnvName,
    node: &NodeName,
    has: Option<u64>,
) -> Result<u64, GreetError> {
    let keys = Keys::of(env);
    for _ in 0..TRIES {
        let kv = store.get(&keys.observed(node)).await.map_err(GreetError::Store)?;
        let unreadable = |source| GreetError::Unreadable { node: node.clone(), source };
        let observed: Option<(Observed, _)> = kv
            .map(|kv| serde_json::from_slice(&kv.value).map(|observed| (observed, kv.revision)))
            .transpose()
            .map_err(unreadable)?;
        let newest = observed.as_ref().map_or(0, |(observed, _)| observed.incarnation);
        if let Some(has) = has.filter(|has| *has >= newest && *has > 0) {
            return Ok(has);
        }
        let seen = observed.as_ref().map(|(observed, at)| (observed, *at));
        let (next, txn) = status_move::greet(&keys, node, seen).map_err(unreadable)?;
        match store.commit(txn).await {
            Ok(Outcome::Committed { .. }) => return Ok(next),
            // After an unknown outcome a further number is given out: gaps do no harm.
            Ok(Outcome::Refused { .. }) | Err(StoreError::Unknown { .. }) => {}
            Err(error) => return Err(GreetError::Store(error)),
        }
    }
    Err(GreetError::Contended { node: node.clone() })
}
