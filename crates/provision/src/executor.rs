//! Carries out what was decided, one thing at a time. It decides nothing: what a decision does not say is not done.

use jiff::Timestamp;

use muster_core::node::record::MachineRecord;

use crate::driver::{Driver, MachineObservation, MachineSpec, MachineState, StepError};
use crate::lifecycle::{Decision, Decommission, Facts, FailureCause, Policy, Step, decide, enter, fail};

/// One turn of a machine: what was decided, what became of it, and when the next turn is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileResult {
    /// When it is to retire the node, everything that is known of it goes, the record too; nothing else is left to do.
    pub decision: Decision,
    /// The record as it is now, if it has changed: to be committed before the next turn.
    pub record: Option<MachineRecord>,
    pub next: Requeue,
}

/// When to look at a machine again. A change of what is known of it (its agent has connected, its driver tells of a
/// change) always comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    Now,
    At(Timestamp),
    /// Only then.
    OnChange,
}

/// What is known of a machine before anybody looks.
#[derive(Clone, Debug)]
pub struct ReconcileInput<'a> {
    pub record: Option<&'a MachineRecord>,
    pub agent_connected: bool,
    pub leaving: Option<Decommission>,
}

/// Looks, decides, and carries it out. To do this twice, or to crash anywhere in it and do it again, is harmless.
pub async fn reconcile(
    driver: &dyn Driver,
    spec: &MachineSpec,
    known: ReconcileInput<'_>,
    policy: &Policy,
    clock: &(dyn Fn() -> Timestamp + Sync),
) -> ReconcileResult {
    let ReconcileInput { record, agent_connected, leaving } = known;
    let facts = Facts { observation: look(driver, spec).await, agent_connected, leaving };
    let decision = decide(record, &facts, policy, clock());
    let outcome = execute(driver, spec, &decision, policy, clock).await;
    let (record, next) = match outcome {
        Outcome::Recorded(record) => (Some(record), Requeue::Now),
        Outcome::Waits(next) => (None, next),
        Outcome::Retired => (None, Requeue::OnChange),
        // A driver whose machine looks the same after a step that it accepted is not asked again at full speed.
        Outcome::Stepped if look(driver, spec).await == facts.observation => {
            let pause = policy.look_again.unwrap_or(policy.retry_first);
            (None, Requeue::At(clock().checked_add(pause).unwrap_or(Timestamp::MAX)))
        }
        Outcome::Stepped => (None, Requeue::Now),
    };
    ReconcileResult { decision, record, next }
}

/// What carrying out a decision has led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The record has changed.
    Recorded(MachineRecord),
    /// The driver has accepted a step; only looking again tells what it did.
    Stepped,
    Waits(Requeue),
    /// Nothing is left of the machine.
    Retired,
}

/// Carries out a decision.
pub async fn execute(
    driver: &dyn Driver,
    spec: &MachineSpec,
    decision: &Decision,
    policy: &Policy,
    clock: &(dyn Fn() -> Timestamp + Sync),
) -> Outcome {
    let failed = |during, cause: &FailureCause, attempt| {
        Outcome::Recorded(fail(driver.name(), during, cause, attempt, policy, clock()))
    };
    match decision {
        Decision::Hold { recheck: Some(at), .. } => Outcome::Waits(Requeue::At(*at)),
        Decision::Hold { recheck: None, .. } | Decision::Stuck { .. } => Outcome::Waits(Requeue::OnChange),
        Decision::Retire => Outcome::Retired,
        Decision::Goto { phase, attempt } => Outcome::Recorded(enter(driver.name(), phase.clone(), *attempt, clock())),
        Decision::Fail { during, cause, attempt } => failed(*during, cause, *attempt),
        Decision::Do { step, attempt } => match take(driver, spec, *step).await {
            Ok(()) => Outcome::Stepped,
            Err(error) => failed(step.stage(), &refused(&error), *attempt),
        },
        Decision::Retry { step, attempt } => match take(driver, spec, *step).await {
            Ok(()) => Outcome::Recorded(enter(driver.name(), step.stage().phase(), *attempt, clock())),
            Err(error) => failed(step.stage(), &refused(&error), *attempt),
        },
    }
}

async fn take(driver: &dyn Driver, spec: &MachineSpec, step: Step) -> Result<(), StepError> {
    tracing::debug!(node = %spec.node, ?step, "driver step");
    match step {
        Step::Allocate => driver.allocate(spec).await,
        Step::Deploy => driver.deploy(spec).await,
        Step::Boot => driver.boot(spec).await,
        Step::Release => driver.release(spec).await,
    }
}

fn refused(error: &StepError) -> FailureCause {
    FailureCause::Refused { cause: error.cause(), lasting: matches!(error, StepError::Final(_)) }
}

async fn look(driver: &dyn Driver, spec: &MachineSpec) -> MachineObservation {
    match driver.observe(spec).await {
        Ok(sight) => sight,
        Err(error) => MachineObservation { state: MachineState::Unknown { cause: error.cause() }, log: None },
    }
}
