//! Follows a rollout that moved all nodes at once: there are no grants, and it ends when all nodes that it waits for have
//! validated.

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::{DesiredVersion, Node};
use muster_core::names::NodeName;
use muster_core::node::liveness::Link;
use muster_core::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use muster_core::report::ResourceError;
use muster_core::rollout::record::{
    FailedNode, FailureKind, NAMED_FAILURES, PauseReason, RolloutPhase, RolloutRecord, Threshold,
};
use muster_core::rollout::strategy::Deadlines;

use crate::decision::DecisionInput;
use crate::health::later;
use crate::preflight::is_unprovisioned;

use super::failures::first_error;
use super::{IndexedPlan, Step, complete_change, pause_change};

/// State of a node in an at-once rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtOnceState {
    /// Validated, since then.
    Healthy(Timestamp),
    Moving {
        until: Timestamp,
    },
    /// Its run waits for other nodes.
    Pending {
        since: Timestamp,
        until: Timestamp,
    },
    /// Its agent is disconnected, and is waited for until then.
    Silent {
        since: Timestamp,
        until: Timestamp,
    },
    /// Its agent is disconnected for too long to be waited for.
    Unreachable {
        since: Timestamp,
    },
    /// An operator has cordoned it: it keeps its version. It is waited for without a deadline.
    Cordoned,
    /// An operator has skipped it while it was cordoned.
    Skipped,
    /// Its machine was never provisioned: it starts with the target version.
    Unprovisioned,
    Failed {
        how: FailureKind,
        /// The time when the failure was certain.
        since: Timestamp,
        /// An operator has resumed the rollout since.
        reviewed: bool,
    },
}

impl AtOnceState {
    /// True if the rollout waits for a node in this state.
    pub(crate) fn is_waited_for(self) -> bool {
        match self {
            AtOnceState::Moving { .. }
            | AtOnceState::Pending { .. }
            | AtOnceState::Silent { .. }
            | AtOnceState::Cordoned => true,
            AtOnceState::Failed { reviewed, .. } => !reviewed,
            AtOnceState::Healthy(_)
            | AtOnceState::Unreachable { .. }
            | AtOnceState::Unprovisioned
            | AtOnceState::Skipped => false,
        }
    }
}

/// The version that all nodes were given, and how each node is judged by it.
pub(crate) struct AtOnceCheck<'a> {
    record: &'a RolloutRecord,
    input: &'a DecisionInput<'a>,
    deadlines: Deadlines,
    desired: DesiredVersion,
    /// The start of all deadlines.
    began: Timestamp,
}

/// The rollout ends when all nodes that it waits for have validated. Agents retry by themselves: failures stop it only
/// after the progress deadline.
pub(super) fn follow_at_once(plan: &IndexedPlan, record: &RolloutRecord, input: &DecisionInput<'_>) -> Step {
    let Some(at_once) = AtOnceCheck::new(plan, record, input) else { return Step::default() };
    let mut step = Step::default();
    let (mut healthy, mut moving, mut away) = (0_u32, false, false);
    let (mut failures, mut failed) = (0_u32, Vec::new());
    let (mut reviewed, mut still_failed) = (0_u32, Vec::new());
    let mut last_progress = record.steps.progress.max(record.started);
    let mut allowance = SignedDuration::ZERO;
    for (name, node, _) in input.fleet.designed() {
        if let Link::BetweenCalls { until, .. } = (input.link)(name) {
            step.recheck_at(until);
        }
        allowance = allowance.max(node.call_allowance());
        match at_once.state_of(name, node) {
            AtOnceState::Healthy(since) => {
                healthy += 1;
                last_progress = last_progress.max(since);
            }
            AtOnceState::Moving { until } | AtOnceState::Pending { until, .. } | AtOnceState::Silent { until, .. } => {
                moving = true;
                step.recheck_at(until);
            }
            AtOnceState::Cordoned => moving = true,
            AtOnceState::Unprovisioned => {}
            AtOnceState::Unreachable { .. } | AtOnceState::Skipped => away = true,
            AtOnceState::Failed { how, reviewed: is_reviewed, .. } => {
                let (count, named) =
                    if is_reviewed { (&mut reviewed, &mut still_failed) } else { (&mut failures, &mut failed) };
                *count += 1;
                if named.len() < NAMED_FAILURES {
                    named.push(FailedNode { node: name.clone(), how, error: first_error_of(node, how) });
                }
            }
        }
    }
    let mut next = record.clone();
    next.steps.healthy = healthy;
    if moving {
        return step;
    }
    // A version that no node has validated has not arrived, whatever an operator has reviewed.
    let pause_reason = match (failures, healthy) {
        (1.., _) => {
            PauseReason::Failures { threshold: Threshold::Total, failed: failures, tolerated: 0, nodes: failed }
        }
        (0, 0) if reviewed > 0 => {
            let (threshold, nodes) = (Threshold::AllNodes, still_failed);
            PauseReason::Failures { threshold, failed: reviewed, tolerated: 0, nodes }
        }
        (0, 0) if away => PauseReason::NoProgress { since: last_progress },
        // Provisioning has no deadline here.
        (0, 0) => return step,
        (0, _) => {
            let all_nodes_at_target = !away && reviewed == 0;
            return Step {
                change: Some(complete_change(RolloutRecord { all_nodes_at_target, ..next }, input)),
                ..Step::default()
            };
        }
    };
    let until = later(last_progress, at_once.deadlines.progress.saturating_add(allowance));
    if input.now < until {
        step.recheck_at(until);
        return step;
    }
    Step { change: Some(pause_change(next, pause_reason, input)), ..Step::default() }
}

