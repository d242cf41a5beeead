//! Removes everything of an environment, in an order that can be cut off anywhere.
//!
//! What says that it is being destroyed, and what servers need to go on with it, goes last and at once: until then
//! whoever takes over finds the mark and does the rest.

use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::replica::ControllerName;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::{CommitOutcome, Store, StoreError};

/// Stays below the 128 operations of a transaction, with room for its guards.
const BATCH: usize = 100;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraseOutcome {
    All {
        revision: Revision,
    },
    /// A guard did not hold: somebody else looks after it now.
    Overtaken,
}

/// Removes all keys of an environment, as long as the guards hold.
pub async fn erase(store: &dyn Store, env: &EnvName, guards: &[Guard]) -> Result<EraseOutcome, StoreError> {
    let keys = Keys::new(env);
    let all = store.range(keys.prefix(), None).await?.kvs.into_iter().map(|kv| kv.key);
    // The epoch too: an environment of the same name that is founded later begins a later one.
    let is_last = |key: &String| {
        let rest = key.strip_prefix(keys.prefix()).unwrap_or(key);
        ["destroying", "store_epoch"].contains(&rest)
            || rest.starts_with("controllers/")
            || rest.starts_with("replicas/")
    };
    let (mut last, first): (Vec<String>, Vec<String>) = all.partition(is_last);
    // A server may have taken one since they were read.
    last.extend(ControllerName::ALL.map(|name| keys.controller(name)));
    last.sort_unstable();
    last.dedup();
    let txn = |keys: &[String]| Txn { guards: guards.to_vec(), ops: keys.iter().map(Op::delete).collect() };
    for part in first.chunks(BATCH) {
        if let CommitOutcome::Conflict { .. } = store.commit(txn(part)).await? {
            return Ok(EraseOutcome::Overtaken);
        }
    }
    // So many servers do not exist: it is one transaction.
    Ok(match store.commit(txn(&last)).await? {
        CommitOutcome::Committed { revision } => EraseOutcome::All { revision },
        CommitOutcome::Conflict { .. } => EraseOutcome::Overtaken,
    })
}
