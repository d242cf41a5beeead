//! Executes rollouts, and the checks of their gates, on the replica that holds the controller lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_core::names::EnvName;
use muster_core::replica::ControllerName;
use muster_core::rollout::record::{GateVerdict, RolloutPhase, RolloutRecord, WaveState};
use muster_rollout::executor::{
    CommitResult, ControllerWrite, DEBOUNCE, Executor, GateRequest, IoResult, NextAction, RETRY_DELAY, ReconcileResult,
    WriteKind,
};
use muster_rollout::step::RolloutChange;
use muster_store::StoreError;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::App;
use crate::api::chain;
use crate::app::Clock;
use crate::replica::{ControllerLock, FencedOutcome};
use crate::rollouts::gate::commands::GateCommands;
use crate::rollouts::gate::{self, GateContext, GateMark};
use crate::rollouts::host::{serve_io, with_decision_input};

#[derive(Debug)]
pub struct RolloutController {
    pub app: App,
}

impl RolloutController {
    /// Reconciles the rollouts of all environments, forever.
    pub async fn run(&self) {
        let mut connections = self.app.agents.hub.subscribe();
        let mut rollouts = self.app.view.subscribe_rollouts();
        let mut controller_locks = self.app.replica.controller_locks.subscribe();
        let mark = GateMark::new(&self.app.replica.membership.record());
        mark.end_leftovers().await;
        let (mut executors, mut gates) = (BTreeMap::new(), Gates::new(mark, self.app.gate_commands.clone()));
        loop {
            connections.mark_unchanged();
            rollouts.mark_unchanged();
            controller_locks.mark_unchanged();
            let (is_busy, wait) = self.reconcile(&mut executors, &mut gates).await;
            let reconciled = Instant::now();
            // Wakes up for: a rollout, one of its nodes, or a pause; an agent that connects or disconnects here; a replica that
            // leaves or returns; a controller lock; the verdict of a gate; or the time at which something is due.
            tokio::select! {
                _ = connections.changed(), if is_busy => {}
                _ = rollouts.changed() => {}
                _ = controller_locks.changed() => {}
                (env, request, verdict) = gates.next_verdict() => {
                    if let Some(executor) = executors.get_mut(&env) {
                        executor.record_verdict(request, verdict);
                    }
                }
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
            // The first change is acted on at once, and those that follow it together.
            tokio::time::sleep_until(reconciled + DEBOUNCE).await;
        }
    }

    /// Steps all environments once. Returns whether a rollout is in progress here, and the time until the next step at the latest.
    async fn reconcile(
        &self,
        executors: &mut BTreeMap<EnvName, Executor>,
        gates: &mut Gates,
    ) -> (bool, Option<Duration>) {
        let seen = self.app.view.revision();
        let envs: Vec<EnvName> = self.app.view.fleets().keys().cloned().collect();
        for env in executors.keys().filter(|env| !envs.contains(env)) {
            gates.update(env, None, &self.app.clock);
        }
        executors.retain(|env, _| envs.contains(env));
        let (mut is_busy, mut wait) = (false, None::<Duration>);
        let mut sooner = |at: Duration| wait = Some(wait.map_or(at, |before| before.min(at)));
        for env in envs {
            let executor = executors.entry(env.clone()).or_default();
            let result = match self.app.replica.controller_locks.held(&env, ControllerName::Rollout) {
                Some(held) => self.step_environment(&held, executor).await,
                None => {
                    *executor = Executor::default();
                    ReconcileResult::Idle
                }
            };
            gates.update(&env, executor.gate_request(), &self.app.clock);
            is_busy |= result != ReconcileResult::Idle;
            match result {
                ReconcileResult::Idle | ReconcileResult::WaitUntil(None) => {}
                ReconcileResult::WaitUntil(Some(at)) => {
                    sooner(Duration::try_from(at.duration_since(self.app.clock.now())).unwrap_or_default());
                }
                ReconcileResult::Failed => sooner(RETRY_DELAY),
                ReconcileResult::Stuck { problem } => {
                    tracing::error!(%env, error = problem, "the record of a rollout cannot be written");
                }
                ReconcileResult::More => sooner(Duration::ZERO),
            }
        }
        self.app.replica.rollouts_checked_at.send_replace(seen);
        (is_busy, wait)
    }

    /// Executes steps until the executor is done.
    async fn step_environment(&self, held: &ControllerLock, executor: &mut Executor) -> ReconcileResult {
        let env = &held.env;
        let mut io_result = IoResult::Start;
        loop {
            let next =
                match with_decision_input(&self.app, &self.app.agents, env, |input| executor.next(input, io_result)) {
                    Ok(NextAction::Done(result)) => return result,
                    Ok(NextAction::Commit(write)) => Ok(IoResult::Commit(self.commit(held, *write).await)),
                    Ok(NextAction::Io(need)) => serve_io(&self.app, env, need).await,
                    // The environment is gone.
                    Err(_) => return ReconcileResult::Idle,
                };
            io_result = match next {
                Ok(result) => result,
                Err(error) => {
                    tracing::warn!(%env, error = chain(&error), "a rollout cannot continue; retrying soon");
                    return ReconcileResult::Failed;
                }
            };
        }
    }

    async fn commit(&self, held: &ControllerLock, write: ControllerWrite) -> CommitResult {
        let ControllerWrite { txn, before, kind } = write;
        let env = &held.env;
        match self.app.replica.controller_locks.commit_knowing(held, txn, before).await {
            Ok(FencedOutcome::Committed { revision }) => {
                log_written(env, &kind);
                CommitResult::Committed(revision)
            }
            Ok(FencedOutcome::Refused { revision }) => CommitResult::Conflict(revision),
            Ok(FencedOutcome::LockLost) => CommitResult::LockLost,
            // No retry can succeed.
            Err(StoreError::Invalid(error)) => {
                tracing::error!(%env, error = chain(&error), "{}", failure_text(&kind));
                CommitResult::Invalid(error.to_string())
            }
            Err(error) => {
                let failed = failure_text(&kind);
                tracing::warn!(%env, error = chain(&error), "{failed}; it is decided again soon");
                CommitResult::Unknown
            }
        }
    }
}

/// Logs a committed write.
fn log_written(env: &EnvName, what: &WriteKind) {
    match what {
        WriteKind::Step { before, change } => log_step(env, before, change),
        WriteKind::Rollback { from, rollout, to, why } => {
            tracing::warn!(%env, %rollout, %to, %why, "rolling back rollout {from}");
        }
        WriteKind::Outcome { rollout } => tracing::debug!(%env, %rollout, "outcome stored"),
    }
}

/// Log message for a failed write.
fn failure_text(what: &WriteKind) -> &'static str {
    match what {
        WriteKind::Step { change, .. } if matches!(change.record.phase, RolloutPhase::Paused { .. }) => {
            "a rollout cannot be paused"
        }
        WriteKind::Step { .. } => "a step of a rollout cannot be written",
        WriteKind::Rollback { .. } => "the rollback of a rollout cannot be started",
        WriteKind::Outcome { .. } => "the outcome of a rollout cannot be written",
    }
}

