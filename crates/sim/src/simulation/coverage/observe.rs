//! Maps results of the rollout engine to [`DecisionArm`]s. No match has a wildcard.

use muster_core::names::NodeName;
use muster_core::rollout::progress::{Hold, Progress, RolloutNodeState};
use muster_core::rollout::record::{
    DesiredRecord, FailureKind, GateVerdict, PauseReason, RolloutPhase, RolloutRecord, Threshold, WaveState,
};
use muster_rollout::command::{CommandRefused, RetryTarget, RolloutCommand};
use muster_rollout::executor::{
    CommandOutcome, CommitResult, OperatorCommandError, ReconcileResult, RollbackPlanError, StartOutcome,
    StartRolloutError, StartedRollout,
};
use muster_rollout::plan::PlanError;
use muster_rollout::start::StartRefused;

use super::DecisionArm;
use crate::simulation::store::Writer;

pub(crate) fn of_reconcile(result: &ReconcileResult) -> DecisionArm {
    match result {
        ReconcileResult::Idle => DecisionArm::ReconcileIdle,
        ReconcileResult::WaitUntil(_) => DecisionArm::ReconcileWaits,
        ReconcileResult::Failed => DecisionArm::ReconcileFailed,
        ReconcileResult::Stuck { .. } => DecisionArm::ReconcileStuck,
        ReconcileResult::More => DecisionArm::ReconcileMore,
    }
}

pub(crate) fn of_commit(result: &CommitResult) -> DecisionArm {
    match result {
        CommitResult::Committed(_) => DecisionArm::StepCommitted,
        CommitResult::Conflict(_) => DecisionArm::StepConflict,
        CommitResult::LockLost => DecisionArm::StepLockLost,
        CommitResult::Invalid(_) => DecisionArm::StepInvalid,
        CommitResult::Unknown => DecisionArm::StepUnknown,
    }
}

/// The decisions in one change of a rollout record that was committed.
pub(crate) fn of_change(
    before: &RolloutRecord,
    after: &RolloutRecord,
    grants: &[&(NodeName, DesiredRecord)],
    writer: &Writer,
) -> Vec<DecisionArm> {
    match writer {
        Writer::Controller { .. } => of_step(before, after, grants),
        Writer::Operator | Writer::Server | Writer::Lease | Writer::Setup => {
            of_resume(before, after).into_iter().collect()
        }
    }
}

fn of_step(before: &RolloutRecord, after: &RolloutRecord, grants: &[&(NodeName, DesiredRecord)]) -> Vec<DecisionArm> {
    let mut arms = Vec::new();
    if !grants.is_empty() {
        arms.push(DecisionArm::Grant);
    }
    if grants.iter().any(|(node, _)| before.operator.retry.contains(node)) {
        arms.push(DecisionArm::GrantRetry);
    }
    if grants.iter().any(|(node, _)| before.operator.released.contains(node)) {
        arms.push(DecisionArm::GrantReleased);
    }
    for (wave, state) in after.waves.iter().enumerate() {
        match before.waves.get(wave) {
            Some(earlier) => of_wave(earlier, state, &mut arms),
            None => {
                arms.push(DecisionArm::WaveBegins);
                of_wave(&WaveState::begun(state.began), state, &mut arms);
            }
        }
    }
    match (before.steps.idle, after.steps.idle) {
        (None, Some(_)) => arms.push(DecisionArm::IdleBegins),
        (Some(_), None) => arms.push(DecisionArm::IdleEnds),
        (None, None) | (Some(_), Some(_)) => {}
    }
    if after.operator.retry.difference(&before.operator.retry).next().is_some() {
        arms.push(DecisionArm::RetryAfterPause);
    }
    if before.operator.retry_before != after.operator.retry_before {
        arms.push(DecisionArm::RetryAllAfterPause);
    }
    if before.outcome.is_none() && after.outcome.is_some() {
        arms.push(DecisionArm::SaveOutcome);
    }
    if before.phase != after.phase {
        arms.extend(of_phase(after));
    }
    arms
}

