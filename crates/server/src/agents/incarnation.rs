//! Numbers that an agent gets when it connects: its incarnation, and a new epoch after the store was restored.
//!
//! Both decisions are made on the view: a fleet that reconnects causes no reads of the store, and an agent that still has its
//! incarnation causes no write. A write carries a guard, which fails when the view was behind.

use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::report::status_move;
use muster_core::txn::{Generation, Guard, Op, Revision, Txn};
use muster_store::StoreError;
use thiserror::Error;

use crate::app::{Reader, Writer};
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

/// Several agents that connect at the same moment begin one epoch: the requests that lose find it at their next attempt.
const EPOCH_ATTEMPTS: usize = 5;

#[derive(Debug, Error)]
pub(crate) enum EpochError {
    #[error("the new epoch cannot be committed")]
    Store(#[from] StoreError),
    #[error(transparent)]
    StaleView(#[from] StaleView),
    #[error("another server changes the epoch of {env} at the same time")]
    Contended { env: EnvName },
}

/// Begins a new epoch if an agent's generation cannot come from this store: the store was restored from a backup.
///
/// Agents refuse a desired state with an older generation. A restored store continues from an older revision: without a new
/// epoch, agents would refuse all of its desired states, and the fleet would not progress.
/// Reads the store only when the generation is
/// newer than the view: another replica may have sent it before it arrived here.
pub(crate) async fn ensure_newer(writer: &Writer, env: &EnvName, known: Generation) -> Result<(), EpochError> {
    let mut view_is_fresh = false;
    let mut retry = ConflictRetry::new(EPOCH_ATTEMPTS);
    while retry.begin_attempt() {
        let (epoch, epoch_at, revision) = epoch_in_view(writer, env);
        let newest = Generation { epoch, number: revision.0 };
        if known <= newest {
            return Ok(());
        }
        if !view_is_fresh {
            writer.view.reach(writer.latest_revision.read().await?).await?;
            view_is_fresh = true;
            continue;
        }
        let key = Keys::new(env).store_epoch();
        let leaders = leader_epoch(writer, env);
        let now = u64::try_from(writer.clock.now().as_second()).unwrap_or(0);
        let next = now.max(known.epoch.max(leaders).saturating_add(1));
        let txn = Txn::new().guard(Guard::observed(key.clone(), epoch_at)).op(Op::put(key, next.to_string()));
        let committed = commit_all(writer, vec![txn]).await?;
        writer.view.reach(committed.revision).await?;
        if committed.complete {
            tracing::warn!(%env, agent = %known, store = %newest, "an agent has a newer generation than the store: the \
                store was restored, and a new epoch begins");
            return Ok(());
        }
    }
    Err(EpochError::Contended { env: env.clone() })
}

/// The highest epoch of the environment's leaders. Leader epochs start at the store's epoch, and grow.
fn leader_epoch(reader: &Reader, env: &EnvName) -> u64 {
    let fleets = reader.view.fleets();
    let leaders = fleets.get(env).into_iter().flat_map(|fleet| fleet.leaders().values());
    leaders.map(|(leader, _)| leader.epoch).max().unwrap_or(0)
}

/// The epoch of an environment, its revision, and the revision of the view.
fn epoch_in_view(reader: &Reader, env: &EnvName) -> (u64, Option<Revision>, Revision) {
    let fleets = reader.view.fleets();
    let view = reader.view.revision().unwrap_or_default();
    fleets.get(env).map_or((0, None, view), |fleet| (fleet.epoch(), fleet.epoch_at(), fleet.revision.max(view)))
}
