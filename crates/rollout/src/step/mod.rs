//! One step of a rollout: what is to be written now, and when to look again.
//!
//! A step is a function of what it is given. Twice the same gives twice the same; and once its change is in the store, the
//! next step has nothing more to say until something happens. It is called after each change of the environment that may
//! matter, after each change of its own, and at `recheck`.

mod change;
mod fact;
mod failures;
mod follow;
mod grants;
mod indexed;
mod numbered;
mod pauses;
mod survey;
mod waves;

use jiff::Timestamp;
use muster_core::names::NodeName;
use muster_core::report::summary::clip;
use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::{FailureCutoff, GateVerdict, PauseReason, RolloutPhase, RolloutRecord};
use muster_core::rollout::strategy::OnFailure;
use muster_core::rollout::windows;

pub use change::{Change, Grant, MOST_GRANTS};
pub use indexed::Indexed;

pub(crate) use change::untouched;
pub(crate) use fact::Fact;
pub(crate) use follow::{AtOnce, Stands, error_of};
pub(crate) use grants::Ledger;
pub(crate) use indexed::Place;
pub(crate) use survey::Survey;
pub(crate) use waves::{WaveAdvance, move_on};

use follow::follow;

use crate::health::later;
use crate::operate::{LONGEST_WORDS, MOST_NAMED};
use crate::sight::Sight;
use crate::start::stable_version;

/// What a rollout needs now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// To be written, as one transaction. None: the record says it all already.
    pub change: Option<Change>,
    /// The wave (by its place in the plan, from 0) whose checks are to be made now; what they say goes to [`judged`].
    pub checks: Option<usize>,
    /// The rollout has failed and is to be rolled back now, for this reason. Nothing else happens until then.
    pub roll_back: Option<PauseReason>,
    /// Nothing changes before this moment, unless something is written or a connection begins or ends.
    pub recheck: Option<Timestamp>,
}

impl Step {
    fn look_again(&mut self, at: Timestamp) {
        self.recheck = Some(self.recheck.map_or(at, |before| before.min(at)));
    }
}

/// Decides what a rollout needs. The record, with the revision of its key, is of the fleet in sight.
pub fn step(plan: &Indexed, record: &RolloutRecord, sight: &Sight<'_>) -> Step {
    let governs = sight.fleet.active_rollout().is_some_and(|(active, _)| active.id == record.id);
    let between = sight.fleet.restoring().is_some() || sight.fleet.destroying().is_some();
    if record.phase != RolloutPhase::Running || !governs || between {
        return Step::default();
    }
    if record.at_once { follow(plan, record, sight) } else { staged(plan, record, sight) }
}

fn completed(mut record: RolloutRecord, sight: &Sight<'_>) -> Change {
    record.phase = RolloutPhase::Completed;
    record.phase_since = sight.now;
    record.progress = sight.now;
    record.seen = sight.fleet.revision;
    Change { record, grants: Vec::new(), completes: true }
}

fn staged(plan: &Indexed, record: &RolloutRecord, sight: &Sight<'_>) -> Step {
    let survey = Survey::take(plan, record, sight);
    let mut step = Step { recheck: survey.recheck, ..Step::default() };
    if let Some(why) = failures::exceeded(plan, record, &survey) {
        return failed(plan, record, why, &survey, sight);
    }
    let mut next = record.clone();
    match move_on(plan, &mut next, &survey, sight.now) {
        WaveAdvance::InProgress => {}
        WaveAdvance::Held(Hold::Soak { until }) => step.look_again(until),
        WaveAdvance::Held(Hold::Gate { .. }) => step.checks = next.waves.len().checked_sub(1),
        WaveAdvance::Held(_) => {}
        WaveAdvance::Complete => {
            let next = noted(next, &survey);
            let change = match failures::in_the_end(record, &survey) {
                Some(why) => paused(next, why, sight),
                None => completed(RolloutRecord { whole: survey.is_whole(record, sight.fleet), ..next }, sight),
            };
            return Step { change: Some(change), ..Step::default() };
        }
        WaveAdvance::GateFailed(why) => return failed(plan, record, why, &survey, sight),
        WaveAdvance::GateInconclusive(why) => {
            return Step { change: Some(paused(noted(record.clone(), &survey), why, sight)), ..Step::default() };
        }
    }
    remember(&mut next, &survey.kept_from_answering, sight);
    let windows = &plan.plan().strategy.windows;
    let is_open = windows::is_open(windows, sight.now);
    let mut ledger = Ledger::open(plan, &next, &survey, sight);
    let grants = if is_open { ledger.choose(None) } else { Vec::new() };
    let is_idle = !is_open || (grants.is_empty() && ledger.only_paused());
    let opens = if is_open { None } else { windows::next_opening(windows, sight.now) };
    opens.into_iter().chain(survey.pauses.first_end()).for_each(|at| step.look_again(at));
    match keep_time(plan, &mut next, &survey, is_idle, sight.now) {
        Time::DoesNotCount => {}
        Time::Until(deadline) => step.look_again(deadline),
        Time::IsUp(why) => {
            return Step { change: Some(paused(noted(record.clone(), &survey), why, sight)), ..Step::default() };
        }
    }
    if next == *record && grants.is_empty() {
        return step;
    }
    next.retry.retain(|node| survey.is_to_be_retried(node) && !grants.iter().any(|grant| grant.node == *node));
    // Whoever is granted something holds a slot again.
    next.released.retain(|node| !grants.iter().any(|grant| grant.node == *node));
    next.grants = next.grants.saturating_add(u64::try_from(grants.len()).unwrap_or(u64::MAX));
    let mut next = noted(next, &survey);
    next.seen = sight.fleet.revision;
    step.change = Some(Change { record: next, grants, completes: false });
    step
}

