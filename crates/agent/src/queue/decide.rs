//! What to do when something happens: pure. One thing goes on and the others wait; everything that happens meanwhile
//! becomes a cause of what waits.

use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use muster_core::names::{RunId, Version};
use muster_core::report::Cause;
use muster_wire::sync::DesiredState;

use crate::backoff::Backoff;
use crate::ledger::{RunEnd, Work};
use crate::queue::causes::merge;
use crate::queue::hooks::{self, HookOn};
use crate::queue::waiting::{Known, Queue, Retry};

/// How long the first run waits for the server's first word. What the ledger says may be old, and a run for what the
/// node should no longer be helps nobody; but a server that is away must not keep a node from what it knows.
pub const START_PATIENCE: Duration = Duration::from_secs(1);
/// How long a run waits for which nothing but configuration data has changed. People set them one after the other, and
/// want one run for all of them; nobody waits for it as a node waits for another node.
pub const DATA_PATIENCE: Duration = Duration::from_secs(1);

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The agent has started; maybe it found a run that was cut off, and who waited for what.
    Started { interrupted: Option<RunId>, waiting: Vec<Cause>, previews: Vec<Cause> },
    /// The server has said hello.
    Greeted,
    /// The server says what the node should run. Not yet written down.
    Desired(DesiredState),
    /// There is a new snapshot, and it is written down.
    SnapshotStored,
    /// There is another pause, or none any more, and that is written down.
    PauseStored,
    /// A person asks for a run.
    RunAsked { id: String, by: String },
    /// A person asks what a run would do.
    PreviewAsked { id: String, by: String },
    /// Nobody has confirmed what the node should run: it goes back.
    GaveUp { version: Version, within: SignedDuration },
    /// What had the slot has ended, and that is written down.
    Finished,
    /// Time has passed.
    Tick,
}

/// What to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing now; the queue says until when.
    Wait,
    /// Write the desired state down.
    Adopt(DesiredState),
    /// It is older than what was told before; nothing changes.
    RefuseOlder,
    /// It was told before.
    IgnoreKnown,
    /// Start a run.
    Start { causes: Vec<Cause>, failures: u32 },
    /// Find out what a run would do.
    Preview { causes: Vec<Cause> },
    /// Run these hooks, and then the checks.
    RunHooks { hooks: Vec<HookOn>, causes: Vec<Cause> },
    /// Make the checks.
    Validate,
}

/// The pauses that decisions are made with.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    pub debounce: Duration,
    pub retry: Backoff,
    /// Between 0 and 1; drawn anew for each event.
    pub chance: f64,
}

/// Decides what to do.
pub fn decide(mut queue: Queue, known: Known<'_>, event: Event, now: Instant, pauses: Pauses) -> (Queue, Action) {
    let soon = now + pauses.debounce;
    let action = match event {
        Event::Started { interrupted, waiting, previews } => {
            let by = now + START_PATIENCE;
            for cause in waiting {
                queue.add(cause, by);
            }
            queue.add(Cause::AgentStarted, by);
            if let Some(run) = interrupted {
                queue.add(Cause::Interrupted { run }, by);
            }
            queue.previews = previews;
            queue.preview_due = Some(by);
            queue.hasten_hooks(known, by);
            // The run makes the checks too; but in a pause there is none, and the node may have broken meanwhile.
            queue.validation_due = Some(by);
            Action::Wait
        }
        Event::Greeted => {
            queue.hasten(soon);
            queue.preview_due = queue.preview_due.map(|due| due.min(soon));
            Action::Wait
        }
        Event::Desired(desired) => match known.desired.map(|known| desired.generation.cmp(&known.generation)) {
            Some(std::cmp::Ordering::Less) => Action::RefuseOlder,
            Some(std::cmp::Ordering::Equal) => Action::IgnoreKnown,
            Some(std::cmp::Ordering::Greater) | None => {
                // Another version is another try: what failed before says nothing of it.
                queue.retry = None;
                queue.add(Cause::Version { version: desired.version.clone() }, soon);
                Action::Adopt(desired)
            }
        },
        Event::SnapshotStored => {
            // What a run that goes on looks up is not known before its end; it is compared then.
            if queue.running.is_none() {
                queue.add_changes(known, soon, now + DATA_PATIENCE);
                queue.hasten_hooks(known, soon);
            }
            // The first snapshot of all may be what the waiting run lacked.
            if known.last.is_none() {
                queue.hasten(soon);
            }
            Action::Wait
        }
        // Whoever waits is looked at again at once; nothing is forgotten in a pause, and nothing comes of its end alone.
        Event::PauseStored => Action::Wait,
        Event::RunAsked { id, by } => {
            queue.add(Cause::Operator { id, by }, soon);
            Action::Wait
        }
        Event::PreviewAsked { id, by } => {
            merge(&mut queue.previews, Cause::Operator { id, by });
            queue.preview_due = Some(now);
            Action::Wait
        }
        Event::GaveUp { version, within } => {
            queue.retry = None;
            queue.add(Cause::WentBack { version, within }, now);
            Action::Wait
        }
        Event::Finished => {
            finished(&mut queue, known, now, pauses);
            Action::Wait
        }
        Event::Tick => {
            if let Some(retry) = queue.retry.filter(|retry| retry.due <= now) {
                queue.retry = None;
                queue.add(Cause::Retry { attempt: retry.attempt }, now);
            }
            start(&mut queue, known, now)
        }
    };
    (queue, action)
}

