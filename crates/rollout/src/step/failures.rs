//! When too much has failed.

use muster_core::report::ResourceError;
use muster_core::report::record::LastRun;
use muster_core::report::summary::clip;
use muster_core::rollout::record::{FailedNode, FailureKind, NAMED_FAILURES, PauseReason, RolloutRecord, Threshold};

use crate::operate::LONGEST_WORDS;

use super::{Fact, Indexed, Survey};

/// Whether a limit is exceeded: more have failed than it says, not as many.
///
/// Each wave that has begun is looked at, also those that have passed: a first node that fails after an hour says as much
/// as one that fails at once.
pub(crate) fn exceeded(plan: &Indexed, record: &RolloutRecord, survey: &Survey<'_>) -> Option<PauseReason> {
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
        if failed > limit.of(all) {
            let of_it = survey.failed().filter(|fact| fact.wave == Some(wave));
            return Some(halt(threshold, failed, limit.of(all), of_it));
        }
    }
    let limit = limits.total.of(all);
    (survey.failures > limit).then(|| halt(Threshold::Total, survey.failures, limit, survey.failed()))
}

/// Whether a rollout must not end as completed though it waits for nobody.
///
/// One that goes back lets no node keep another from it; but who could not go back still runs what was to be taken away. And
/// one that goes forward has arrived nowhere if somebody failed and nobody is well, whatever was tolerated. Where there was
/// nobody to fail (all were set aside, or have no machine yet) it is over: nodes that come later begin with the target.
pub(crate) fn in_the_end(record: &RolloutRecord, survey: &Survey<'_>) -> Option<PauseReason> {
    let failed = survey.unseen().count();
    if failed == 0 {
        return None;
    }
    let threshold = match record.rolls_back {
        Some(_) => Threshold::Rollback,
        None if survey.healthy == 0 => Threshold::AllNodes,
        None => return None,
    };
    Some(halt(threshold, failed, 0, survey.unseen()))
}

fn halt<'s>(
    threshold: Threshold,
    failed: usize,
    tolerated: usize,
    nodes: impl Iterator<Item = &'s Fact<'s>>,
) -> PauseReason {
    let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
    let nodes = nodes.take(NAMED_FAILURES).filter_map(Fact::failure).collect();
    PauseReason::Failures { threshold, failed: count(failed), tolerated: count(tolerated), nodes }
}

impl Fact<'_> {
    /// How it failed, with the first thing that went wrong.
    pub(crate) fn failure(&self) -> Option<FailedNode> {
        let how = self.failed_how()?;
        let last = self.node.observed.as_ref().and_then(|(observed, _)| observed.last.as_ref());
        let error = last.and_then(|last| what_went_wrong(last, how));
        Some(FailedNode { node: self.name.clone(), how, error })
    }
}

/// The first thing that went wrong in a run: its first error. A validation has none: there it is what the run itself took
/// for its failure, or why it ended as it did, which names the checks that failed. Who was late, or was not there, did not
/// fail by that reason.
pub(crate) fn what_went_wrong(last: &LastRun, how: FailureKind) -> Option<ResourceError> {
    let reason = match how {
        FailureKind::NotConfigured | FailureKind::NotValidated => last.reason.as_ref(),
        FailureKind::RolledBack | FailureKind::Expired | FailureKind::PendingTooLong | FailureKind::Unreachable => None,
    };
    let said = reason.map(|reason| ResourceError { message: reason.to_string(), ..ResourceError::default() });
    let began = last.first_failure.as_ref().filter(|first| first.run == last.run).map(|first| first.error.clone());
    let error = last.errors.first().cloned().or(began).or(said)?;
    Some(ResourceError {
        resource: error.resource.as_ref().map(|resource| clip(resource, LONGEST_WORDS)),
        file: error.file.as_ref().map(|file| clip(file, LONGEST_WORDS)),
        line: error.line,
        message: clip(&error.message, LONGEST_WORDS),
    })
}