fn of_wave(before: &WaveState, after: &WaveState, arms: &mut Vec<DecisionArm>) {
    match (before.settled, after.settled) {
        (None, Some(_)) => arms.push(DecisionArm::WaveSettles),
        (Some(_), None) => arms.push(DecisionArm::WaveReopens),
        (Some(earlier), Some(later)) if earlier != later => arms.push(DecisionArm::SoakRestarts),
        (Some(_), Some(_)) | (None, None) => {}
    }
    if before.gate.is_none() {
        arms.extend(after.gate.as_ref().map(|verdict| match verdict {
            GateVerdict::Passed { .. } => DecisionArm::GatePasses,
            GateVerdict::Failed { .. } => DecisionArm::GateFails,
            GateVerdict::Inconclusive { .. } => DecisionArm::GateInconclusive,
        }));
    }
    if before.passed.is_none() && after.passed.is_some() {
        arms.push(DecisionArm::WavePasses);
    }
}

/// The decision to change the phase of a rollout, by the controller.
fn of_phase(after: &RolloutRecord) -> Option<DecisionArm> {
    match &after.phase {
        RolloutPhase::Completed if after.at_once => Some(DecisionArm::CompleteAtOnce),
        RolloutPhase::Completed if after.all_nodes_at_target => Some(DecisionArm::CompleteAll),
        RolloutPhase::Completed => Some(DecisionArm::CompletePart),
        RolloutPhase::Paused { .. } if after.at_once => Some(DecisionArm::PauseAtOnce),
        RolloutPhase::Paused { why } => of_pause(why),
        RolloutPhase::RolledBack { why, .. } => of_rollback(why),
        // Only operators resume, abort or supersede a rollout.
        RolloutPhase::Running | RolloutPhase::Aborted { .. } | RolloutPhase::Superseded { .. } => None,
    }
}

fn of_pause(why: &PauseReason) -> Option<DecisionArm> {
    match why {
        PauseReason::Failures { threshold, .. } => Some(match threshold {
            Threshold::Canary => DecisionArm::PauseCanary,
            Threshold::Wave => DecisionArm::PauseWave,
            Threshold::Total => DecisionArm::PauseTotal,
            Threshold::Rollback => DecisionArm::PauseRollback,
            Threshold::AllNodes => DecisionArm::PauseAllNodes,
        }),
        PauseReason::GateFailed { .. } => Some(DecisionArm::PauseGateFailed),
        PauseReason::GateInconclusive { .. } => Some(DecisionArm::PauseGateInconclusive),
        PauseReason::NoProgress { .. } => Some(DecisionArm::PauseNoProgress),
        PauseReason::NoRollbackTarget { .. } => Some(DecisionArm::PauseNoTarget),
        PauseReason::Blocked { .. } => Some(DecisionArm::PauseBlocked),
        // The controller does not pause in the name of an operator.
        PauseReason::Operator { .. } => None,
    }
}

fn of_rollback(why: &PauseReason) -> Option<DecisionArm> {
    match why {
        PauseReason::Failures { threshold, .. } => match threshold {
            Threshold::Canary => Some(DecisionArm::RollBackCanary),
            Threshold::Wave => Some(DecisionArm::RollBackWave),
            Threshold::Total => Some(DecisionArm::RollBackTotal),
            // These pause a rollout that has nothing left to do.
            Threshold::Rollback | Threshold::AllNodes => None,
        },
        PauseReason::GateFailed { .. } => Some(DecisionArm::RollBackGate),
        // These are no failures.
        PauseReason::GateInconclusive { .. }
        | PauseReason::NoProgress { .. }
        | PauseReason::NoRollbackTarget { .. }
        | PauseReason::Blocked { .. }
        | PauseReason::Operator { .. } => None,
    }
}

/// The reason of the pause that a command ends.
fn of_resume(before: &RolloutRecord, after: &RolloutRecord) -> Option<DecisionArm> {
    let RolloutPhase::Paused { why } = &before.phase else { return None };
    if after.phase != RolloutPhase::Running {
        return None;
    }
    Some(match why {
        PauseReason::Operator { over: None, .. } => DecisionArm::ResumeOperator,
        PauseReason::Operator { over: Some(over), .. } if over.is_failure() => DecisionArm::ResumeOverFailure,
        PauseReason::Operator { over: Some(_), .. } => DecisionArm::ResumeOverOther,
        PauseReason::Failures { .. } => DecisionArm::ResumeFailures,
        PauseReason::GateFailed { .. } => DecisionArm::ResumeGateFailed,
        PauseReason::GateInconclusive { .. } => DecisionArm::ResumeGateInconclusive,
        PauseReason::NoProgress { .. } => DecisionArm::ResumeNoProgress,
        PauseReason::NoRollbackTarget { .. } => DecisionArm::ResumeNoTarget,
        PauseReason::Blocked { .. } => DecisionArm::ResumeBlocked,
    })
}

