//! Requests of operators to the rollout engine: plan, start, roll back, command.

use muster_core::names::{EnvName, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::request::{PlanRequest, StartTarget};
use muster_rollout::command::RolloutCommand;
use muster_rollout::executor::{
    CommandOutcome, IoRequest, OperatorCommand, OperatorCommandError, RollBackRollout, RolloutConfig, StartOutcome,
    StartRollout, StartRolloutError, StartedRollout, check_gate_commands, resolve_request,
};
use muster_rollout::plan::plan;
use muster_rollout::start::StartOptions;
use muster_wire::rollout::{PlanResponse, StrategySource};
use thiserror::Error;

use crate::app::{Agents, Reader, Writer};
use crate::rollouts::host::{HostError, read_rollout_config, run, serve_io, with_decision_input};
use crate::rollouts::plans::{KeepPlanError, Plans};

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
    asked: PlanRequest,
) -> Result<PlanResponse, BeginError> {
    let newest = reader.latest_revision.read().await.map_err(HostError::from)?;
    serve_io(reader, env, IoRequest::AwaitView(newest)).await?;
    let way = read_rollout_config(reader, env).await.map_err(HostError::from)?;
    let (design, strategy_from) = (way.design, strategy_from(&asked, &way));
    asked.strategy.as_ref().map_or(Ok(()), |given| check_gate_commands(given, &way))?;
    let (plan, revision) = with_decision_input(reader, agents, env, |sight| {
        let plan = plan(sight, &resolve_request(asked, way, sight.fleet)).map_err(StartRolloutError::from)?;
        Ok::<_, BeginError>((plan, sight.fleet.revision))
    })??;
    let digest = Plans::digest(&plan).map_err(|error| HostError::Keep(KeepPlanError::from(error)))?;
    Ok(PlanResponse { plan, digest, design, strategy_from, revision })
}

fn strategy_from(asked: &PlanRequest, way: &RolloutConfig) -> StrategySource {
    match (&asked.strategy, &way.strategy) {
        (Some(_), _) => StrategySource::Given,
        (None, Some(_)) => StrategySource::Environment,
        (None, None) => StrategySource::Default,
    }
}

/// Starts a rollout: plans it, or starts a plan that is not stale.
pub(crate) async fn begin(
    writer: &Writer,
    agents: &Agents,
    env: &EnvName,
    what: StartTarget,
    who: StartOptions,
) -> Result<StartOutcome, BeginError> {
    let by = who.by.clone();
    let outset: StartOutcome = run::<_, BeginError>(writer, agents, env, StartRollout::new(what, who)).await?;
    if let StartOutcome::Started(StartedRollout { id, from, to, at_once, changed: true, .. }) = &outset {
        let from = from.as_ref().map(Version::as_str);
        tracing::info!(%env, rollout = %id, from, %to, by, at_once, "rollout started");
    }
    Ok(outset)
}

/// Starts the rollback of a rollout.
pub(crate) async fn roll_back(
    writer: &Writer,
    agents: &Agents,
    env: &EnvName,
    wish: RollBackRollout,
) -> Result<StartedRollout, BeginError> {
    let (id, by) = (wish.id, wish.options.by.clone());
    let begun: StartedRollout = run::<_, BeginError>(writer, agents, env, wish).await?;
    if begun.changed {
        tracing::info!(%env, rollout = %begun.id, to = %begun.to, by, "rolling back rollout {id}");
    }
    Ok(begun)
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
    run(writer, agents, env, OperatorCommand { id, command, by, request }).await
}
