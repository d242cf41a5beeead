//! What waits for the one slot, and when each may have it: pure.

use tokio::time::Instant;

use muster_core::lookup::snapshot::Snapshot;
use muster_core::lookup::{LookupKey, Lookups, snapshot_diff};
use muster_core::names::Role;
use muster_core::report::reason::Need;
use muster_core::report::{Cause, LookupChange};
use muster_wire::sync::DesiredState;

use crate::ledger::{AppliedRelease, LastRun, RunEnd, Work};
use crate::queue::causes::merge;
use crate::queue::hooks::{self, HookMemories, HookOn};

/// What waits and what runs. What of it may not be forgotten is in the ledger too; for the rest, a restart begins with a
/// run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    pub running: Option<Work>,
    /// Causes of the run that waits; none, and no run waits.
    pub waiting: Vec<Cause>,
    /// When it may start.
    pub due: Option<Instant>,
    pub retry: Option<Retry>,
    /// Who waits for a preview; none, and no preview waits.
    pub previews: Vec<Cause>,
    pub preview_due: Option<Instant>,
    /// When hooks that have something to react to may start.
    pub hooks_due: Option<Instant>,
    /// When the next validation is due.
    pub validation_due: Option<Instant>,
}

/// When a run that failed, or that waits for what only it can see, is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub attempt: u32,
    pub due: Instant,
}

/// When a pause ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PausedUntil {
    /// When a person says so.
    Resumed,
    Time(Instant),
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
    /// The snapshot that the last run saw, if it is still known.
    pub seen: Option<&'a Snapshot>,
    /// How many runs in a row have failed at the generation of the desired state.
    pub failures: u32,
    /// The release that the node was last brought to.
    pub applied: Option<&'a AppliedRelease>,
    pub hooks: &'a HookMemories,
    pub paused: Option<PausedUntil>,
}

impl Known<'_> {
    /// Whether there is all that a run needs.
    fn complete(&self) -> bool {
        self.greeted && self.role.is_some() && self.desired.is_some() && self.snapshot.is_some()
    }

    /// Whether a pending node waits for something that no change in the fleet may ever tell it of: a file, a licence, or
    /// whatever else its content put in words. As long as it lacks something of other nodes too, that wakes it first.
    pub(super) fn nobody_would_wake_it(&self) -> bool {
        let Some(last) = self.last else { return false };
        let lacks = |need| self.snapshot.is_some_and(|snapshot| snapshot.still_lacks(need));
        let is_other = |need: &Need| match need {
            Need::Other { .. } => true,
            Need::Role { .. } | Need::Leader { .. } | Need::Published { .. } => false,
        };
        (last.needs.iter().any(is_other) || last.lookups.is_empty()) && !last.needs.iter().any(lacks)
    }

    /// The hooks that have something to react to.
    pub(super) fn hooks_due(&self) -> Vec<HookOn> {
        match (self.applied, self.snapshot) {
            (Some(applied), Some(snapshot)) => hooks::due(&applied.hooks, self.hooks, snapshot),
            (Some(_) | None, Some(_) | None) => Vec::new(),
        }
    }

    /// Whether one of them has not failed with just this.
    pub(super) fn hooks_have_news(&self) -> bool {
        match (self.applied, self.snapshot) {
            (Some(applied), Some(snapshot)) => hooks::has_news(&applied.hooks, self.hooks, snapshot),
            (Some(_) | None, Some(_) | None) => false,
        }
    }

    /// The changes at keys since the last run, in words.
    pub(super) fn changes<'k>(&self, keys: impl Iterator<Item = &'k String>) -> Vec<LookupChange> {
        let change = |key: &String| match (self.seen, self.snapshot) {
            (Some(seen), Some(snapshot)) => snapshot_diff::describe_change(key, seen, snapshot),
            (Some(_) | None, Some(_) | None) => LookupChange { key: key.clone(), what: String::new() },
        };
        keys.map(change).collect()
    }
}

impl Queue {
    /// When there is something to do without anything else happening.
    pub fn wake_at(&self, known: Known<'_>) -> Option<Instant> {
        self.times(known).into_iter().filter_map(|(_, when)| when).min()
    }

