//! Removes all keys of an environment, in an order that can be interrupted anywhere.
//!
//! The mark that it is being destroyed, and the keys that servers need to continue, are removed last, in one transaction.
//! Until then a replica that takes over finds the mark and continues.

use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::replica::ControllerName;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::{CommitOutcome, Store, StoreError};

/// Operations of one transaction. The store takes 128; the rest is room for guards.
const BATCH: usize = 100;

/// Outcome of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraseOutcome {
    All {
        revision: Revision,
    },
    /// A guard did not hold: another replica has taken over.
    Overtaken,
}

/// Removes all keys of an environment while the guards hold.
pub async fn erase(store: &dyn Store, env: &EnvName, guards: &[Guard]) -> Result<EraseOutcome, StoreError> {
    let keys = Keys::new(env);
    let all = store.range(keys.prefix(), None).await?.kvs.into_iter().map(|kv| kv.key);
    // Including the epoch: a later environment of the same name begins a later one.
    let is_last = |key: &String| {
        let rest = key.strip_prefix(keys.prefix()).unwrap_or(key);
        ["destroying", "store_epoch"].contains(&rest)
            || rest.starts_with("controllers/")
            || rest.starts_with("replicas/")
    };
    let (mut last, first): (Vec<String>, Vec<String>) = all.partition(is_last);
    // A server may have created a lock since the keys were read.
    last.extend(ControllerName::ALL.map(|name| keys.controller(name)));
    last.sort_unstable();
    last.dedup();
    let txn = |keys: &[String]| Txn { guards: guards.to_vec(), ops: keys.iter().map(Op::delete).collect() };
    for part in first.chunks(BATCH) {
        if let CommitOutcome::Conflict { .. } = store.commit(txn(part)).await? {
            return Ok(EraseOutcome::Overtaken);
        }
    }
    // There are few servers: these keys fit into one transaction.
    Ok(match store.commit(txn(&last)).await? {
        CommitOutcome::Committed { revision } => EraseOutcome::All { revision },
        CommitOutcome::Conflict { .. } => EraseOutcome::Overtaken,
    })
}