/// The first error of a failed node.
pub(crate) fn first_error_of(node: &Node, how: FailureKind) -> Option<ResourceError> {
    let last = node.observed.as_ref().and_then(|(observed, _)| observed.last.as_ref());
    last.and_then(|last| first_error(last, how))
}

impl<'a> AtOnceCheck<'a> {
    /// None if all nodes were given another version since.
    pub(crate) fn new(plan: &IndexedPlan, record: &'a RolloutRecord, input: &'a DecisionInput<'a>) -> Option<Self> {
        let desired = input.fleet.base().filter(|desired| desired.version == record.to)?;
        // A resume and a new store epoch restart the deadlines. A pause does not.
        let resumed = (record.phase == RolloutPhase::Running).then_some(record.phase_since);
        let reviewed = record.operator.reviewed.map(|reviewed| reviewed.at);
        let requested_at = record.started.max(super::survey::epoch_start(input.fleet.epoch(), input.now));
        let began = [resumed, reviewed].into_iter().flatten().fold(requested_at, Timestamp::max);
        Some(Self { record, input, deadlines: plan.plan().strategy.deadlines, desired, began })
    }

    pub(crate) fn state_of(&self, name: &NodeName, node: &Node) -> AtOnceState {
        let Self { record, input, deadlines, desired, began } = self;
        if record.operator.skipped.contains(name) {
            return AtOnceState::Skipped;
        }
        if input.fleet.granted(name).is_none() && input.fleet.kept(node).is_some_and(|kept| kept.version != record.to) {
            return AtOnceState::Cordoned;
        }
        let is_answer = |state: &ServiceState| node.has_answered(desired.generation) && *state.version() == record.to;
        let answer = node.state().filter(|(state, _)| is_answer(state));
        if let Some((_, leaf)) = answer.filter(|(state, _)| state.is_validated()) {
            return AtOnceState::Healthy(leaf.since);
        }
        let allowance = node.call_allowance();
        if let Some(since) = (input.link)(name).silent_since() {
            if is_unprovisioned(node) {
                return AtOnceState::Unprovisioned;
            }
            let until = later(since, deadlines.pending);
            return if input.now < until {
                AtOnceState::Silent { since, until }
            } else {
                AtOnceState::Unreachable { since }
            };
        }
        let late = || {
            let until = later(*began, deadlines.node.saturating_add(allowance));
            if input.now < until { AtOnceState::Moving { until } } else { self.failed(FailureKind::Expired, until) }
        };
        let Some((state, leaf)) = answer else { return late() };
        match state {
            ServiceState::Configured { result: ConfigureResult::Failure, .. } => {
                self.failed(FailureKind::NotConfigured, leaf.since)
            }
            ServiceState::Validated { result: ValidationResult::Failure, .. } => {
                self.failed(FailureKind::NotValidated, leaf.since)
            }
            ServiceState::Configured { result: ConfigureResult::Pending, .. } => {
                let (since, until) =
                    (leaf.since, later(leaf.since.max(*began), deadlines.pending.saturating_add(allowance)));
                let is_late = input.now >= until;
                if is_late {
                    self.failed(FailureKind::PendingTooLong, until)
                } else {
                    AtOnceState::Pending { since, until }
                }
            }
            ServiceState::Configured { result: ConfigureResult::Success, .. }
            | ServiceState::Validated { result: ValidationResult::Success, .. } => late(),
        }
    }

    fn failed(&self, how: FailureKind, since: Timestamp) -> AtOnceState {
        let reviewed = self.record.operator.reviewed.is_some_and(|seen| since <= seen.at);
        AtOnceState::Failed { how, since, reviewed }
    }
}