/// Logs the changes of a step.
fn log_step(env: &EnvName, before: &RolloutRecord, change: &RolloutChange) {
    let (now, rollout) = (&change.record, change.record.id);
    for (number, wave) in now.waves.iter().enumerate() {
        let (old, number) = (before.waves.get(number), number + 1);
        let is_new = |then: fn(&WaveState) -> bool| then(wave) && !old.is_some_and(then);
        if old.is_none() {
            tracing::info!(%env, %rollout, "wave {number} begins");
        }
        if is_new(|wave| wave.settled.is_some()) {
            tracing::info!(%env, %rollout, "all nodes of wave {number} are healthy; the wave soaks");
        }
        if old.is_some_and(|old| old.settled.is_some()) && wave.settled.is_none() {
            tracing::info!(%env, %rollout, "some nodes of wave {number} are no longer healthy");
        }
        if is_new(|wave| wave.gate.is_some()) {
            match &wave.gate {
                Some(GateVerdict::Passed { .. }) => tracing::info!(%env, %rollout, "the gate of wave {number} passed"),
                Some(GateVerdict::Failed { check, message, .. }) => {
                    tracing::warn!(%env, %rollout, check, message, "the gate of wave {number} failed");
                }
                Some(GateVerdict::Inconclusive { check, message, .. }) => {
                    tracing::warn!(%env, %rollout, check, message, "the gate of wave {number} was inconclusive");
                }
                None => {}
            }
        }
        if is_new(|wave| wave.passed.is_some()) {
            tracing::info!(%env, %rollout, "wave {number} has passed");
        }
    }
    match change.grants.as_slice() {
        [] => {}
        [grant] => tracing::info!(%env, %rollout, node = %grant.node, to = %now.to, "granted"),
        many => {
            let nodes: Vec<&str> = many.iter().map(|grant| grant.node.as_str()).collect();
            tracing::info!(%env, %rollout, to = %now.to, nodes = nodes.join(" "), "granted to {} nodes", many.len());
        }
    }
    if now.phase != before.phase {
        match &now.phase {
            RolloutPhase::Completed => tracing::info!(%env, %rollout, to = %now.to, "completed"),
            RolloutPhase::Paused { why } => tracing::warn!(%env, %rollout, %why, "paused until an operator acts"),
            RolloutPhase::Running
            | RolloutPhase::Aborted { .. }
            | RolloutPhase::RolledBack { .. }
            | RolloutPhase::Superseded { .. } => {
                tracing::info!(%env, %rollout, "{}", now.phase.word());
            }
        }
    }
}