pub(crate) fn of_command(
    command: &RolloutCommand,
    result: Result<&CommandOutcome, &OperatorCommandError>,
) -> DecisionArm {
    let refused = match result {
        Ok(CommandOutcome { changed: false, .. }) => return DecisionArm::CommandNoOp,
        Ok(CommandOutcome { changed: true, .. }) => {
            return match command {
                RolloutCommand::Pause { .. } => DecisionArm::CommandPause,
                RolloutCommand::Resume => DecisionArm::CommandResume,
                RolloutCommand::Abort { .. } => DecisionArm::CommandAbort,
                RolloutCommand::Promote { full: false } => DecisionArm::CommandPromote,
                RolloutCommand::Promote { full: true } => DecisionArm::CommandPromoteAll,
                RolloutCommand::Skip { .. } => DecisionArm::CommandSkip,
                RolloutCommand::Retry(RetryTarget::AllFailed) => DecisionArm::CommandRetryFailed,
                RolloutCommand::Retry(RetryTarget::Nodes(_)) => DecisionArm::CommandRetryNodes,
                RolloutCommand::Release { .. } => DecisionArm::CommandRelease,
            };
        }
        Err(OperatorCommandError::UnknownRollout(_)) => return DecisionArm::RefusedUnknownRollout,
        Err(OperatorCommandError::Serialize(_)) => return DecisionArm::CommandUnwritable,
        Err(OperatorCommandError::Contended(_)) => return DecisionArm::CommandContended,
        Err(OperatorCommandError::Refused(refused)) => refused,
    };
    match refused {
        CommandRefused::RolloutEnded { .. } => DecisionArm::RefusedEnded,
        CommandRefused::NothingToPromote { .. } => DecisionArm::RefusedNothingToPromote,
        CommandRefused::AtOnce { .. } => DecisionArm::RefusedAtOnce,
        CommandRefused::UnknownNode { .. } => DecisionArm::RefusedUnknownNode,
        CommandRefused::NotFailed { .. } => DecisionArm::RefusedNotFailed,
        CommandRefused::NoFailedNode { .. } => DecisionArm::RefusedNoFailedNode,
        CommandRefused::NoPlan { .. } => DecisionArm::RefusedNoPlan,
        CommandRefused::HoldsNoSlot { .. } => DecisionArm::RefusedHoldsNoSlot,
        CommandRefused::TooManyNodes { .. } => DecisionArm::RefusedTooManyNodes,
    }
}

pub(crate) fn of_start(result: Result<&StartOutcome, &StartRolloutError>) -> DecisionArm {
    match result {
        Ok(StartOutcome::NoOp(_)) => DecisionArm::StartNoOp,
        Ok(StartOutcome::Started(StartedRollout { changed: false, .. })) => DecisionArm::StartRepeated,
        Ok(StartOutcome::Started(StartedRollout { superseded: Some(_), .. })) => DecisionArm::StartSupersedes,
        Ok(StartOutcome::Started(_)) => DecisionArm::Start,
        Err(error) => of_start_error(error),
    }
}

pub(crate) fn of_rollback_request(result: Result<&StartedRollout, &StartRolloutError>) -> DecisionArm {
    match result {
        Ok(StartedRollout { changed: true, .. }) => DecisionArm::StartRollBack,
        Ok(StartedRollout { changed: false, .. }) => DecisionArm::StartRepeated,
        Err(error) => of_start_error(error),
    }
}

fn of_start_error(error: &StartRolloutError) -> DecisionArm {
    match error {
        StartRolloutError::Plan(error) | StartRolloutError::RollbackPlan(RollbackPlanError::Plan(error)) => {
            of_plan_error(error)
        }
        StartRolloutError::RollbackPlan(RollbackPlanError::UnknownRollout(_)) => DecisionArm::RefusedUnknownRollout,
        StartRolloutError::RollbackPlan(RollbackPlanError::NoStableVersion { .. }) => DecisionArm::RollBackNoVersion,
        StartRolloutError::ForeignCommand { .. } | StartRolloutError::OtherEnv(_) => DecisionArm::StartForeign,
        StartRolloutError::StalePlan(_) => DecisionArm::StartStalePlan,
        StartRolloutError::Contended(_) => DecisionArm::StartContended,
        StartRolloutError::Refused(refused) => match refused {
            StartRefused::Open { .. } => DecisionArm::StartOpen,
            StartRefused::Destroying | StartRefused::Restoring | StartRefused::Unreadable => {
                DecisionArm::StartMaintenance
            }
            StartRefused::NoRelease { .. } | StartRefused::ReleaseChanged { .. } => DecisionArm::StartReleaseGone,
            StartRefused::RollbackPlan { .. } => DecisionArm::StartForeign,
            StartRefused::NotActive { .. } => DecisionArm::RollBackNotActive,
            StartRefused::AlreadyRolledBack { .. } => DecisionArm::RollBackAlready,
            StartRefused::IsRollback { .. } => DecisionArm::RollBackOfRollback,
            StartRefused::Serialize(_) => DecisionArm::StartUnwritable,
        },
    }
}

