//! IO for the rollout engine: reads what it requests, commits what it decides. Decides nothing itself.
//!
//! Requests of operators (plan, start, roll back, command) pass through here too.

use jiff::SignedDuration;
use muster_core::fleet::Fleet;
use muster_core::names::{EnvName, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::{PlanRequest, StartTarget};
use muster_core::txn::{Revision, Txn};
use muster_rollout::command::RolloutCommand;
use muster_rollout::decision::DecisionInput;
use muster_rollout::executor::{
    CommandOutcome, CommitResult, IoRequest, IoResult, NextAction, OperatorCommand, OperatorCommandError,
    OperatorRequest, RequestExecutor, RollBackRollout, RolloutConfig, StartOutcome, StartRollout, StartRolloutError,
    StartedRollout, check_gate_commands, resolve_request,
};
use muster_rollout::plan::plan;
use muster_rollout::start::StartOptions;
use muster_store::{CommitOutcome, StoreError};
use muster_wire::rollout::{PlanResponse, StrategySource};
use thiserror::Error;

use crate::api::chain;
use crate::app::{Agents, Reader, Writer};
use crate::design::compiled::{DesignRef, ReadDesignError};
use crate::releases::unchecked_roles;
use crate::rollouts::plans::{KeepPlanError, PlanUnreadable, Plans, keep_outcome};
use crate::view::StaleView;

/// Reason why an IO request of the engine fails.
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

/// Serves one IO request of the engine.
pub(crate) async fn serve_io(reader: &Reader, env: &EnvName, request: IoRequest) -> Result<IoResult, HostError> {
    Ok(match request {
        IoRequest::StoreRevision => IoResult::StoreRevision(reader.latest_revision.read().await?),
        IoRequest::AwaitView(revision) => {
            reader.view.reach(revision).await?;
            IoResult::ViewReached
        }
        IoRequest::LoadPlan(digest) => match reader.plans.get(&digest).await {
            Err(error) if error.may_pass() => return Err(error.into()),
            plan => IoResult::Plan(plan.map_err(|error| chain(&error))),
        },
        IoRequest::LoadConfig { required: true } => IoResult::Config(Box::new(read_rollout_config(reader, env).await?)),
        IoRequest::LoadConfig { required: false } => {
            IoResult::Config(Box::new(read_rollout_config(reader, env).await.unwrap_or_default()))
        }
        IoRequest::SavePlan(plan) => IoResult::PlanSaved(reader.plans.keep(&plan).await?),
        IoRequest::SaveOutcome(progress) => match keep_outcome(reader, &progress).await {
            Ok(name) => IoResult::OutcomeSaved(Some(name)),
            Err(error) => {
                tracing::warn!(%env, error = chain(&error), "the outcome of a rollout cannot be stored");
                IoResult::OutcomeSaved(None)
            }
        },
    })
}

/// Runs an operator's request through the engine until it is done or refused. `newest`: the store's revision, if it was read since
/// the request arrived.
pub(crate) async fn run<R: OperatorRequest, E>(
    writer: &Writer,
    agents: &Agents,
    env: &EnvName,
    newest: Option<Revision>,
    request: R,
) -> Result<R::Outcome, E>
where
    E: From<R::Error> + From<HostError>,
{
    let (mut executor, first) = RequestExecutor::new(request);
    let mut got = match (first, newest) {
        (IoRequest::StoreRevision, Some(revision)) => IoResult::StoreRevision(revision),
        (first, _) => serve_io(writer, env, first).await?,
    };
    loop {
        got = match with_decision_input(writer, agents, env, |input| executor.next(input, got))?? {
            NextAction::Io(request) => serve_io(writer, env, request).await?,
            NextAction::Commit(txn) => IoResult::Commit(commit(writer, txn).await?),
            NextAction::Done(done) => return Ok(done),
        };
    }
}

async fn commit(writer: &Writer, txn: Txn) -> Result<CommitResult, HostError> {
    match writer.store.commit(txn).await {
        Ok(CommitOutcome::Committed { revision }) => Ok(CommitResult::Committed(revision)),
        Ok(CommitOutcome::Conflict { revision, .. }) => Ok(CommitResult::Conflict(revision)),
        Err(StoreError::Unknown { .. }) => Ok(CommitResult::Unknown),
        Err(error) => Err(error.into()),
    }
}

/// Calls the engine with the current state of an environment.
pub(crate) fn with_decision_input<T>(
    reader: &Reader,
    agents: &Agents,
    env: &EnvName,
    decide: impl FnOnce(&DecisionInput<'_>) -> T,
) -> Result<T, HostError> {
    let fleets = reader.view.fleets();
    let fleet: &Fleet = fleets.get(env).ok_or_else(|| HostError::Env(env.clone()))?;
    Ok(with_fleet_input(reader, agents, fleet, decide))
}

/// Calls `decide` with the current state of a fleet.
pub(crate) fn with_fleet_input<T>(
    reader: &Reader,
    agents: &Agents,
    fleet: &Fleet,
    decide: impl FnOnce(&DecisionInput<'_>) -> T,
) -> T {
    let link = |name: &_| agents.links.link(fleet, name);
    // An agent that is silent for longer is lost, and not just reconnecting.
    let disconnect_grace: SignedDuration = agents.liveness_timeouts.lost_after;
    let (ages, since) = reader.view.observation_ages();
    let observed_for = |revision| ages.age_of(revision, since);
    decide(&DecisionInput {
        fleet,
        link: &link,
        link_changes: &|since| agents.links.changes(&fleet.env, since),
        disconnect_grace,
        max_ops: reader.latest_revision.max_ops(),
        now: reader.clock.now(),
        observed_for: &observed_for,
    })
}

/// Reads the rollout configuration of the applied design; the default if there is none.
pub(crate) async fn read_rollout_config(reader: &Reader, env: &EnvName) -> Result<RolloutConfig, ReadDesignError> {
    let design_ref = {
        let fleets = reader.view.fleets();
        let applied = fleets.get(env).and_then(|fleet| Some((fleet, fleet.design().applied.as_ref()?)));
        match applied {
            Some((fleet, (applied, _))) => DesignRef::find(fleet, Some(applied.revision))?,
            None => return Ok(RolloutConfig::default()),
        }
    };
    let compiled = reader.designs.get(env, &design_ref).await?;
    let environment = compiled.design.environment();
    Ok(RolloutConfig {
        strategy: environment.and_then(|environment| environment.rollout.clone()),
        after: environment.map(|environment| environment.after()).unwrap_or_default(),
        design: Some(design_ref.number),
    })
}

#[derive(Debug, Error)]
pub(crate) enum BeginError {
    #[error(transparent)]
    Refused(#[from] StartRolloutError),
    #[error(transparent)]
    HostError(#[from] HostError),
}

#[derive(Debug, Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Refused(#[from] OperatorCommandError),
    #[error(transparent)]
    HostError(#[from] HostError),
}

/// Plans a rollout, and starts nothing.
pub(crate) async fn plan_for(
    reader: &Reader,
    agents: &Agents,
    env: &EnvName,
    request: PlanRequest,
) -> Result<PlanResponse, BeginError> {
    let newest = reader.latest_revision.read().await.map_err(HostError::from)?;
    serve_io(reader, env, IoRequest::AwaitView(newest)).await?;
    let config = read_rollout_config(reader, env).await.map_err(HostError::from)?;
    let (design, strategy_from) = (config.design, strategy_from(&request, &config));
    request.strategy.as_ref().map_or(Ok(()), |given| check_gate_commands(given, &config))?;
    let (plan, unchecked, revision) = with_decision_input(reader, agents, env, |input| {
        let plan = plan(input, &resolve_request(request, config, input.fleet)).map_err(StartRolloutError::from)?;
        let release = input.fleet.releases().get(&plan.to);
        let unchecked = release.map(|release| unchecked_roles(input.fleet, release)).unwrap_or_default();
        Ok::<_, BeginError>((plan, unchecked, input.fleet.revision))
    })??;
    let digest = Plans::digest(&plan).map_err(|error| HostError::Keep(KeepPlanError::from(error)))?;
    Ok(PlanResponse { plan, digest, design, strategy_from, unchecked, revision })
}

fn strategy_from(request: &PlanRequest, config: &RolloutConfig) -> StrategySource {
    match (&request.strategy, &config.strategy) {
        (Some(_), _) => StrategySource::Given,
        (None, Some(_)) => StrategySource::Environment,
        (None, None) => StrategySource::Default,
    }
}

/// Starts a rollout: plans it, or starts a plan that is not stale. `newest`: as for [`run`].
pub(crate) async fn begin(
    writer: &Writer,
    agents: &Agents,
    env: &EnvName,
    newest: Revision,
    target: StartTarget,
    options: StartOptions,
) -> Result<StartOutcome, BeginError> {
    let by = options.by.clone();
    let outcome: StartOutcome =
        run::<_, BeginError>(writer, agents, env, Some(newest), StartRollout::new(target, options)).await?;
    if let StartOutcome::Started(StartedRollout { id, from, to, at_once, changed: true, .. }) = &outcome {
        let from = from.as_ref().map(Version::as_str);
        tracing::info!(%env, rollout = %id, from, %to, by, at_once, "rollout started");
    }
    Ok(outcome)
}

/// Starts the rollback of a rollout.
pub(crate) async fn roll_back(
    writer: &Writer,
    agents: &Agents,
    env: &EnvName,
    request: RollBackRollout,
) -> Result<StartedRollout, BeginError> {
    let (id, by) = (request.id, request.options.by.clone());
    let started: StartedRollout = run::<_, BeginError>(writer, agents, env, None, request).await?;
    if started.changed {
        tracing::info!(%env, rollout = %started.id, to = %started.to, by, "rolling back rollout {id}");
    }
    Ok(started)
}

/// Sends a command to a rollout.
pub(crate) async fn send_command(
    writer: &Writer,
    agents: &Agents,
    env: &EnvName,
    id: RolloutId,
    command: RolloutCommand,
    by: String,
    request: String,
) -> Result<CommandOutcome, CommandError> {
    run(writer, agents, env, None, OperatorCommand { id, command, by, request }).await
}