/// Running checks of gates, one task for each environment. The engine decides which checks run; a task ends when its checks are
/// no longer needed.
#[derive(Debug)]
struct Gates {
    mark: GateMark,
    commands: Arc<GateCommands>,
    tasks: JoinSet<(EnvName, GateRequest, GateVerdict)>,
    running: BTreeMap<EnvName, (GateRequest, AbortHandle)>,
}

impl Gates {
    /// Checks started by the server with this mark. They run only these commands.
    fn new(mark: GateMark, commands: Arc<GateCommands>) -> Self {
        Self { mark, commands, tasks: JoinSet::new(), running: BTreeMap::new() }
    }

    /// Runs only these checks for an environment.
    fn update(&mut self, env: &EnvName, request: Option<&GateRequest>, clock: &Clock) {
        if self.running.get(env).map(|(running, _)| running) == request {
            return;
        }
        if let Some((_, task)) = self.running.remove(env) {
            task.abort();
        }
        let Some(request) = request.cloned() else { return };
        let GateRequest { rollout, from, to, stage, wave, .. } = request.clone();
        tracing::info!(%env, %rollout, stage, wave, "checks started");
        let context = GateContext { env: env.clone(), rollout, from, to, stage, wave };
        let (checked, commands, mark, clock) =
            (request.clone(), self.commands.clone(), self.mark.clone(), clock.clone());
        let task = self.tasks.spawn(async move {
            let verdict = gate::run_checks(&checked.checks, &context, &commands, &mark, &clock).await;
            (context.env, checked, verdict)
        });
        self.running.insert(env.clone(), (request, task));
    }

    /// Waits for the verdict of some checks; forever while none run.
    async fn next_verdict(&mut self) -> (EnvName, GateRequest, GateVerdict) {
        loop {
            match self.tasks.join_next().await {
                None => std::future::pending().await,
                Some(Ok((env, request, verdict))) => {
                    // A task that was aborted may have finished before.
                    let is_current = self.running.get(&env).is_some_and(|(running, _)| *running == request);
                    if is_current {
                        self.running.remove(&env);
                        return (env, request, verdict);
                    }
                }
                // It was aborted.
                Some(Err(_)) => {}
            }
        }
    }
}
