//! Schedules the agent's work: when the next run, hook or validation is due, and what caused the run.

use tokio::time::Instant;

use muster_core::lookup::snapshot::Snapshot;
use muster_core::lookup::{LookupKey, Lookups, snapshot};
use muster_core::names::Role;
use muster_core::report::reason::Need;
use muster_core::report::{Cause, LookupChange};
use muster_wire::sync::DesiredState;

use crate::queue::hooks::{self, HookRecords, HookTrigger};
use crate::state::ledger::{AppliedRelease, LedgerRunEnd, PreviousRun, Work};

/// Running and waiting work. The causes are in the ledger too; the due times are not, because an agent starts with a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    pub running: Option<Work>,
    /// Causes of the waiting run. Empty: no run waits.
    pub waiting: Vec<Cause>,
    /// Earliest start of the waiting run.
    pub due: Option<Instant>,
    pub retry: Option<PendingRetry>,
    /// Requests for a preview. Empty: no preview waits.
    pub previews: Vec<Cause>,
    pub preview_due: Option<Instant>,
    /// Earliest start of hooks with changed keys.
    pub hooks_due: Option<Instant>,
    /// Time of the next periodic validation.
    pub validation_due: Option<Instant>,
    /// Time of the next timed run; see [`super::timed_runs`].
    pub timed_due: Option<Instant>,
    /// Time from which the intervals of timed runs are counted.
    pub begin: Option<Instant>,
}

/// Retry of a run that failed, or that waits for something which no event announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingRetry {
    pub attempt: u32,
    pub due: Instant,
}

/// End of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PausedUntil {
    /// An operator resumes the node.
    Resumed,
    Time(Instant),
}

/// Stored state that a decision reads, including the news of the event itself.
#[derive(Clone, Copy, Debug)]
pub struct LedgerView<'a> {
    /// A server has assigned an incarnation. Without one the agent cannot report.
    pub has_incarnation: bool,
    pub role: Option<&'a Role>,
    pub desired: Option<&'a DesiredState>,
    pub snapshot: Option<&'a Snapshot>,
    pub last: Option<&'a PreviousRun>,
    /// The snapshot of the last run, if it is still available.
    pub last_snapshot: Option<&'a Snapshot>,
    /// Failed runs in a row at the generation of the desired state.
    pub failures: u32,
    /// The release that was applied last.
    pub applied: Option<&'a AppliedRelease>,
    pub hooks: &'a HookRecords,
    /// The desired state is not confirmed yet, and may be rolled back.
    pub unconfirmed: bool,
    pub paused: Option<PausedUntil>,
}

impl LedgerView<'_> {
    /// True if everything is there that a run needs.
    fn is_complete(&self) -> bool {
        self.has_incarnation && self.role.is_some() && self.desired.is_some() && self.snapshot.is_some()
    }

    /// True if a pending node waits for something that no change in the fleet announces: a file, a licence, or any other
    /// free-text need. While it also waits for other nodes, their change wakes it first.
    pub(super) fn needs_timed_retry(&self) -> bool {
        let Some(last) = self.last else { return false };
        let lacks = |need| self.snapshot.is_some_and(|snapshot| snapshot.still_lacks(need));
        let is_other = |need: &Need| match need {
            Need::Other { .. } => true,
            Need::Role { .. } | Need::Leader { .. } | Need::Published { .. } => false,
        };
        (last.needs.iter().any(is_other) || last.lookups.is_empty()) && !last.needs.iter().any(lacks)
    }

    /// Hooks with changed keys. After a lost run there are none: a full run follows, and includes them.
    pub(super) fn hooks_due(&self) -> Vec<HookTrigger> {
        if self.last.is_some_and(|last| last.lost) {
            return Vec::new();
        }
        match (self.applied, self.snapshot) {
            (Some(applied), Some(snapshot)) => hooks::due(&applied.hooks, self.hooks, snapshot),
            (Some(_) | None, Some(_) | None) => Vec::new(),
        }
    }

    /// True if one of those hooks has not yet failed with the same values.
    pub(super) fn has_untried_hooks(&self) -> bool {
        if self.last.is_some_and(|last| last.lost) {
            return false;
        }
        match (self.applied, self.snapshot) {
            (Some(applied), Some(snapshot)) => hooks::has_untried(&applied.hooks, self.hooks, snapshot),
            (Some(_) | None, Some(_) | None) => false,
        }
    }

    /// Describes the changes at `keys` since the last run.
    pub(super) fn changes<'k>(&self, keys: impl Iterator<Item = &'k String>) -> Vec<LookupChange> {
        let change = |key: &String| match (self.last_snapshot, self.snapshot) {
            (Some(last), Some(snapshot)) => snapshot::describe_change(key, last, snapshot),
            (Some(_) | None, Some(_) | None) => LookupChange { key: key.clone(), what: String::new() },
        };
        keys.map(change).collect()
    }
}

