//! Makes `self/<node>` follow the applied design: the resolved values that a node looks up about itself.

use std::collections::BTreeMap;

use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::txn::{Guard, Op, Txn};

use super::node_records::FollowError;
use crate::app::Writer;
use crate::transactions::{ConflictRetry, commit_all, pack};

/// Attempts. Only the holder of the lock writes these keys.
const ATTEMPTS: usize = 4;

/// Writes the values that differ from the design, and removes those of nodes that are gone. The nodes themselves follow later:
/// an agent that starts finds its values.
pub(crate) async fn follow_self_values(
    writer: &Writer,
    env: &EnvName,
    values: &BTreeMap<NodeName, String>,
    guards: &[Guard],
) -> Result<(), FollowError> {
    let mut retry = ConflictRetry::new(ATTEMPTS);
    while retry.begin_attempt() {
        let parts = {
            let fleets = writer.view.fleets();
            fleets.get(env).map(|fleet| differences(fleet, values)).unwrap_or_default()
        };
        if parts.is_empty() {
            return Ok(());
        }
        let txns = pack(parts).into_iter().map(|txn| guards.iter().cloned().fold(txn, Txn::guard)).collect();
        let committed = commit_all(writer, txns).await.map_err(FollowError::Store)?;
        writer.view.reach(committed.revision).await.map_err(FollowError::StaleView)?;
        if committed.complete {
            return Ok(());
        }
    }
    Err(FollowError::Contended { env: env.clone() })
}

fn differences(fleet: &Fleet, values: &BTreeMap<NodeName, String>) -> Vec<Txn> {
    let keys = Keys::new(&fleet.env);
    let known = |name: &NodeName| fleet.get(name).and_then(|node| node.self_text.as_deref());
    let written = values.iter().filter(|(name, text)| !fleet.is_retired(name) && known(name) != Some(text.as_str()));
    let written = written.map(|(name, text)| Op::put(keys.self_values(name), text.as_str()));
    // The keys of a node that leaves are removed with the node.
    let gone = fleet.nodes().filter(|(name, node)| {
        node.self_text.is_some() && node.record.is_none() && (!values.contains_key(*name) || fleet.is_retired(name))
    });
    let gone = gone.map(|(name, _)| Op::delete(keys.self_values(name)));
    written.chain(gone).map(|op| Txn::new().op(op)).collect()
}
