//! Begins a new epoch when agents know a later life of the store than the store itself: it was restored from a backup.
//!
//! Agents refuse what is older than what they were told. A restored store counts on from an older revision, so without a
//! new epoch everything that it says would be refused, and the fleet would stand still.

use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::txn::{Generation, Guard, Op, Revision, Txn};
use muster_store::{CommitOutcome, StoreError};
use thiserror::Error;

use crate::App;
use crate::view::StaleView;

/// Several agents that find it out at the same moment begin one epoch; each of the others sees it at its second try.
const TRIES: usize = 5;

#[derive(Debug, Error)]
pub(crate) enum EpochError {
    #[error("a new epoch cannot be begun")]
    Store(#[from] StoreError),
    #[error(transparent)]
    StaleView(#[from] StaleView),
    #[error("the epoch of {env} is being changed elsewhere")]
    Contended { env: EnvName },
}

/// Begins a new epoch if an agent's generation cannot have come from this store as it is. Reads the store only for an
/// agent that knows more than the view: another replica may have told it what has not arrived here yet.
pub(crate) async fn keep_up(app: &App, env: &EnvName, known: Generation) -> Result<(), EpochError> {
    let mut view_is_fresh = false;
    for _ in 0..TRIES {
        let (epoch, epoch_at, revision) = seen(app, env);
        let newest = Generation { epoch, number: revision.0 };
        if known <= newest {
            return Ok(());
        }
        if !view_is_fresh {
            app.view.reach(app.latest_revision.read().await?).await?;
            view_is_fresh = true;
            continue;
        }
        let key = Keys::new(env).store_epoch();
        let leaders = leader_epoch(app, env);
        let now = u64::try_from(app.clock.now().as_second()).unwrap_or(0);
        let next = now.max(known.epoch.max(leaders).saturating_add(1));
        let txn = Txn::new().guard(Guard::observed(key.clone(), epoch_at)).op(Op::put(key, next.to_string()));
        match app.store.commit(txn).await {
            Ok(CommitOutcome::Committed { revision }) => {
                tracing::warn!(%env, agent = %known, store = %newest, "an agent knows a later life of the store: it \
                    was restored, and a new epoch begins");
                app.view.reach(revision).await?;
                return Ok(());
            }
            // Another agent came first.
            Ok(CommitOutcome::Conflict { revision, .. }) => app.view.reach(revision).await?,
            Err(StoreError::Unknown { .. }) => view_is_fresh = false,
            Err(error) => return Err(error.into()),
        }
    }
    Err(EpochError::Contended { env: env.clone() })
}

/// The highest epoch of the environment's leaders: theirs begin at the store's, and go up.
fn leader_epoch(app: &App, env: &EnvName) -> u64 {
    let fleets = app.view.fleets();
    let leaders = fleets.get(env).into_iter().flat_map(|fleet| fleet.leaders().values());
    leaders.map(|(leader, _)| leader.epoch).max().unwrap_or(0)
}

/// The epoch of an environment, when it was written, and how far the view is.
fn seen(app: &App, env: &EnvName) -> (u64, Option<Revision>, Revision) {
    let fleets = app.view.fleets();
    let view = app.view.revision().unwrap_or_default();
    fleets.get(env).map_or((0, None, view), |fleet| (fleet.epoch(), fleet.epoch_at(), fleet.revision.max(view)))
}