impl Schedule {
    /// The next due time, if no other event comes first.
    pub fn wake_at(&self, view: LedgerView<'_>) -> Option<Instant> {
        let timed = self.timed_due.filter(|_| self.running.is_none());
        self.due_times(view).into_iter().filter_map(|(_, when)| when).chain(timed).min()
    }

    /// The work that may start now. A preview comes first: an operator waits for it, it changes nothing, and after the run
    /// it would show nothing. A run comes before hooks and checks, because it includes both.
    pub(super) fn next(&self, view: LedgerView<'_>, now: Instant) -> Option<Work> {
        self.due_times(view).into_iter().find(|(_, when)| when.is_some_and(|when| when <= now)).map(|(work, _)| work)
    }

    /// Due time of each kind of work, by priority. A pause blocks everything that changes the node; previews and
    /// validations continue.
    fn due_times(&self, view: LedgerView<'_>) -> [(Work, Option<Instant>); 4] {
        let free = self.running.is_none() && view.is_complete();
        let unpaused = |when: Instant| match view.paused {
            None => Some(when),
            Some(PausedUntil::Time(end)) => Some(when.max(end)),
            Some(PausedUntil::Resumed) => None,
        };
        let run = [self.due.filter(|_| !self.waiting.is_empty()), self.retry.map(|retry| retry.due)];
        let run = run.into_iter().flatten().min().and_then(unpaused);
        let preview = self.preview_due.filter(|_| !self.previews.is_empty());
        let hooks = self.hooks_due.filter(|_| !view.hooks_due().is_empty()).and_then(unpaused);
        let validation = self.validation_due.filter(|_| view.applied.is_some());
        [(Work::Preview, preview), (Work::Run, run), (Work::Hooks, hooks), (Work::Validation, validation)]
            .map(|(work, when)| (work, when.filter(|_| free)))
    }

    /// Adds a cause to the waiting run, which may start at `by` or earlier. Further causes never delay it: the first cause
    /// is debounced once.
    pub(super) fn add(&mut self, cause: Cause, by: Instant) {
        merge(&mut self.waiting, cause);
        self.due = Some(earlier(self.due, by));
    }

    /// Lets the waiting run, if any, start at `by` or earlier.
    pub(super) fn hasten(&mut self, by: Instant) {
        if !self.waiting.is_empty() {
            self.due = Some(earlier(self.due, by));
        }
    }

    /// Schedules a validation for `by` or earlier.
    pub(super) fn hasten_validation(&mut self, by: Instant) {
        self.validation_due = Some(earlier(self.validation_due, by));
    }

    /// Schedules hooks for `by` if they have changed keys that they have not failed with.
    pub(super) fn hasten_hooks(&mut self, view: LedgerView<'_>, by: Instant) {
        if view.has_untried_hooks() {
            self.hooks_due = Some(earlier(self.hooks_due, by));
        } else if view.hooks_due().is_empty() {
            self.hooks_due = None;
        }
    }