/// Gives the slot away, if it is free and somebody may have it.
fn start(queue: &mut Queue, known: Known<'_>, now: Instant) -> Action {
    let Some(work) = queue.next(known, now) else { return Action::Wait };
    queue.running = Some(work);
    match work {
        Work::Run => {
            queue.due = None;
            queue.retry = None;
            Action::Start { causes: std::mem::take(&mut queue.waiting), failures: known.failures }
        }
        Work::Preview => Action::Preview { causes: std::mem::take(&mut queue.previews) },
        Work::Hooks => {
            queue.hooks_due = None;
            let hooks = known.hooks_due();
            let changes = known.changes(hooks.iter().flat_map(|hook| &hook.keys));
            let mut causes = Vec::new();
            merge(&mut causes, Cause::LookedUp { changes });
            Action::RunHooks { hooks, causes }
        }
        Work::Validation => {
            queue.validation_due = None;
            Action::Validate
        }
    }
}

/// The slot is free again.
fn finished(queue: &mut Queue, known: Known<'_>, now: Instant, pauses: Pauses) {
    let work = queue.running.take();
    queue.add_changes(known, now, now);
    queue.hasten(now);
    again(queue, known, now, pauses);
    queue.hasten_hooks(known, now);
    if let Some(applied) = known.applied {
        let failures = hooks::failures(&applied.hooks, known.hooks);
        if queue.hooks_due.is_none() && failures > 0 && !known.hooks_due().is_empty() {
            queue.hooks_due = Some(now + pauses.retry.pause(failures, pauses.chance));
        }
        let every = Duration::try_from(applied.validate_every).unwrap_or_default();
        // A preview made no checks.
        if work != Some(Work::Preview) || queue.validation_due.is_none() {
            queue.validation_due = Some(now + Backoff { first: every, cap: every }.pause(1, pauses.chance));
        }
    }
}

/// What has failed is made again after a while, and so is what nobody would wake. What waits anyway makes up for it.
fn again(queue: &mut Queue, known: Known<'_>, now: Instant, pauses: Pauses) {
    let attempt = known.failures.max(1);
    let pause = match known.last.map(|last| last.end) {
        Some(RunEnd::Failed) => Some(pauses.retry.pause(attempt, pauses.chance)),
        Some(RunEnd::Pending) if known.nobody_would_wake_it() => Some(pauses.retry.longest(pauses.chance)),
        // A node that was broken, and is well again without a run, needs none.
        Some(RunEnd::Validated) => {
            queue.retry = None;
            None
        }
        Some(RunEnd::Pending) | None => None,
    };
    if let Some(pause) = pause.filter(|_| queue.waiting.is_empty() && queue.retry.is_none()) {
        queue.retry = Some(Retry { attempt, due: now + pause });
    }
}

#[cfg(test)]
mod tests;
