//! IO for the rollout engine: reads what it requests, commits what it decides. Decides nothing itself.

use jiff::SignedDuration;
use muster_core::fleet::Fleet;
use muster_core::names::EnvName;
use muster_core::txn::Txn;
use muster_rollout::executor::{Errand, Got, Need, Next, Way, Wish, Wrote};
use muster_rollout::sight::Sight;
use muster_store::{CommitOutcome, StoreError};
use thiserror::Error;

use crate::App;
use crate::api::chain;
use crate::design::cache::DesignRef;
use crate::design::error::ReadDesignError;
use crate::rollouts::plans::{KeepPlanError, PlanUnreadable, keep_outcome};
use crate::view::StaleView;

/// Why something that is needed cannot be had now.
#[derive(Debug, Error)]
pub(crate) enum HostError {
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
pub(crate) async fn serve_io(app: &App, env: &EnvName, need: Need) -> Result<Got, HostError> {
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
        Need::Way { required: true } => Got::Way(Box::new(read_rollout_config(app, env).await?)),
        Need::Way { required: false } => Got::Way(Box::new(read_rollout_config(app, env).await.unwrap_or_default())),
        Need::Keep(plan) => Got::Kept(app.plans.keep(&plan).await?),
        Need::KeepOutcome(stood) => match keep_outcome(app, &stood).await {
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
    E: From<W::Refused> + From<HostError>,
{
    let (mut errand, first) = Errand::new(wish);
    let mut got = serve_io(app, env, first).await?;
    loop {
        got = match with_decision_input(app, env, |sight| errand.next(sight, got))?? {
            Next::Needs(need) => serve_io(app, env, need).await?,
            Next::Commit(txn) => Got::Wrote(commit(app, txn).await?),
            Next::Done(done) => return Ok(done),
        };
    }
}

async fn commit(app: &App, txn: Txn) -> Result<Wrote, HostError> {
    match app.store.commit(txn).await {
        Ok(CommitOutcome::Committed { revision }) => Ok(Wrote::Committed(revision)),
        Ok(CommitOutcome::Conflict { revision, .. }) => Ok(Wrote::Refused(revision)),
        Err(StoreError::Unknown { .. }) => Ok(Wrote::Unknown),
        Err(error) => Err(error.into()),
    }
}

/// Looks at what there is to see of an environment now.
pub(crate) fn with_decision_input<T>(
    app: &App,
    env: &EnvName,
    look: impl FnOnce(&Sight<'_>) -> T,
) -> Result<T, HostError> {
    let fleets = app.view.fleets();
    let fleet: &Fleet = fleets.get(env).ok_or_else(|| HostError::Env(env.clone()))?;
    Ok(with_sight(app, fleet, look))
}

/// Decides something on what there is to see of a fleet now.
pub(crate) fn with_sight<T>(app: &App, fleet: &Fleet, decide: impl FnOnce(&Sight<'_>) -> T) -> T {
    let link = |name: &_| app.links.link(fleet, name);
    // Whoever is lost by then has more than a hiccup.
    let patience: SignedDuration = app.patience.lost_after;
    let (arrivals, since) = app.view.arrivals();
    let known_for = |revision| arrivals.known_for(revision, since);
    decide(&Sight { fleet, link: &link, patience, now: app.clock.now(), known_for: &known_for })
}

/// Reads the design that the nodes follow. Without one there is no order, and no strategy.
pub(crate) async fn read_rollout_config(app: &App, env: &EnvName) -> Result<Way, ReadDesignError> {
    let meant = {
        let fleets = app.view.fleets();
        let applied = fleets.get(env).and_then(|fleet| Some((fleet, fleet.design().applied.as_ref()?)));
        match applied {
            Some((fleet, (applied, _))) => DesignRef::of(fleet, Some(applied.revision))?,
            None => return Ok(Way::default()),
        }
    };
    let compiled = app.designs.get(env, &meant).await?;
    let environment = compiled.design.environment();
    Ok(Way {
        strategy: environment.and_then(|environment| environment.rollout.clone()),
        after: environment.map(|environment| environment.after()).unwrap_or_default(),
        design: Some(meant.number),
    })
}
