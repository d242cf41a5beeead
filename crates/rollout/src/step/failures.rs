//! Failure limits of a rollout: when it stops because of failed nodes.

use muster_core::fleet::Fleet;
use muster_core::report::ResourceError;
use muster_core::report::record::LastRun;
use muster_core::report::shorten::shorten;
use muster_core::report::summary::clip;
use muster_core::rollout::record::{FailedNode, FailureKind, NAMED_FAILURES, PauseReason, RolloutRecord, Threshold};

use crate::command::MAX_TEXT;

use super::at_once::first_error_of;
use super::{IndexedPlan, NodeFacts, Survey};

/// The first failure limit that is exceeded: more nodes have failed than it allows.
///
/// Waves that have passed are checked too: a canary that fails after an hour counts as much as one that fails at once.
pub(crate) fn exceeded(
    plan: &IndexedPlan,
    record: &RolloutRecord,
    survey: &Survey,
    fleet: &Fleet,
) -> Option<PauseReason> {
    if survey.failures == 0 {
        return None;
    }
    let all = plan.plan().node_count();
    let limits = plan.plan().strategy.failures;
    let begun = plan.plan().waves.iter().take(record.waves.len()).enumerate();
    for (wave, planned) in begun {
        let failed = survey.waves.get(wave).map_or(0, |tally| tally.failures);
        let (limit, threshold) = match planned.canary {
            true => (limits.canary, Threshold::Canary),
            false => (limits.wave, Threshold::Wave),
        };
        if failed > limit.count_of(all) {
            let of_it = survey.failed().filter(|fact| fact.wave == Some(wave));
            return Some(halt(
                threshold,
                failed,
                limit.count_of(all),
                of_it.filter_map(|fact| survey.failure(fact, fleet)),
            ));
        }
    }
    let limit = limits.total.count_of(all);
    let failed = || survey.failed().filter_map(|fact| survey.failure(fact, fleet));
    (survey.failures > limit).then(|| halt(Threshold::Total, survey.failures, limit, failed()))
}

/// True if a rollout must not complete although it waits for no node.
///
/// In a rollback no failed node stops the others, but such a node still runs the version that was to be removed. A
/// forward rollout has not arrived if a node failed and none is healthy, whatever the limits allow. If there was no
/// node to fail (all were skipped, or have no machine yet), it completes: nodes that join later start with the target.
pub(crate) fn blocks_completion(record: &RolloutRecord, survey: &Survey, fleet: &Fleet) -> Option<PauseReason> {
    let failed = survey.unreviewed_failures().count();
    if failed == 0 {
        return None;
    }
    let threshold = match record.rolls_back {
        Some(_) => Threshold::Rollback,
        None if survey.healthy == 0 => Threshold::AllNodes,
        None => return None,
    };
    let failures = survey.unreviewed_failures().filter_map(|fact| survey.failure(fact, fleet));
    Some(halt(threshold, failed, 0, failures))
}

fn halt(threshold: Threshold, failed: usize, tolerated: usize, nodes: impl Iterator<Item = FailedNode>) -> PauseReason {
    let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
    let nodes = nodes.take(NAMED_FAILURES).collect();
    PauseReason::Failures { threshold, failed: count(failed), tolerated: count(tolerated), nodes }
}

impl Survey {
    /// The failure of a node, with its first error.
    pub(crate) fn failure(&self, fact: &NodeFacts, fleet: &Fleet) -> Option<FailedNode> {
        let (node, how) = (self.name(fact)?.clone(), fact.failed_how()?);
        let error = fleet.get(&node).and_then(|node| first_error_of(node, how));
        Some(FailedNode { node, how, error })
    }
}

/// The first error of a run: of a resource or a failed check. Without one, the first failure that the run recorded, or its
/// reason. A node that missed a deadline or was unreachable did not fail for that reason.
pub(crate) fn first_error(last: &LastRun, how: FailureKind) -> Option<ResourceError> {
    let reason = match how {
        FailureKind::NotConfigured | FailureKind::NotValidated => last.reason.as_ref(),
        FailureKind::RolledBack | FailureKind::Expired | FailureKind::PendingTooLong | FailureKind::Unreachable => None,
    };
    let said = reason.map(|reason| ResourceError { message: reason.to_string(), ..ResourceError::default() });
    let began = last.first_failure.as_ref().filter(|first| first.run == last.run).map(|first| first.error.clone());
    let error = last.errors.first().cloned().or(began).or(said)?;
    Some(ResourceError {
        resource: error.resource.as_ref().map(|resource| clip(resource, MAX_TEXT)),
        file: error.file.as_ref().map(|file| clip(file, MAX_TEXT)),
        line: error.line,
        message: shorten(&error.message, MAX_TEXT),
    })
}
