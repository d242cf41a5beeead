//! What to do when something happens: pure. One run goes on and one waits; everything that happens meanwhile becomes a
//! cause of the one that waits.

use std::time::Duration;

use tokio::time::Instant;

use muster_core::lookups::Lookups;
use muster_core::names::{Role, RunId};
use muster_core::reason::Need;
use muster_core::report::{Cause, LookupChange};
use muster_core::snapshot::Snapshot;
use muster_wire::sync::DesiredState;

use crate::backoff::Backoff;
use crate::ledger::{LastRun, RunEnd};
use crate::queue::causes::merge;

/// How long the first run waits for the server's first word. What the ledger says may be old, and a run for what the
/// node should no longer be helps nobody; but a server that is away must not keep a node from what it knows.
pub const START_PATIENCE: Duration = Duration::from_secs(1);

/// What waits and what runs. All of it may be forgotten: a restart begins with a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    pub running: bool,
    /// Causes of the run that waits; none, and no run waits.
    pub waiting: Vec<Cause>,
    /// When it may start.
    pub due: Option<Instant>,
    pub retry: Option<Retry>,
}

/// When a run that failed, or that waits for what only it can see, is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub attempt: u32,
    pub due: Instant,
}

/// What is written down, the event's own news included.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Whether the server has ever given this agent an incarnation: without one there is nothing to report under.
    pub greeted: bool,
    pub role: Option<&'a Role>,
    pub desired: Option<&'a DesiredState>,
    pub snapshot: Option<&'a Snapshot>,
    pub last: Option<&'a LastRun>,
    /// How many runs in a row have failed at the generation of the desired state.
    pub failures: u32,
}

impl Known<'_> {
    /// Whether there is all that a run needs.
    fn complete(&self) -> bool {
        self.greeted && self.role.is_some() && self.desired.is_some() && self.snapshot.is_some()
    }

    /// Whether a pending node waits for something that no change in the fleet may ever tell it of: a file, a licence, or
    /// whatever else its content put in words. As long as it lacks nodes of a role too, their arrival wakes it first.
    fn nobody_would_wake_it(&self) -> bool {
        let Some(last) = self.last else { return false };
        let lacks = |need| self.snapshot.is_some_and(|snapshot| snapshot.still_lacks(need));
        let is_other = |need: &Need| match need {
            Need::Other { .. } => true,
            Need::Role { .. } | Need::Leader { .. } | Need::Published { .. } => false,
        };
        (last.needs.iter().any(is_other) || last.lookups.is_empty()) && !last.needs.iter().any(lacks)
    }
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The agent has started; maybe it found a run that was cut off.
    Started { interrupted: Option<RunId> },
    /// The server has said hello.
    Greeted,
    /// The server says what the node should run. Not yet written down.
    Desired(DesiredState),
    /// There is a new snapshot, and it is written down.
    SnapshotStored,
    /// A person asks for a run.
    RunAsked { id: String, by: String },
    /// A run has ended, and that is written down.
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
        Event::Started { interrupted } => {
            queue.add(Cause::AgentStarted, now + START_PATIENCE);
            if let Some(run) = interrupted {
                queue.add(Cause::Interrupted { run }, now + START_PATIENCE);
            }
            Action::Wait
        }
        Event::Greeted => {
            queue.hasten(soon);
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
            if !queue.running {
                queue.add_changes(known, soon);
            }
            // The first snapshot of all may be what the waiting run lacked.
            queue.hasten(soon);
            Action::Wait
        }
        Event::RunAsked { id, by } => {
            queue.add(Cause::Operator { id, by }, soon);
            Action::Wait
        }
        Event::Finished => {
            queue.running = false;
            queue.add_changes(known, now);
            queue.hasten(now);
            let attempt = known.failures.max(1);
            let pause = match known.last.map(|last| last.end) {
                Some(RunEnd::Failed) => Some(pauses.retry.pause(attempt, pauses.chance)),
                Some(RunEnd::Pending) if known.nobody_would_wake_it() => Some(pauses.retry.longest(pauses.chance)),
                Some(RunEnd::Validated | RunEnd::Pending) | None => None,
            };
            if let Some(pause) = pause.filter(|_| queue.waiting.is_empty()) {
                queue.retry = Some(Retry { attempt, due: now + pause });
            }
            Action::Wait
        }
        Event::Tick => {
            if let Some(retry) = queue.retry.filter(|retry| retry.due <= now) {
                queue.retry = None;
                queue.add(Cause::Retry { attempt: retry.attempt }, now);
            }
            let due = queue.due.is_some_and(|due| due <= now);
            if due && !queue.running && !queue.waiting.is_empty() && known.complete() {
                queue.running = true;
                queue.due = None;
                queue.retry = None;
                Action::Start { causes: std::mem::take(&mut queue.waiting), failures: known.failures }
            } else {
                Action::Wait
            }
        }
    };
    (queue, action)
}

impl Queue {
    /// When there is something to do without anything else happening.
    pub fn wake_at(&self, known: Known<'_>) -> Option<Instant> {
        if self.running || !known.complete() {
            return None;
        }
        [self.due, self.retry.map(|retry| retry.due)].into_iter().flatten().min()
    }

    /// Lets the waiting run start by `by`, with one cause more.
    fn add(&mut self, cause: Cause, by: Instant) {
        merge(&mut self.waiting, cause);
        self.due = Some(self.due.map_or(by, |due| due.min(by)));
    }

    /// Lets the run that waits, if there is one, start by `by`.
    fn hasten(&mut self, by: Instant) {
        if !self.waiting.is_empty() {
            self.due = Some(self.due.map_or(by, |due| due.min(by)));
        }
    }

    /// Adds what is different now from what the last run saw; unless the last run waits for something that is still not
    /// there, because then another run could only say the same.
    fn add_changes(&mut self, known: Known<'_>, by: Instant) {
        let (Some(last), Some(snapshot)) = (known.last, known.snapshot) else { return };
        let keys = changed(&last.lookups, snapshot);
        let hopeless = last.end == RunEnd::Pending && last.needs.iter().any(|need| snapshot.still_lacks(need));
        if !keys.is_empty() && !hopeless {
            let changes = keys.into_iter().map(|key| LookupChange { key, what: String::new() }).collect();
            self.add(Cause::LookedUp { changes }, by);
        }
    }
}

/// The keys whose values are not what was seen.
pub fn changed(seen: &Lookups, snapshot: &Snapshot) -> Vec<String> {
    seen.iter().filter(|(key, tag)| snapshot.tag(key) != **tag).map(|(key, _)| key.clone()).collect()
}

#[cfg(test)]
mod tests;