    /// What may have the slot now. Of several, a preview comes first: a person waits for it, it changes nothing, and after
    /// the run it would have nothing to say. A run comes before hooks and checks, since it makes up for both.
    pub(super) fn next(&self, known: Known<'_>, now: Instant) -> Option<Work> {
        self.times(known).into_iter().find(|(_, when)| when.is_some_and(|when| when <= now)).map(|(work, _)| work)
    }

    /// When each kind of work may have the slot, in the order of their right to it. In a pause nothing is changed on the
    /// node; to look is allowed.
    fn times(&self, known: Known<'_>) -> [(Work, Option<Instant>); 4] {
        let free = self.running.is_none() && known.complete();
        let unpaused = |when: Instant| match known.paused {
            None => Some(when),
            Some(PausedUntil::Time(end)) => Some(when.max(end)),
            Some(PausedUntil::Resumed) => None,
        };
        let run = [self.due.filter(|_| !self.waiting.is_empty()), self.retry.map(|retry| retry.due)];
        let run = run.into_iter().flatten().min().and_then(unpaused);
        let preview = self.preview_due.filter(|_| !self.previews.is_empty());
        let hooks = self.hooks_due.filter(|_| !known.hooks_due().is_empty()).and_then(unpaused);
        let validation = self.validation_due.filter(|_| known.applied.is_some());
        [(Work::Preview, preview), (Work::Run, run), (Work::Hooks, hooks), (Work::Validation, validation)]
            .map(|(work, when)| (work, when.filter(|_| free)))
    }

    /// Lets the waiting run start by `by`, with one cause more. Never later than it might already: however many causes
    /// come, and however quickly, the first of them waits no longer for that.
    pub(super) fn add(&mut self, cause: Cause, by: Instant) {
        merge(&mut self.waiting, cause);
        self.due = Some(earlier(self.due, by));
    }

    /// Lets the run that waits, if there is one, start by `by`.
    pub(super) fn hasten(&mut self, by: Instant) {
        if !self.waiting.is_empty() {
            self.due = Some(earlier(self.due, by));
        }
    }

    /// Lets the hooks react by `by`, if something is new to them.
    pub(super) fn hasten_hooks(&mut self, known: Known<'_>, by: Instant) {
        if known.hooks_have_news() {
            self.hooks_due = Some(earlier(self.hooks_due, by));
        } else if known.hooks_due().is_empty() {
            self.hooks_due = None;
        }
    }

    /// Adds what is different now from what the last run saw; unless the last run waits for something that is still not
    /// there, because then another run could only say the same. If it is all configuration data, the run may start by
    /// `data_by`.
    pub(super) fn add_changes(&mut self, known: Known<'_>, by: Instant, data_by: Instant) {
        let (Some(last), Some(snapshot)) = (known.last, known.snapshot) else { return };
        let keys = changed(&last.lookups, snapshot);
        let hopeless = last.end == RunEnd::Pending && last.needs.iter().any(|need| snapshot.still_lacks(need));
        if !keys.is_empty() && !hopeless {
            let by = if keys.iter().all(|key| is_datum(key)) { data_by } else { by };
            self.add(Cause::LookedUp { changes: known.changes(keys.iter()) }, by);
        }
    }
}

fn is_datum(key: &str) -> bool {
    match LookupKey::parse(key) {
        LookupKey::Datum { .. } => true,
        LookupKey::ActiveRole { .. }
        | LookupKey::ActiveRoleInterface { .. }
        | LookupKey::Leader { .. }
        | LookupKey::Published { .. }
        | LookupKey::Unknown => false,
    }
}

fn earlier(when: Option<Instant>, by: Instant) -> Instant {
    when.map_or(by, |when| when.min(by))
}

/// The keys whose values are not what was seen.
pub fn changed(seen: &Lookups, snapshot: &Snapshot) -> Vec<String> {
    seen.iter().filter(|(key, tag)| snapshot.tag(key) != **tag).map(|(key, _)| key.clone()).collect()
}