fn of_plan_error(error: &PlanError) -> DecisionArm {
    match error {
        PlanError::OlderRelease { .. } => DecisionArm::StartOlder,
        PlanError::UnknownRelease { .. }
        | PlanError::Cycle(_)
        | PlanError::UnknownRole { .. }
        | PlanError::Strategy(_)
        | PlanError::TooManyWaves { .. }
        | PlanError::NoNodes => DecisionArm::StartBadPlan,
        PlanError::Unreadable | PlanError::BeingRestored { .. } | PlanError::BeingDestroyed { .. } => {
            DecisionArm::StartMaintenance
        }
    }
}

/// The reasons and node states in the progress of a rollout.
pub(crate) fn of_progress(progress: &Progress) -> Vec<DecisionArm> {
    let mut arms: Vec<DecisionArm> = progress.holds.iter().map(of_hold).collect();
    for node in progress.waves.iter().flat_map(|wave| &wave.nodes) {
        arms.push(of_node(&node.state));
        arms.extend(node.hold.as_ref().map(of_hold));
    }
    arms
}

fn of_hold(hold: &Hold) -> DecisionArm {
    match hold {
        Hold::Halted { .. } => DecisionArm::HoldHalted,
        Hold::Window { .. } => DecisionArm::HoldWindow,
        Hold::Turn { .. } => DecisionArm::HoldTurn,
        Hold::Soak { .. } => DecisionArm::HoldSoak,
        Hold::Gate { .. } => DecisionArm::HoldGate,
        Hold::Promotion { .. } => DecisionArm::HoldPromotion,
        Hold::RoleBudget { .. } => DecisionArm::HoldRoleBudget,
        Hold::DomainBudget { .. } => DecisionArm::HoldDomainBudget,
        Hold::Ramp { .. } => DecisionArm::HoldRamp,
        Hold::Brake { .. } => DecisionArm::HoldBrake,
        Hold::Node { state, .. } => of_node(state),
        Hold::Paused { .. } => DecisionArm::HoldPaused,
        Hold::Cordoned { .. } => DecisionArm::HoldCordoned,
        Hold::Silent { .. } => DecisionArm::HoldSilent,
        Hold::NotDue { .. } => DecisionArm::HoldNotDue,
        Hold::Machine { .. } => DecisionArm::HoldMachine,
    }
}

fn of_node(state: &RolloutNodeState) -> DecisionArm {
    match state {
        RolloutNodeState::Waiting => DecisionArm::NodeWaiting,
        RolloutNodeState::Granted => DecisionArm::NodeGranted,
        RolloutNodeState::Pending { .. } => DecisionArm::NodePending,
        RolloutNodeState::Soaking { .. } => DecisionArm::NodeSoaking,
        RolloutNodeState::Healthy => DecisionArm::NodeHealthy,
        RolloutNodeState::Failed { forgiven: true, .. } => DecisionArm::NodeForgiven,
        RolloutNodeState::Failed { how, forgiven: false, .. } => match how {
            FailureKind::NotConfigured => DecisionArm::NodeNotConfigured,
            FailureKind::NotValidated => DecisionArm::NodeNotValidated,
            FailureKind::RolledBack => DecisionArm::NodeRolledBack,
            FailureKind::Expired => DecisionArm::NodeExpired,
            FailureKind::PendingTooLong => DecisionArm::NodePendingTooLong,
            FailureKind::Unreachable => DecisionArm::NodeUnreachable,
        },
        RolloutNodeState::Skipped => DecisionArm::NodeSkipped,
        RolloutNodeState::Removed => DecisionArm::NodeRemoved,
    }
}
