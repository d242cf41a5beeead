//! The hands of the engine: brings what it needs, and commits what it says. It decides nothing.

use muster_core::fleet::Fleet;
use muster_core::names::EnvName;
use muster_core::txn::Txn;
use muster_rollout::executor::{Errand, Got, Need, Next, Wish, Wrote};
use muster_rollout::sight::Sight;
use muster_store::{Outcome, StoreError};
use thiserror::Error;

use super::plans::{KeepPlanError, PlanUnreadable};
use super::sight::with_sight;
use super::{outcome, way};
use crate::App;
use crate::api::chain;
use crate::design::error::ReadDesignError;
use crate::view::StaleView;

/// Why something that is needed cannot be had now.
#[derive(Debug, Error)]
pub(crate) enum Lacking {
    #[error("the environment {0} is gone")]
    Env(EnvName),
    #[error(transparent)]
    Design(#[from] ReadDesignError),
    #[error(transparent)]
    Plan(#[from] PlanUnreadable),
    #[error(transparent)]
    Keep(#[from] KeepPlanError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    StaleView(#[from] StaleView),
}

/// Brings what is needed.
pub(crate) async fn bring(app: &App, env: &EnvName, need: Need) -> Result<Got, Lacking> {
    Ok(match need {
        Need::Newest => Got::Newest(app.latest_revision.read().await?),
        Need::View(revision) => {
            app.view.reach(revision).await?;
            Got::Viewed
        }
        Need::Plan(digest) => match app.plans.get(&digest).await {
            Err(error) if error.may_pass() => return Err(error.into()),
            plan => Got::Plan(plan.map_err(|error| chain(&error))),
        },
        Need::Way { required: true } => Got::Way(Box::new(way::of(app, env).await?)),
        Need::Way { required: false } => Got::Way(Box::new(way::of(app, env).await.unwrap_or_default())),
        Need::Keep(plan) => Got::Kept(app.plans.keep(&plan).await?),
        Need::KeepOutcome(stood) => match outcome::keep(app, &stood).await {
            Ok(name) => Got::OutcomeKept(Some(name)),
            Err(error) => {
                tracing::warn!(%env, error = chain(&error), "what became of a rollout cannot be kept");
                Got::OutcomeKept(None)
            }
        },
    })
}

/// Does what a person asks for, until it is done or refused.
pub(crate) async fn run<W: Wish, E>(app: &App, env: &EnvName, wish: W) -> Result<W::Done, E>
where
    E: From<W::Refused> + From<Lacking>,
{
    let (mut errand, first) = Errand::new(wish);
    let mut got = bring(app, env, first).await?;
    loop {
        got = match look(app, env, |sight| errand.next(sight, got))?? {
            Next::Needs(need) => bring(app, env, need).await?,
            Next::Commit(txn) => Got::Wrote(commit(app, txn).await?),
            Next::Done(done) => return Ok(done),
        };
    }
}

async fn commit(app: &App, txn: Txn) -> Result<Wrote, Lacking> {
    match app.store.commit(txn).await {
        Ok(Outcome::Committed { revision }) => Ok(Wrote::Committed(revision)),
        Ok(Outcome::Refused { revision, .. }) => Ok(Wrote::Refused(revision)),
        Err(StoreError::Unknown { .. }) => Ok(Wrote::Unknown),
        Err(error) => Err(error.into()),
    }
}

/// Looks at what there is to see of an environment now.
pub(crate) fn look<T>(app: &App, env: &EnvName, look: impl FnOnce(&Sight<'_>) -> T) -> Result<T, Lacking> {
    let fleets = app.view.fleets();
    let fleet: &Fleet = fleets.get(env).ok_or_else(|| Lacking::Env(env.clone()))?;
    Ok(with_sight(app, fleet, look))
}
