//! Plans rollouts and begins them: forward with a strategy, or back to what is known to be good.

use std::sync::Arc;

use muster_core::fleet::Fleet;
use muster_core::names::{EnvName, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::Plan;
use muster_core::rollout::record::{Halt, RolloutRecord};
use muster_core::rollout::strategy::{CheckKind, GateCheck, Strategy};
use muster_core::txn::{Revision, Txn};
use muster_rollout::compare::moved;
use muster_rollout::order::draw;
use muster_rollout::plan::{PlanError, Request, plan};
use muster_rollout::start::{self, StartRefused, Starting, stable_version};
use muster_rollout::step::Indexed;
use muster_store::{Outcome, StoreError};
use muster_wire::rollout::{PlanAnswer, PlanRequest, Start, StrategyFrom};
use thiserror::Error;

use super::plans::{KeepPlanError, Plans};
use super::sight::with_sight;
use super::way::{self, Way};
use crate::App;
use crate::design::error::ReadDesignError;
use crate::view::Behind;

/// So often somebody else may be faster: two who start, and a fleet that grows meanwhile.
const TRIES: usize = 8;

#[derive(Debug, Error)]
pub(crate) enum BeginError {
    #[error("the environment {0} is gone")]
    Gone(EnvName),
    #[error(transparent)]
    Design(#[from] ReadDesignError),
    #[error(transparent)]
    NoPlan(#[from] PlanError),
    #[error(
        "the check {check:?} runs a program, and is not in the environment file: a command of a gate must stand in the \
         environment file"
    )]
    ForeignCommand { check: String },
    #[error("the plan is for the environment {0}")]
    OfAnother(EnvName),
    #[error("the world has moved since the plan was made: {}", .0.join("; "))]
    Outdated(Vec<String>),
    #[error(transparent)]
    Refused(#[from] StartRefused),
    #[error("rollout {id} to {to} cannot be rolled back: no other version was ever validated by a whole rollout")]
    NothingToGoBackTo { id: RolloutId, to: Version },
    #[error("there is no rollout {0}")]
    Unknown(RolloutId),
    #[error(transparent)]
    Keep(#[from] KeepPlanError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Behind(#[from] Behind),
    #[error("others start rollouts of {0} again and again at the same moment")]
    Contended(EnvName),
}

/// A rollout that has begun, now or by the same request before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) id: RolloutId,
    pub(crate) from: Option<Version>,
    pub(crate) to: Version,
    pub(crate) changed: bool,
    pub(crate) superseded: Option<RolloutId>,
    pub(crate) revision: Revision,
}

/// What would happen.
pub(crate) async fn plan_for(app: &App, env: &EnvName, asked: PlanRequest) -> Result<PlanAnswer, BeginError> {
    app.view.reach(app.newest.revision().await?).await?;
    let way = way::of(app, env).await?;
    let (design, strategy_from) = (way.design, strategy_from(&asked, &way));
    asked.strategy.as_ref().map_or(Ok(()), |given| own_commands(given, &way))?;
    let (plan, revision) = ask(app, env, |fleet| {
        let request = request(asked, way, fleet);
        let plan = with_sight(app, fleet, |sight| plan(sight, &request))?;
        Ok::<_, BeginError>((plan, fleet.revision))
    })??;
    let digest = Plans::digest(&plan).map_err(KeepPlanError::from)?;
    Ok(PlanAnswer { plan, digest, design, strategy_from, revision })
}

/// The server runs the commands of a gate, with its rights. So only those are run that the environment's own file holds,
/// which is looked at before it is applied: not whatever somebody sends along who can reach the API.
fn own_commands(strategy: &Strategy, way: &Way) -> Result<(), BeginError> {
    let own = || way.strategy.iter().flat_map(|own| &own.gate.checks);
    let is_own = |check: &GateCheck| match &check.kind {
        CheckKind::Http(_) => true,
        CheckKind::Command(_) => own().any(|own| own.kind == check.kind),
    };
    match strategy.gate.checks.iter().find(|check| !is_own(check)) {
        Some(foreign) => Err(BeginError::ForeignCommand { check: foreign.name.clone() }),
        None => Ok(()),
    }
}

fn strategy_from(asked: &PlanRequest, way: &Way) -> StrategyFrom {
    match (&asked.strategy, &way.strategy) {
        (Some(_), _) => StrategyFrom::Given,
        (None, Some(_)) => StrategyFrom::Environment,
        (None, None) => StrategyFrom::Default,
    }
}

fn request(asked: PlanRequest, way: Way, fleet: &Fleet) -> Request {
    let PlanRequest { to, strategy, seed, allow_older, at_once } = asked;
    // Another one for each rollout, else the same node would always go first; and the same until the next one begins, so
    // that what was planned is what is started.
    let last = fleet.rollouts().keys().next_back().copied().unwrap_or_default();
    let seed = seed.unwrap_or_else(|| draw(last.next().0, to.as_str()));
    Request {
        to,
        strategy: strategy.or(way.strategy).unwrap_or_default(),
        after: way.after,
        seed,
        at_once,
        allow_older,
        rolls_back: None,
    }
}

/// Plans and starts a rollout, or starts a plan that still holds.
pub(crate) async fn begin(app: &App, env: &EnvName, what: &Start, who: &Starting) -> Result<Begun, BeginError> {
    let mut unsure = false;
    for _ in 0..TRIES {
        app.view.reach(app.newest.revision().await?).await?;
        if let Some(begun) = ask(app, env, |fleet| begun_by(fleet, &who.request, unsure))? {
            return Ok(begun);
        }
        // Before anything is said of the plan: who asks for an older version than the one under way is told of that one.
        ask(app, env, |fleet| start::may_take_over(fleet, who.supersede))??;
        let planned = planned(app, env, what).await?;
        let digest = app.plans.keep(&planned).await?;
        let (txn, id, superseded) = ask(app, env, |fleet| {
            let open = fleet.deciding_rollout().filter(|(record, _)| record.phase.is_open());
            let superseded = open.map(|(record, _)| record.id);
            let started = with_sight(app, fleet, |sight| start::start(sight, &planned, &digest, who.clone()))?;
            Ok::<_, StartRefused>((started.txn, started.id, superseded))
        })??;
        // By the same request, a moment ago.
        let Some(txn) = txn else { continue };
        match commit(app, txn).await? {
            Some(revision) => {
                let (from, to) = (planned.from, planned.to);
                tracing::info!(%env, rollout = %id, from = from.as_ref().map(Version::as_str), %to, by = who.by,
                    at_once = planned.at_once, "a rollout begins");
                return Ok(Begun { id, from, to, changed: true, superseded, revision });
            }
            None => unsure = true,
        }
    }
    Err(BeginError::Contended(env.clone()))
}

async fn planned(app: &App, env: &EnvName, what: &Start) -> Result<Plan, BeginError> {
    let way = way::of(app, env).await?;
    let sent_along = match what {
        Start::Now(asked) => asked.strategy.as_ref(),
        Start::Plan(given) => Some(&given.strategy),
    };
    sent_along.map_or(Ok(()), |sent| own_commands(sent, &way))?;
    let (request, given) = match what {
        Start::Now(asked) => (ask(app, env, |fleet| request(asked.clone(), way, fleet))?, None),
        Start::Plan(given) if given.env != *env => return Err(BeginError::OfAnother(given.env.clone())),
        // The order is the design's, whatever it was when the plan was made.
        Start::Plan(given) => (Request { after: way.after, ..Request::of(given) }, Some(given)),
    };
    let plan = ask(app, env, |fleet| with_sight(app, fleet, |sight| plan(sight, &request)))??;
    let moved: Vec<String> =
        given.map(|given| moved(given, &plan)).into_iter().flatten().map(|m| m.to_string()).collect();
    if moved.is_empty() { Ok(plan) } else { Err(BeginError::Outdated(moved)) }
}

/// The rollout that a request has begun.
fn begun_by(fleet: &Fleet, request: &str, unsure: bool) -> Option<Begun> {
    let same = fleet.rollouts().values().find(|(record, _)| !request.is_empty() && record.request == request);
    let (record, _) = same?;
    // The transaction that began it is the last that chose a version, as long as no other rollout was begun since. What nodes
    // are told at once is counted from there.
    let is_last = fleet.active_rollout().is_some_and(|(active, _)| active.id == record.id);
    let chosen = fleet.current_version().map(|(_, at)| at).filter(|_| is_last);
    Some(Begun {
        id: record.id,
        from: record.from.clone(),
        to: record.to.clone(),
        // A try whose answer was lost was carried out.
        changed: unsure,
        superseded: None,
        revision: chosen.unwrap_or(fleet.revision),
    })
}

/// The way back from a rollout, planned and kept.
#[derive(Debug)]
pub(crate) struct Back {
    plan: Plan,
    digest: String,
}

/// Plans the way back from a rollout: to the last version that a whole one has validated, with the same budgets.
pub(crate) async fn plan_back(app: &App, env: &EnvName, id: RolloutId) -> Result<Back, BeginError> {
    let (record, stable) = ask(app, env, |fleet| {
        let record = fleet.rollouts().get(&id).map(|(record, _)| record.clone());
        record.map(|record| (record, stable_version(fleet, id)))
    })?
    .ok_or(BeginError::Unknown(id))?;
    let Some(stable) = stable else { return Err(BeginError::NothingToGoBackTo { id, to: record.to }) };
    let there: Option<Arc<Indexed>> = app.plans.get(&record.plan).await.ok();
    let (strategy, after, seed) = match &there {
        Some(there) => {
            let plan = there.plan();
            (plan.strategy.clone(), plan.after.clone(), plan.seed)
        }
        // A way back must be found even then.
        None => {
            let way = way::of(app, env).await.unwrap_or_default();
            (way.strategy.unwrap_or_default(), way.after, id.0)
        }
    };
    let (at_once, allow_older) = (false, true);
    let request = Request { to: stable, strategy, after, seed, at_once, allow_older, rolls_back: Some(id) };
    let plan = ask(app, env, |fleet| with_sight(app, fleet, |sight| plan(sight, &request)))??;
    let digest = app.plans.keep(&plan).await?;
    Ok(Back { plan, digest })
}

impl Back {
    /// The transaction that begins it. None if the same request has begun it before.
    pub(crate) fn txn(
        &self,
        app: &App,
        fleet: &Fleet,
        (record, at): (&RolloutRecord, Revision),
        who: Starting,
        why: &Halt,
    ) -> Result<(RolloutId, Option<Txn>), StartRefused> {
        let begun =
            with_sight(app, fleet, |sight| start::roll_back(sight, &self.plan, &self.digest, who, (record, at), why))?;
        Ok((begun.id, begun.txn))
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// Goes back from a rollout, by somebody's word.
pub(crate) async fn roll_back(
    app: &App,
    env: &EnvName,
    id: RolloutId,
    who: &Starting,
    why: &Halt,
) -> Result<Begun, BeginError> {
    let mut unsure = false;
    for _ in 0..TRIES {
        app.view.reach(app.newest.revision().await?).await?;
        if let Some(begun) = ask(app, env, |fleet| begun_by(fleet, &who.request, unsure))? {
            return Ok(begun);
        }
        let back = plan_back(app, env, id).await?;
        let (back_id, txn) = ask(app, env, |fleet| {
            let (record, at) = fleet.rollouts().get(&id).ok_or(BeginError::Unknown(id))?;
            Ok::<_, BeginError>(back.txn(app, fleet, (record, *at), who.clone(), why)?)
        })??;
        let Some(txn) = txn else { continue };
        match commit(app, txn).await? {
            Some(revision) => {
                let Plan { from, to, .. } = back.plan;
                tracing::info!(%env, rollout = %back_id, %to, by = who.by, "goes back from rollout {id}");
                return Ok(Begun { id: back_id, from, to, changed: true, superseded: None, revision });
            }
            None => unsure = true,
        }
    }
    Err(BeginError::Contended(env.clone()))
}

/// Commits what a person asked for, and waits until the view shows it. None if it is to be decided anew: somebody was
/// faster, or the store did not say.
pub(super) async fn commit(app: &App, txn: Txn) -> Result<Option<Revision>, BeginError> {
    match app.store.commit(txn).await {
        Ok(Outcome::Committed { revision }) => {
            app.view.reach(revision).await?;
            Ok(Some(revision))
        }
        Ok(Outcome::Refused { revision, .. }) => {
            app.view.reach(revision).await?;
            Ok(None)
        }
        Err(StoreError::Unknown { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Asks the view about an environment.
pub(super) fn ask<T>(app: &App, env: &EnvName, question: impl FnOnce(&Fleet) -> T) -> Result<T, BeginError> {
    let fleets = app.view.fleets();
    fleets.get(env).map(question).ok_or_else(|| BeginError::Gone(env.clone()))
}