/// Writes down who is to be granted once more: when the pause is over, nobody can see any more why they have not answered.
fn remember(record: &mut RolloutRecord, nodes: &[&NodeName], sight: &Sight<'_>) {
    if record.retry.len() + nodes.len() <= MOST_NAMED {
        record.retry.extend(nodes.iter().map(|name| (*name).clone()));
    } else {
        record.retry_before = Some(FailureCutoff::than(sight.fleet.epoch(), sight.fleet.revision, sight.now));
    }
}

/// Writes down how far it has come: with something else, never for its own sake.
fn noted(mut record: RolloutRecord, survey: &Survey<'_>) -> RolloutRecord {
    record.healthy = survey.healthy;
    record.progress = record.progress.max(survey.last_healthy);
    record
}

/// How long nothing may get better.
enum Time {
    /// It is not the time for it, or it is a person's turn.
    DoesNotCount,
    Until(Timestamp),
    IsUp(PauseReason),
}

/// Watches that something gets better while something is to be done.
fn keep_time(plan: &Indexed, record: &mut RolloutRecord, survey: &Survey<'_>, is_idle: bool, now: Timestamp) -> Time {
    // A wave that is being watched, checked or promoted waits for no node.
    if record.waves.last().is_some_and(|wave| wave.settled.is_some() && wave.passed.is_none()) {
        return Time::DoesNotCount;
    }
    match (is_idle, record.idle) {
        (true, since) => {
            record.idle = since.or(Some(now));
            return Time::DoesNotCount;
        }
        (false, Some(_)) => {
            record.idle = None;
            record.progress = now;
        }
        (false, None) => {}
    }
    let since = record.progress.max(survey.last_healthy);
    let deadline = later(since, plan.plan().strategy.deadlines.progress);
    if now < deadline { Time::Until(deadline) } else { Time::IsUp(PauseReason::NoProgress { since }) }
}

/// More has failed than is tolerated: what the strategy says for that.
fn failed(plan: &Indexed, record: &RolloutRecord, why: PauseReason, survey: &Survey<'_>, sight: &Sight<'_>) -> Step {
    let pause = |why| Step { change: Some(paused(noted(record.clone(), survey), why, sight)), ..Step::default() };
    match plan.plan().strategy.on_failure {
        OnFailure::Pause => pause(why),
        // Going back from going back would lead nowhere.
        OnFailure::Rollback if record.rolls_back.is_some() => pause(why),
        OnFailure::Rollback if stable_version(sight.fleet, record.id).is_none() => {
            pause(PauseReason::NoRollbackTarget { why: Box::new(why) })
        }
        OnFailure::Rollback => Step { roll_back: Some(why), ..Step::default() },
    }
}

/// Stops a rollout for a reason: what a step decides, and what whoever carries it out does when it cannot go on.
pub fn paused(mut record: RolloutRecord, why: PauseReason, sight: &Sight<'_>) -> Change {
    record.phase = RolloutPhase::Paused { why };
    record.phase_since = sight.now;
    record.idle = None;
    record.seen = sight.fleet.revision;
    Change { record, grants: Vec::new(), completes: false }
}

/// Takes in what the checks of a wave said. None if nobody waits for that any more: the wave is whole no longer, or somebody
/// has stopped the rollout meanwhile.
pub fn judged(record: &RolloutRecord, wave: usize, verdict: GateVerdict, sight: &Sight<'_>) -> Option<Change> {
    let mut next = record.clone();
    let is_last = next.waves.len() == wave + 1;
    let state = next.waves.last_mut().filter(|state| state.settled.is_some() && state.passed.is_none())?;
    if record.phase != RolloutPhase::Running || !is_last || state.gate.is_some() {
        return None;
    }
    state.gate = Some(shortened(verdict));
    next.seen = sight.fleet.revision;
    Some(Change { record: next, grants: Vec::new(), completes: false })
}

/// What programs print may be long, and a record is small.
fn shortened(verdict: GateVerdict) -> GateVerdict {
    let short = |text: String| clip(&text, LONGEST_WORDS);
    match verdict {
        GateVerdict::Passed { at } => GateVerdict::Passed { at },
        GateVerdict::Failed { at, check, message } => {
            GateVerdict::Failed { at, check: short(check), message: short(message) }
        }
        GateVerdict::Inconclusive { at, check, message } => {
            GateVerdict::Inconclusive { at, check: short(check), message: short(message) }
        }
    }
}

#[cfg(test)]
mod tests;