    /// Adds the lookups that changed since the last run as a cause. Adds nothing if the last run is pending and still
    /// lacks something: another run would end the same way. If only configuration data changed, the run may start at
    /// `data_by`.
    pub(super) fn add_changes(&mut self, view: LedgerView<'_>, by: Instant, data_by: Instant) {
        let (Some(last), Some(snapshot)) = (view.last, view.snapshot) else { return };
        let keys = changed_keys(&last.lookups, snapshot);
        let still_pending =
            last.end == LedgerRunEnd::Pending && last.needs.iter().any(|need| snapshot.still_lacks(need));
        if !keys.is_empty() && !still_pending {
            let by = if keys.iter().all(|key| is_datum(key)) { data_by } else { by };
            self.add(Cause::LookedUp { changes: view.changes(keys.iter()) }, by);
        }
    }
}

fn is_datum(key: &str) -> bool {
    match LookupKey::parse(key) {
        LookupKey::Datum { .. } => true,
        LookupKey::ActiveRoles
        | LookupKey::ActiveRole { .. }
        | LookupKey::ActiveRoleInterface { .. }
        | LookupKey::Leader { .. }
        | LookupKey::Published { .. }
        | LookupKey::Service { .. }
        | LookupKey::SelfValue { .. }
        | LookupKey::Unknown => false,
    }
}

fn earlier(when: Option<Instant>, by: Instant) -> Instant {
    when.map_or(by, |when| when.min(by))
}

/// Keys whose values differ from those that were looked up.
pub fn changed_keys(looked_up: &Lookups, snapshot: &Snapshot) -> Vec<String> {
    looked_up.iter().filter(|(key, tag)| snapshot.tag(key) != **tag).map(|(key, _)| key.clone()).collect()
}

/// Adds a cause to the waiting ones. Several changes lead to one run, which reports each cause once.
pub fn merge(causes: &mut Vec<Cause>, cause: Cause) {
    match cause {
        Cause::Version { .. } => replace(causes, cause, |other| matches!(other, Cause::Version { .. })),
        Cause::Identity { .. } => replace(causes, cause, |other| matches!(other, Cause::Identity { .. })),
        Cause::Retry { .. } => replace(causes, cause, |other| matches!(other, Cause::Retry { .. })),
        Cause::LookedUp { mut changes } => {
            for other in causes.iter_mut() {
                if let Cause::LookedUp { changes: known } = other {
                    // The later description of a key covers all its changes.
                    known.retain(|known| changes.iter().all(|change| change.key != known.key));
                    known.append(&mut changes);
                    known.sort_by(|a, b| a.key.cmp(&b.key));
                    return;
                }
            }
            causes.push(Cause::LookedUp { changes });
        }
        Cause::AutoRollback { .. } => replace(causes, cause, |other| matches!(other, Cause::AutoRollback { .. })),
        Cause::AgentStarted | Cause::Interrupted { .. } | Cause::Operator { .. } | Cause::Schedule => {
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
    }
}

/// The newest of a kind counts: after v2 and then v3 the agent runs v3.
fn replace(causes: &mut Vec<Cause>, cause: Cause, same_kind: impl Fn(&Cause) -> bool) {
    match causes.iter_mut().find(|other| same_kind(other)) {
        Some(other) => *other = cause,
        None => causes.push(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::names::Version;

    #[test]
    fn merged_causes_are_listed_once() {
        let version = |v: &str| Cause::Version { version: Version::new(v).unwrap() };
        let looked_up = |keys: &[&str]| Cause::LookedUp {
            changes: keys.iter().map(|key| LookupChange { key: (*key).to_owned(), what: String::new() }).collect(),
        };
        let operator = || Cause::operator("1", "ada");
        let mut causes = Vec::new();
        for cause in [
            Cause::AgentStarted,
            version("v1"),
            looked_up(&["b"]),
            Cause::Retry { attempt: 1 },
            Cause::AgentStarted,
            version("v2"),
            looked_up(&["a", "b"]),
            Cause::Retry { attempt: 2 },
            operator(),
            operator(),
        ] {
            merge(&mut causes, cause);
        }
        let expected =
            [Cause::AgentStarted, version("v2"), looked_up(&["a", "b"]), Cause::Retry { attempt: 2 }, operator()];
        assert_eq!(causes, expected);
    }
}
