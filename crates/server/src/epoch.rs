//! Begins a new epoch when agents know a later life of the store than the store itself: it was restored from a backup.
//!
//! Agents refuse what is older than what they were told. A restored store counts on from an older revision, so without a
//! new epoch everything that it says would be refused, and the fleet would stand still.

use jiff::Timestamp;
use muster_core::generation::Generation;
use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::txn::{Guard, Op, Txn};
use muster_store::{Outcome, Store, StoreError};

/// Begins a new epoch if an agent's generation cannot have come from this store as it is. Several agents that find it
/// out at the same moment begin one.
pub(crate) async fn keep_up(
    store: &dyn Store,
    env: &EnvName,
    epoch: u64,
    known: Generation,
    now: Timestamp,
) -> Result<(), StoreError> {
    let newest = Generation { epoch, number: store.revision().await?.0 };
    if known <= newest {
        return Ok(());
    }
    let key = Keys::of(env).store_epoch();
    let kv = store.get(&key).await?;
    let stored: u64 = kv.as_ref().and_then(|kv| std::str::from_utf8(&kv.value).ok()?.parse().ok()).unwrap_or(0);
    if stored > known.epoch {
        // Another agent came first.
        return Ok(());
    }
    let next = u64::try_from(now.as_second()).unwrap_or(0).max(known.epoch + 1);
    let txn = Txn::new().guard(Guard::seen(key.clone(), kv.map(|kv| kv.revision))).op(Op::put(key, next.to_string()));
    match store.commit(txn).await? {
        Outcome::Committed { .. } => {
            tracing::warn!(%env, agent = %known, store = %newest, "an agent knows a later life of the store: it was \
                restored, and a new epoch begins");
        }
        Outcome::Refused { .. } => {}
    }
    Ok(())
}
