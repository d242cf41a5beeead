//! A rollout that told everybody at once: nobody is granted anything, each node answers for itself, and it ends too.

use jiff::Timestamp;
use muster_core::fleet::{DesiredVersion, Node};
use muster_core::names::NodeName;
use muster_core::node::liveness::Link;
use muster_core::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use muster_core::report::ResourceError;
use muster_core::rollout::record::{
    FailedNode, FailureKind, NAMED_FAILURES, PauseReason, RolloutPhase, RolloutRecord, Threshold,
};
use muster_core::rollout::strategy::Deadlines;

use crate::health::later;
use crate::sight::Sight;
use crate::unwell::is_still_being_made;

use super::failures::what_went_wrong;
use super::{Indexed, Step, completed, paused};

/// How a node stands that was told together with all the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// It has proved itself, since then.
    Well(Timestamp),
    OnItsWay {
        until: Timestamp,
    },
    /// It waits for others.
    Pending {
        since: Timestamp,
        until: Timestamp,
    },
    /// Its agent is away, and is waited for until then.
    Silent {
        since: Timestamp,
        until: Timestamp,
    },
    /// Its agent is away for too long to be waited for.
    Away {
        since: Timestamp,
    },
    /// Its machine was never made: it begins with the target once it is there.
    NotThere,
    Failed {
        how: FailureKind,
        /// When it was clear that it had.
        since: Timestamp,
        /// Somebody has resumed since.
        forgiven: bool,
    },
}

impl Stands {
    /// Whether the rollout does not end while it stands so.
    pub(crate) fn is_waited_for(self) -> bool {
        match self {
            Stands::OnItsWay { .. } | Stands::Pending { .. } | Stands::Silent { .. } => true,
            Stands::Failed { forgiven, .. } => !forgiven,
            Stands::Well(_) | Stands::Away { .. } | Stands::NotThere => false,
        }
    }
}

/// What everybody was told at once, and how each of them is judged by it.
pub(crate) struct AtOnce<'a> {
    record: &'a RolloutRecord,
    sight: &'a Sight<'a>,
    deadlines: Deadlines,
    told: DesiredVersion,
    /// From when on everybody has the whole time.
    began: Timestamp,
}

/// It is over when everybody who is waited for is validated. Agents try again by themselves, so that failures stop it only
/// when nothing has got better for as long as a rollout may stand still.
pub(super) fn follow(plan: &Indexed, record: &RolloutRecord, sight: &Sight<'_>) -> Step {
    let Some(at_once) = AtOnce::of(plan, record, sight) else { return Step::default() };
    let mut step = Step::default();
    let (mut well, mut moving, mut away) = (0_u32, false, false);
    let (mut failures, mut failed) = (0_u32, Vec::new());
    let (mut forgiven, mut still_failed) = (0_u32, Vec::new());
    let mut better = record.progress.max(record.started);
    for (name, node, _) in sight.fleet.designed() {
        match at_once.stands(name, node) {
            Stands::Well(since) => {
                well += 1;
                better = better.max(since);
            }
            Stands::OnItsWay { until } | Stands::Pending { until, .. } | Stands::Silent { until, .. } => {
                moving = true;
                step.look_again(until);
            }
            Stands::NotThere => {}
            Stands::Away { .. } => away = true,
            Stands::Failed { how, forgiven: was_seen, .. } => {
                let (count, named) =
                    if was_seen { (&mut forgiven, &mut still_failed) } else { (&mut failures, &mut failed) };
                *count += 1;
                if named.len() < NAMED_FAILURES {
                    named.push(FailedNode { node: name.clone(), how, error: error_of(node, how) });
                }
            }
        }
    }
    let next = RolloutRecord { healthy: well, ..record.clone() };
    if moving {
        return step;
    }
    // A version that no node has proved has not arrived anywhere, whatever somebody has looked at.
    let why = match (failures, well) {
        (1.., _) => {
            PauseReason::Failures { threshold: Threshold::Total, failed: failures, tolerated: 0, nodes: failed }
        }
        (0, 0) if forgiven > 0 => {
            let (threshold, nodes) = (Threshold::AllNodes, still_failed);
            PauseReason::Failures { threshold, failed: forgiven, tolerated: 0, nodes }
        }
        (0, 0) if away => PauseReason::NoProgress { since: better },
        // Machines are made when they are made.
        (0, 0) => return step,
        (0, _) => {
            let whole = !away && forgiven == 0;
            return Step { change: Some(completed(RolloutRecord { whole, ..next }, sight)), ..Step::default() };
        }
    };
    let until = later(better, at_once.deadlines.progress);
    if sight.now < until {
        step.look_again(until);
        return step;
    }
    Step { change: Some(paused(next, why, sight)), ..Step::default() }
}

/// The first thing that went wrong on a node that has failed.
pub(crate) fn error_of(node: &Node, how: FailureKind) -> Option<ResourceError> {
    let last = node.observed.as_ref().and_then(|(observed, _)| observed.last.as_ref());
    last.and_then(|last| what_went_wrong(last, how))
}

impl<'a> AtOnce<'a> {
    /// None if everybody was told something else since.
    pub(crate) fn of(plan: &Indexed, record: &'a RolloutRecord, sight: &'a Sight<'a>) -> Option<Self> {
        let told = sight.fleet.base().filter(|told| told.version == record.to)?;
        // Who was asked to go on has the whole time again, and so has everybody in a new life of the store. A pause gives
        // nobody time.
        let resumed = (record.phase == RolloutPhase::Running).then_some(record.phase_since);
        let forgiven = record.forgiven.map(|forgiven| forgiven.at);
        let asked = record.started.max(super::survey::began(sight.fleet.epoch(), sight.now));
        let began = [resumed, forgiven].into_iter().flatten().fold(asked, Timestamp::max);
        Some(Self { record, sight, deadlines: plan.plan().strategy.deadlines, told, began })
    }

    pub(crate) fn stands(&self, name: &NodeName, node: &Node) -> Stands {
        let Self { record, sight, deadlines, told, began } = self;
        let is_answer = |state: &ServiceState| node.has_answered(told.generation) && *state.version() == record.to;
        let answer = node.state().filter(|(state, _)| is_answer(state));
        if let Some((_, leaf)) = answer.filter(|(state, _)| state.is_validated()) {
            return Stands::Well(leaf.since);
        }
        if let Link::Silent { since } = (sight.link)(name) {
            if is_still_being_made(node) {
                return Stands::NotThere;
            }
            let until = later(since, deadlines.pending);
            return if sight.now < until { Stands::Silent { since, until } } else { Stands::Away { since } };
        }
        let late = || {
            let until = later(*began, deadlines.node);
            if sight.now < until { Stands::OnItsWay { until } } else { self.failed(FailureKind::Expired, until) }
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
                let (since, until) = (leaf.since, later(leaf.since.max(*began), deadlines.pending));
                let is_late = sight.now >= until;
                if is_late { self.failed(FailureKind::PendingTooLong, until) } else { Stands::Pending { since, until } }
            }
            ServiceState::Configured { result: ConfigureResult::Success, .. }
            | ServiceState::Validated { result: ValidationResult::Success, .. } => late(),
        }
    }

    fn failed(&self, how: FailureKind, since: Timestamp) -> Stands {
        let forgiven = self.record.forgiven.is_some_and(|seen| since <= seen.at);
        Stands::Failed { how, since, forgiven }
    }
}
