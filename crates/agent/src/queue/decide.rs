//! Decides what the queue does at an event. One kind of work runs at a time; what happens meanwhile becomes a cause of
//! the work that waits.

use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use muster_core::names::Version;
use muster_core::report::Cause;
use muster_wire::sync::DesiredState;

use crate::backoff::RetryBackoff;
use crate::queue::hooks::{self, HookTrigger};
use crate::queue::schedule::{LedgerView, PendingRetry, Schedule, merge};
use crate::queue::state_machine::FirstWork;
use crate::state::ledger::{LedgerRunEnd, RunPhase, Work};

/// Time that the first run waits for a hello. The desired state in the ledger may be outdated, and a run of it would be
/// wasted. An unreachable server must not block a node that has what it needs.
pub const FIRST_HELLO_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay of a run whose only cause is changed configuration data. Operators set several values in a row and want one run
/// for all of them. No other node waits for such a run.
pub const DATA_DEBOUNCE: Duration = Duration::from_secs(1);

/// An event to decide on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueEvent {
    /// The agent has started, with the work that it adopts, if any, and the waiting causes of the ledger.
    Started { adopted: Option<(Work, RunPhase)>, waiting: Vec<Cause>, previews: Vec<Cause> },
    /// Adopted work has ended without a result, and a run may be due for these causes.
    AdoptionEnded { causes: Vec<Cause> },
    /// A server has sent hello. With a new incarnation, earlier validations of the node no longer count. Another role or host name
    /// is the cause of a run.
    Connected { new_incarnation: bool, identity: Option<Cause> },
    /// The server has sent a desired state. It is not stored yet.
    Desired(DesiredState),
    /// A new snapshot is stored.
    SnapshotStored,
    /// A changed pause, or the end of one, is stored.
    PauseStored,
    /// An operator requests a run.
    RunRequested(Cause),
    /// An operator requests a preview.
    PreviewRequested(Cause),
    /// The node has other addresses. A validation reports them.
    AddressesChanged,
    /// No server has confirmed the release in time: the node rolls back.
    RolledBack { version: Version, within: SignedDuration },
    /// The work in the slot has ended, and its result is stored.
    Finished,
    /// Time has passed.
    Tick,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueAction {
    /// Do nothing until [`Schedule::wake_at`].
    Wait,
    /// Store the desired state.
    Adopt(DesiredState),
    /// The desired state is older than the current one: ignore it.
    RefuseOlder,
    /// The desired state is the current one: ignore it.
    IgnoreDuplicate,
    /// Start a run.
    Start { causes: Vec<Cause>, failures: u32 },
    /// Start a preview.
    Preview { causes: Vec<Cause> },
    /// Run these hooks, then the checks.
    RunHooks { hooks: Vec<HookTrigger>, causes: Vec<Cause> },
    /// Run the checks.
    Validate,
}

/// Delays of a decision.
#[derive(Clone, Copy, Debug)]
pub struct DecisionTimings {
    pub debounce: Duration,
    pub retry: RetryBackoff,
    /// Jitter between 0 and 1, drawn again for each event.
    pub chance: f64,
    /// Position of the node's timed runs within their interval, from 0 up to 1.
    pub phase: f64,
    pub first: FirstWork,
}

/// Decides on an event. Returns the new schedule and the action.
pub fn decide(
    mut schedule: Schedule,
    view: LedgerView<'_>,
    event: QueueEvent,
    now: Instant,
    timings: DecisionTimings,
) -> (Schedule, QueueAction) {
    let soon = now + timings.debounce;
    let action = match event {
        QueueEvent::Started { adopted, waiting, previews } => {
            schedule.begin = Some(now);
            started(&mut schedule, view, adopted, waiting, previews, now + FIRST_HELLO_TIMEOUT);
            if timings.first == FirstWork::Checks {
                schedule.waiting.retain(|cause| *cause != Cause::AgentStarted);
            }
            QueueAction::Wait
        }
        QueueEvent::AdoptionEnded { causes } => {
            schedule.running = None;
            for cause in causes {
                schedule.add(cause, now + FIRST_HELLO_TIMEOUT);
            }
            QueueAction::Wait
        }
        QueueEvent::Connected { new_incarnation, identity } => {
            if let Some(cause) = identity {
                schedule.add(cause, soon);
            }
            schedule.hasten(soon);
            if new_incarnation || timings.first == FirstWork::Checks {
                schedule.hasten_validation(soon);
            }
            schedule.preview_due = schedule.preview_due.map(|due| due.min(soon));
            QueueAction::Wait
        }
        QueueEvent::Desired(desired) => match view.desired.map(|known| desired.generation.cmp(&known.generation)) {
            Some(std::cmp::Ordering::Less) => QueueAction::RefuseOlder,
            Some(std::cmp::Ordering::Equal) => QueueAction::IgnoreDuplicate,
            Some(std::cmp::Ordering::Greater) | None => {
                // Failures of another version do not count for this one, and a timed preview is of the validated one.
                schedule.retry = None;
                schedule.previews.retain(|cause| *cause != Cause::Schedule);
                schedule.add(Cause::Version { version: desired.version.clone() }, soon);
                QueueAction::Adopt(desired)
            }
        },
        QueueEvent::SnapshotStored => {
            // The lookups of a running run are known only at its end, and are compared then.
            if schedule.running.is_none() {
                schedule.add_changes(view, soon, now + DATA_DEBOUNCE);
                schedule.hasten_hooks(view, soon);
            }
            // A waiting first run may have lacked only the snapshot.
            if view.last.is_none() {
                schedule.hasten(soon);
            }
            QueueAction::Wait
        }
        // Waiting work keeps its causes during a pause. The end of a pause is itself no cause.
        QueueEvent::PauseStored => QueueAction::Wait,
        QueueEvent::RunRequested(cause) => {
            schedule.add(cause, soon);
            QueueAction::Wait
        }
        QueueEvent::PreviewRequested(cause) => {
            merge(&mut schedule.previews, cause);
            schedule.preview_due = Some(now);
            QueueAction::Wait
        }
        QueueEvent::AddressesChanged => {
            schedule.hasten_validation(soon);
            QueueAction::Wait
        }
        QueueEvent::RolledBack { version, within } => {
            schedule.retry = None;
            schedule.add(Cause::AutoRollback { version, within }, now);
            QueueAction::Wait
        }
        QueueEvent::Finished => {
            finished(&mut schedule, view, now, timings);
            QueueAction::Wait
        }
        QueueEvent::Tick => {
            if let Some(retry) = schedule.retry.filter(|retry| retry.due <= now) {
                schedule.retry = None;
                schedule.add(Cause::Retry { attempt: retry.attempt }, now);
            }
            schedule.add_timed(view, now, timings.phase);
            start(&mut schedule, view, now)
        }
    };
    (schedule, action)
}

