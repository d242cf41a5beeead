//! A rollout that told everybody at once: nobody is granted anything, each node answers for itself, and it ends too.

use jiff::Timestamp;
use muster_core::fleet::{Desired, Node};
use muster_core::liveness::Link;
use muster_core::names::NodeName;
use muster_core::rollout::record::{FailedHow, FailedNode, Halt, NAMED_FAILURES, RolloutRecord, Threshold};
use muster_core::rollout::strategy::Deadlines;
use muster_core::service_state::{Configured, ServiceState, Validated};

use crate::health::later;
use crate::sight::Sight;
use crate::unwell::is_still_being_made;

use super::failures::what_went_wrong;
use super::{Indexed, Step, completed, paused};

/// How a node stands that was told together with all the others.
enum Stands {
    /// It has proved itself, since then.
    Well(Timestamp),
    /// It is on its way, and has time until then.
    OnItsWay(Timestamp),
    /// Its machine was never made: it begins with the target once it is there.
    NotThere,
    /// Its agent is away for too long to be waited for.
    Away,
    Failed(FailedHow, Timestamp),
}

/// It is over when everybody who is waited for is validated. Agents try again by themselves, so that failures stop it only
/// when nothing has got better for as long as a rollout may stand still.
pub(super) fn follow(plan: &Indexed, record: &RolloutRecord, sight: &Sight<'_>) -> Step {
    let Some(told) = sight.fleet.base().filter(|told| told.version == record.to) else { return Step::default() };
    let deadlines = plan.plan().strategy.deadlines;
    let mut step = Step::default();
    let (mut well, mut moving, mut away) = (0_u32, false, false);
    let (mut failures, mut failed) = (0_u32, Vec::new());
    let (mut forgiven, mut still_failed) = (0_u32, Vec::new());
    let mut better = record.progress.max(record.started);
    for (name, node, _) in sight.fleet.designed() {
        match stands(record, &told, sight, deadlines, name, node) {
            Stands::Well(since) => {
                well += 1;
                better = better.max(since);
            }
            Stands::OnItsWay(until) => {
                moving = true;
                step.look_again(until);
            }
            Stands::NotThere => {}
            Stands::Away => away = true,
            Stands::Failed(how, since) => {
                let was_seen = record.forgiven.is_some_and(|seen| since <= seen.at);
                let (count, named) =
                    if was_seen { (&mut forgiven, &mut still_failed) } else { (&mut failures, &mut failed) };
                *count += 1;
                if named.len() < NAMED_FAILURES {
                    let last = node.observed.as_ref().and_then(|(observed, _)| observed.last.as_ref());
                    let error = last.and_then(|last| what_went_wrong(last, how));
                    named.push(FailedNode { node: name.clone(), how, error });
                }
            }
        }
    }
    let next = RolloutRecord { healthy: well, ..record.clone() };
    if moving {
        return step;
    }
    if failures > 0 {
        let until = later(better, deadlines.progress);
        if sight.now < until {
            step.look_again(until);
            return step;
        }
        let why = Halt::Failures { threshold: Threshold::Total, failed: failures, tolerated: 0, nodes: failed };
        return Step { change: Some(paused(next, why, sight)), ..Step::default() };
    }
    // A version that no node has proved has not arrived anywhere, whatever somebody has looked at: it is waited for no longer
    // than that nothing gets better.
    if well == 0 && forgiven > 0 {
        let until = later(better.max(record.phase_since), deadlines.progress);
        if sight.now < until {
            step.look_again(until);
            return step;
        }
        let (threshold, nodes) = (Threshold::Everybody, still_failed);
        let why = Halt::Failures { threshold, failed: forgiven, tolerated: 0, nodes };
        return Step { change: Some(paused(next, why, sight)), ..Step::default() };
    }
    // Nobody is there yet.
    if well == 0 {
        return step;
    }
    let whole = !away && forgiven == 0;
    Step { change: Some(completed(RolloutRecord { whole, ..next }, sight)), ..Step::default() }
}

fn stands(
    record: &RolloutRecord,
    told: &Desired,
    sight: &Sight<'_>,
    deadlines: Deadlines,
    name: &NodeName,
    node: &Node,
) -> Stands {
    let answer = node.state().filter(|(state, _)| node.has_answered(told.generation) && *state.version() == record.to);
    if let Some((_, leaf)) = answer.filter(|(state, _)| state.is_validated()) {
        return Stands::Well(leaf.since);
    }
    if let Link::Silent { since } = (sight.link)(name) {
        if is_still_being_made(node) {
            return Stands::NotThere;
        }
        let until = later(since, deadlines.pending);
        return if sight.now < until { Stands::OnItsWay(until) } else { Stands::Away };
    }
    // Who was asked to go on has the whole time again, and so has everybody in a new life of the store.
    let began = record.phase_since.max(record.started).max(super::survey::began(sight.fleet.epoch(), sight.now));
    let by = |until: Timestamp, how| match sight.now < until {
        true => Stands::OnItsWay(until),
        false => Stands::Failed(how, until),
    };
    let late = || by(later(began, deadlines.node), FailedHow::Expired);
    let Some((state, leaf)) = answer else { return late() };
    match state {
        ServiceState::Configured { result: Configured::Failure, .. } => {
            Stands::Failed(FailedHow::NotConfigured, leaf.since)
        }
        ServiceState::Validated { result: Validated::Failure, .. } => {
            Stands::Failed(FailedHow::NotValidated, leaf.since)
        }
        ServiceState::Configured { result: Configured::Pending, .. } => {
            by(later(leaf.since.max(began), deadlines.pending), FailedHow::PendingTooLong)
        }
        ServiceState::Configured { result: Configured::Success, .. }
        | ServiceState::Validated { result: Validated::Success, .. } => late(),
    }
}
