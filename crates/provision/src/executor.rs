//! Reconciles one machine: observes it, decides, and carries out the decision.

use jiff::Timestamp;

use muster_core::node::record::MachineRecord;

use crate::driver::{Driver, MachineObservation, MachineSpec, MachineState, StepError};
use crate::lifecycle::{
    FailureCause, MachineDecision, MachineFacts, MachineStep, PendingDecommission, Policy, decide, enter, fail,
};

/// Result of reconciling a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineReconcileResult {
    /// The decision. For [`MachineDecision::Retire`] the caller deletes everything about the node, including the record.
    pub decision: MachineDecision,
    /// The new record, if it has changed. Commit it before the next call.
    pub record: Option<MachineRecord>,
    pub next: Requeue,
}

/// Time of the next reconciliation. A change of the inputs (the agent has connected, the driver reports a change) always
/// triggers it earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    Now,
    At(Timestamp),
    /// Only at a change.
    OnChange,
}

/// Inputs of [`reconcile`].
#[derive(Clone, Debug)]
pub struct ReconcileInput<'a> {
    pub record: Option<&'a MachineRecord>,
    pub agent_connected: bool,
    pub leaving: Option<PendingDecommission>,
}

/// Observes a machine, decides, and carries out the decision. Repeating it, also after a crash at any point, is harmless.
pub async fn reconcile(
    driver: &dyn Driver,
    spec: &MachineSpec,
    input: ReconcileInput<'_>,
    policy: &Policy,
    clock: &(dyn Fn() -> Timestamp + Sync),
) -> MachineReconcileResult {
    let ReconcileInput { record, agent_connected, leaving } = input;
    let facts = MachineFacts { observation: observe(driver, spec).await, agent_connected, leaving };
    let decision = decide(record, &facts, policy, clock());
    let outcome = execute(driver, spec, &decision, policy, clock).await;
    let (record, next) = match outcome {
        ExecuteResult::Recorded(record) => (Some(record), Requeue::Now),
        ExecuteResult::Wait(next) => (None, next),
        ExecuteResult::Retired => (None, Requeue::OnChange),
        // If the machine has not changed after an accepted step, retry with a pause.
        ExecuteResult::Stepped if observe(driver, spec).await == facts.observation => {
            let pause = policy.poll_interval.unwrap_or(policy.retry_first);
            (None, Requeue::At(clock().checked_add(pause).unwrap_or(Timestamp::MAX)))
        }
        ExecuteResult::Stepped => (None, Requeue::Now),
    };
    MachineReconcileResult { decision, record, next }
}

/// Result of carrying out a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecuteResult {
    /// The record has changed.
    Recorded(MachineRecord),
    /// The driver has accepted a step.
    Stepped,
    Wait(Requeue),
    /// The machine is gone.
    Retired,
}

/// Carries out a decision.
pub async fn execute(
    driver: &dyn Driver,
    spec: &MachineSpec,
    decision: &MachineDecision,
    policy: &Policy,
    clock: &(dyn Fn() -> Timestamp + Sync),
) -> ExecuteResult {
    let failed = |during, cause: &FailureCause, attempt| {
        ExecuteResult::Recorded(fail(driver.name(), during, cause, attempt, policy, clock()))
    };
    match decision {
        MachineDecision::Hold { recheck: Some(at), .. } => ExecuteResult::Wait(Requeue::At(*at)),
        MachineDecision::Hold { recheck: None, .. } => ExecuteResult::Wait(Requeue::OnChange),
        MachineDecision::Retire => ExecuteResult::Retired,
        MachineDecision::Goto { phase, attempt } => {
            ExecuteResult::Recorded(enter(driver.name(), phase.clone(), *attempt, clock()))
        }
        MachineDecision::Fail { during, cause, attempt } => failed(*during, cause, *attempt),
        MachineDecision::Do { step, attempt } => match run_step(driver, spec, *step).await {
            Ok(()) => ExecuteResult::Stepped,
            Err(error) => failed(step.stage(), &step_failure(&error), *attempt),
        },
        MachineDecision::Retry { step, attempt } => match run_step(driver, spec, *step).await {
            Ok(()) => ExecuteResult::Recorded(enter(driver.name(), step.stage().phase(), *attempt, clock())),
            Err(error) => failed(step.stage(), &step_failure(&error), *attempt),
        },
    }
}

async fn run_step(driver: &dyn Driver, spec: &MachineSpec, step: MachineStep) -> Result<(), StepError> {
    tracing::debug!(node = %spec.node, ?step, "driver step");
    match step {
        MachineStep::Allocate => driver.allocate(spec).await,
        MachineStep::Deploy => driver.deploy(spec).await,
        MachineStep::Boot => driver.boot(spec).await,
        MachineStep::Release => driver.release(spec).await,
    }
}

fn step_failure(error: &StepError) -> FailureCause {
    FailureCause::Refused { cause: error.cause(), permanent: matches!(error, StepError::Final(_)) }
}

async fn observe(driver: &dyn Driver, spec: &MachineSpec) -> MachineObservation {
    match driver.observe(spec).await {
        Ok(observation) => observation,
        Err(error) => MachineObservation { state: MachineState::Unknown { cause: error.cause() }, log: None },
    }
}