fn started(
    schedule: &mut Schedule,
    view: LedgerView<'_>,
    adopted: Option<(Work, RunPhase)>,
    waiting: Vec<Cause>,
    previews: Vec<Cause>,
    by: Instant,
) {
    for cause in waiting {
        schedule.add(cause, by);
    }
    schedule.running = adopted.map(|(work, _)| work);
    // An adopted applier takes the place of the first run.
    if adopted != Some((Work::Run, RunPhase::Applying)) {
        schedule.add(Cause::AgentStarted, by);
        // An agent that was stopped after the loss, as in a reboot, has not made the full run that follows.
        if let Some(last) = view.last.filter(|last| last.lost) {
            schedule.add(Cause::Interrupted { run: last.run.clone() }, by);
        }
    }
    schedule.previews = previews;
    schedule.preview_due = Some(by);
    schedule.hasten_hooks(view, by);
    // The run includes the checks. During a pause there is no run, and the node may have broken meanwhile.
    schedule.validation_due = Some(by);
}

/// Starts the next work if the slot is free.
fn start(schedule: &mut Schedule, view: LedgerView<'_>, now: Instant) -> QueueAction {
    let Some(work) = schedule.next(view, now) else { return QueueAction::Wait };
    schedule.running = Some(work);
    match work {
        Work::Run => {
            schedule.due = None;
            schedule.retry = None;
            schedule.timed_due = None;
            QueueAction::Start { causes: std::mem::take(&mut schedule.waiting), failures: view.failures }
        }
        Work::Preview => QueueAction::Preview { causes: take_previews(&mut schedule.previews) },
        Work::Hooks => {
            schedule.hooks_due = None;
            let hooks = view.hooks_due();
            let changes = view.changes(hooks.iter().flat_map(|hook| &hook.keys));
            let mut causes = Vec::new();
            merge(&mut causes, Cause::LookedUp { changes });
            QueueAction::RunHooks { hooks, causes }
        }
        Work::Validation => {
            schedule.validation_due = None;
            QueueAction::Validate
        }
    }
}

/// Takes the first request for a preview, and those with the same options: they share one preview. The others follow.
fn take_previews(previews: &mut Vec<Cause>) -> Vec<Cause> {
    let options = previews.first().and_then(Cause::own_options).cloned();
    let (taken, others) =
        std::mem::take(previews).into_iter().partition(|cause| cause.own_options() == options.as_ref());
    *previews = others;
    taken
}

/// Frees the slot and schedules the next work.
fn finished(schedule: &mut Schedule, view: LedgerView<'_>, now: Instant, timings: DecisionTimings) {
    let work = schedule.running.take();
    schedule.add_changes(view, now, now);
    schedule.hasten(now);
    schedule_retry(schedule, view, now, timings);
    schedule.hasten_hooks(view, now);
    if schedule.timed_due.is_none() {
        schedule.schedule_timed(view, now, timings.phase);
    }
    if let Some(applied) = view.applied {
        let failures = hooks::failures(&applied.hooks, view.hooks);
        if schedule.hooks_due.is_none() && failures > 0 && !view.hooks_due().is_empty() {
            schedule.hooks_due = Some(now + timings.retry.pause(failures, timings.chance));
        }
        let every = Duration::try_from(applied.validate_every).unwrap_or_default();
        // A preview runs no checks.
        if work != Some(Work::Preview) || schedule.validation_due.is_none() {
            schedule.validation_due = Some(now + RetryBackoff { first: every, cap: every }.pause(1, timings.chance));
        }
    }
}

/// Schedules a retry of a failed run, and of a pending run that no event would wake. A waiting run makes it unnecessary.
fn schedule_retry(schedule: &mut Schedule, view: LedgerView<'_>, now: Instant, timings: DecisionTimings) {
    let attempt = view.failures.max(1);
    let pause = match view.last.map(|last| last.end) {
        Some(LedgerRunEnd::Failed) => Some(timings.retry.pause(attempt, timings.chance)),
        Some(LedgerRunEnd::Pending) if view.needs_timed_retry() => Some(timings.retry.longest(timings.chance)),
        // A node that became healthy again without a run needs no retry.
        Some(LedgerRunEnd::Validated) => {
            schedule.retry = None;
            None
        }
        Some(LedgerRunEnd::Pending) | None => None,
    };
    if let Some(pause) = pause.filter(|_| schedule.waiting.is_empty() && schedule.retry.is_none()) {
        schedule.retry = Some(PendingRetry { attempt, due: now + pause });
    }
}

#[cfg(test)]
mod tests;
