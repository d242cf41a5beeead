//! State machine of the queue: handles inputs and returns effects. It has no disk, no clock and no task.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{HostName, Role};
use muster_core::node::pause::NodePause;
use muster_core::node::status::Activity;
use muster_core::report::Cause;
use muster_core::txn::Generation;
use muster_wire::sync::RequestedRun;
use tokio::time::Instant;

use crate::backoff::RetryBackoff;
use crate::clock::{self, EventTime, ServerTime};
use crate::config::AgentNode;
use crate::queue::decide::QueueEvent;
use crate::queue::io::{Effect, Input, QueueStatus};
use crate::queue::schedule::{LedgerView, PausedUntil, Schedule, merge};
use crate::queue::timed_runs;
use crate::state::ledger::{Ledger, RunPhase, Work};
use crate::sync::handshake::SyncState;

/// State that an agent finds on its disk when it starts.
#[derive(Clone, Debug)]
pub struct InitialState {
    pub ledger: Ledger,
    pub snapshot: Option<Snapshot>,
    /// The snapshot of the last run, if it is still there; see [`crate::state::ledger::snapshot_of_run`].
    pub last_snapshot: Option<Snapshot>,
    /// The same of the run in progress.
    pub running_snapshot: Option<Snapshot>,
}

/// Configured delays of the queue.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// Delay of a run for further causes.
    pub debounce: Duration,
    /// Backoff of failed runs.
    pub retry: RetryBackoff,
    pub first: FirstWork,
}

/// Work of an agent that starts and finds none in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstWork {
    /// A run, which includes the checks.
    #[default]
    Run,
    /// The checks of the applied release, as soon as a server is connected. A run follows only for another cause.
    Checks,
}

/// The queue of one agent. See [the module](super) for how it is driven.
#[derive(Clone, Debug)]
pub struct RunQueue {
    pub(super) node: Arc<AgentNode>,
    pub(super) ledger: Ledger,
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) timings: Timings,
    /// See [`super::timed_runs::phase`].
    pub(super) phase: f64,
    pub(super) schedule: Schedule,
    /// The snapshot of the last run.
    pub(super) last_snapshot: Option<Arc<Snapshot>>,
    /// The snapshot of the work in progress.
    pub(super) running_snapshot: Option<Arc<Snapshot>>,
    /// The work in progress was started by an earlier agent.
    pub(super) adopted: bool,
    /// The pause in the ledger, by the clock of the timers.
    pub(super) paused: Option<PausedUntil>,
    /// The server refuses this agent as the second one of its node. It starts nothing that changes the node.
    pub(super) duplicate: bool,
    /// Validations between runs since the start, counted for an agent that starts with one.
    pub(super) validations: u64,
    /// Deadline for a server to accept a report of an unconfirmed release.
    pub(super) confirm_by: Option<Instant>,
    pub(super) published: QueueStatus,
    /// Effects of the input that is being handled.
    pub(super) effects: Vec<Effect>,
}

impl RunQueue {
    pub fn new(node: Arc<AgentNode>, initial: InitialState, timings: Timings) -> Self {
        let InitialState { ledger, snapshot, last_snapshot, running_snapshot } = initial;
        let sync_state = SyncState::new(&ledger, snapshot.as_ref());
        let published = QueueStatus { sync_state, awaited: awaited(&ledger), ..QueueStatus::default() };
        let phase = timed_runs::phase(&node.env, &node.name);
        let snapshot = snapshot.map(Arc::new);
        // Mostly they are the same. In a large fleet a snapshot is a megabyte.
        let shared = |of_run: Snapshot| match &snapshot {
            Some(current) if **current == of_run => Arc::clone(current),
            Some(_) | None => Arc::new(of_run),
        };
        let (last_snapshot, running_snapshot) = (last_snapshot.map(shared), running_snapshot.map(shared));
        Self {
            node,
            phase,
            ledger,
            snapshot,
            timings,
            schedule: Schedule::default(),
            last_snapshot,
            running_snapshot,
            adopted: false,
            paused: None,
            duplicate: false,
            validations: 0,
            confirm_by: None,
            published,
            effects: Vec::new(),
        }
    }

    /// The current ledger. Only the effects say which version of it is on disk.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The status that was published last, or the initial one.
    pub fn published(&self) -> &QueueStatus {
        &self.published
    }

    /// Time of the next [`Input::Tick`]. Any input may change it.
    pub fn wake_at(&self) -> Option<Instant> {
        [self.schedule.wake_at(self.view()), self.pause_ends(), self.confirm_by()].into_iter().flatten().min()
    }

    /// Handles one input and returns the effects to carry out, in order.
    pub fn handle(&mut self, input: Input, now: EventTime) -> Vec<Effect> {
        if let Some(event) = self.apply_input(input, now) {
            self.apply_event(event, now);
        }
        self.publish(now);
        std::mem::take(&mut self.effects)
    }

    /// Handles one input while the agent shuts down: results are stored, and no new work starts.
    pub fn handle_at_shutdown(&mut self, input: Input, now: EventTime) -> Vec<Effect> {
        match input {
            Input::Finished { report, last } => drop(self.finished(*report, *last, now)),
            Input::Previewed { report } => self.previewed(*report),
            Input::Validated { report } => self.validated(report.map(|report| *report)),
            Input::HooksFinished { report, results } => self.hooks_finished(*report, &results),
            Input::Superseded => self.superseded(),
            // Without an acknowledgement the checks do not begin. The next agent makes them.
            Input::Configured { report, applied } => self.configured(*report, *applied, now),
            Input::HooksSucceeded => self.begin_checks(now),
            Input::ReportAccepted(report) => self.report_accepted(&report),
            // The next agent adopts the work.
            Input::NotContinued | Input::Interrupted => {}
            Input::Started
            | Input::Tick
            | Input::Hello { .. }
            | Input::Duplicate
            | Input::Desired(_)
            | Input::Snapshot(_)
            | Input::Pause(_)
            | Input::RunRequested(_)
            | Input::AddressesChanged
            | Input::ReleaseChecked { .. } => {}
        }
        std::mem::take(&mut self.effects)
    }

    /// Applies an input to the ledger and returns the event to decide on.
    fn apply_input(&mut self, input: Input, now: EventTime) -> Option<QueueEvent> {
        match input {
            Input::Started => Some(self.start_up(now)),
            Input::Tick => {
                self.end_pause(now.instant);
                (!self.check_rollback(now.instant)).then_some(QueueEvent::Tick)
            }
            Input::Hello { incarnation, role, host_name, now: server_time, renewed } => {
                let new_incarnation = self.ledger.incarnation.is_some_and(|known| known != incarnation);
                let (new_identity, cause) = self.set_identity(role, host_name);
                self.hello(incarnation, new_identity, server_time, renewed, now);
                Some(QueueEvent::Connected { new_incarnation, identity: cause })
            }
            Input::Duplicate => {
                self.duplicate = true;
                None
            }
            Input::Desired(desired) => Some(QueueEvent::Desired(desired)),
            Input::Snapshot(mut snapshot) => {
                if let Some(before) = &self.snapshot {
                    Arc::make_mut(&mut snapshot).keep_secrets_of(before);
                }
                self.effects.push(Effect::SaveSnapshot(Arc::clone(&snapshot)));
                self.snapshot = Some(snapshot);
                Some(QueueEvent::SnapshotStored)
            }
            Input::Pause(pause) => self.set_pause(pause, now),
            Input::RunRequested(request) => self.run_requested(request),
            Input::AddressesChanged => Some(QueueEvent::AddressesChanged),
            Input::ReleaseChecked { problem } => self.release_checked(problem),
            Input::Configured { .. }
            | Input::HooksSucceeded
            | Input::Finished { .. }
            | Input::Previewed { .. }
            | Input::Validated { .. }
            | Input::HooksFinished { .. }
            | Input::Superseded
            | Input::NotContinued
            | Input::ReportAccepted(_)
            | Input::Interrupted => self.apply_result(input, now),
        }
    }

    /// Applies an input from the run task or the report sender.
    fn apply_result(&mut self, input: Input, now: EventTime) -> Option<QueueEvent> {
        match input {
            Input::Configured { report, applied } => self.configured(*report, *applied, now),
            Input::HooksSucceeded => self.begin_checks(now),
            Input::ReportAccepted(report) => self.report_accepted(&report),
            Input::Finished { report, last } => return Some(self.finished(*report, *last, now)),
            Input::NotContinued if self.adopted => return Some(self.adoption_ended()),
            Input::NotContinued | Input::Interrupted => return None,
            Input::Previewed { report } => {
                self.previewed(*report);
                return Some(QueueEvent::Finished);
            }
            Input::Validated { report } => {
                self.validated(report.map(|report| *report));
                return Some(QueueEvent::Finished);
            }
            Input::HooksFinished { report, results } => {
                self.hooks_finished(*report, &results);
                return Some(QueueEvent::Finished);
            }
            Input::Superseded => {
                self.superseded();
                return Some(QueueEvent::Finished);
            }
            Input::Started
            | Input::Tick
            | Input::Hello { .. }
            | Input::Duplicate
            | Input::Desired(_)
            | Input::Snapshot(_)
            | Input::Pause(_)
            | Input::RunRequested(_)
            | Input::AddressesChanged
            | Input::ReleaseChecked { .. } => return None,
        }
        self.effects.push(Effect::Acknowledge);
        None
    }

    /// Sets the role and the host name; true if one of them has changed. Returns the cause of a run if an earlier run had another
    /// role or other names.
    fn set_identity(&mut self, role: Role, host_name: Option<HostName>) -> (bool, Option<Cause>) {
        let new_role = self.ledger.role.as_ref() != Some(&role);
        if !new_role && self.ledger.host_name == host_name {
            return (false, None);
        }
        let (before, names) = (self.node.names(self.ledger.host_name.as_ref()), self.node.names(host_name.as_ref()));
        tracing::info!(%role, host = names.host, certname = names.certname, "names of the node");
        let is_cause = self.ledger.last.is_some() && (new_role || names != before);
        (self.ledger.role, self.ledger.host_name) = (Some(role.clone()), host_name);
        (true, is_cause.then_some(Cause::Identity { role, host: names.host }))
    }

    fn hello(&mut self, incarnation: u64, new_identity: bool, server_time: Timestamp, renewed: bool, now: EventTime) {
        self.duplicate = false;
        let clocks = now.clocks(self.node.boot.as_deref());
        self.ledger.server_time = Some(ServerTime::received(server_time, &clocks));
        self.update_pause_end(now);
        let new_incarnation = self.ledger.incarnation != Some(incarnation);
        if new_incarnation {
            tracing::info!(incarnation, "hello from the server");
            // The server counts a validation only in the incarnation that reported it: the next one is reported.
            self.ledger.last_validation = None;
            self.ledger.published = None;
            // No digest: the next result is reported.
            self.ledger.drift = Some(String::new());
            self.ledger.incarnation = Some(incarnation);
        }
        // The server's time is worth a write only while a pause depends on it.
        if new_incarnation || new_identity || self.ledger.pause.is_some() {
            self.save();
        }
        // The server is reachable: wake whatever waits for it.
        self.publish(now);
        if renewed {
            self.effects.push(Effect::IncarnationRenewed);
        }
        self.effects.push(Effect::WakeSender);
    }

    fn run_requested(&mut self, request: RequestedRun) -> Option<QueueEvent> {
        let RequestedRun { id, noop, by, options, release } = request;
        if self.ledger.run_request.as_ref() == Some(&id) {
            return None;
        }
        self.ledger.run_request = Some(id.clone());
        let cause = Cause::Operator { id, by, options };
        if !noop {
            return Some(QueueEvent::RunRequested(cause));
        }
        merge(&mut self.ledger.previews, cause.clone());
        if let Some(release) = release {
            self.ledger.preview_releases.retain(|other| other.version != release.version);
            self.ledger.preview_releases.push(*release);
        }
        Some(QueueEvent::PreviewRequested(cause))
    }

    fn set_pause(&mut self, pause: Option<NodePause>, now: EventTime) -> Option<QueueEvent> {
        if pause == self.ledger.pause {
            return None;
        }
        match &pause {
            Some(paused) => tracing::info!("{paused}"),
            None => tracing::info!("the node is resumed"),
        }
        self.ledger.pause = pause;
        self.update_pause_end(now);
        self.save();
        Some(QueueEvent::PauseStored)
    }

    /// Converts the end of the pause from the server's time to the clock of the timers.
    pub(super) fn update_pause_end(&mut self, now: EventTime) {
        self.paused = self.ledger.pause.as_ref().map(|paused| match paused.pause.until {
            None => PausedUntil::Resumed,
            Some(until) => {
                let clocks = now.clocks(self.node.boot.as_deref());
                let left = clock::time_left(until, self.ledger.server_time.as_ref(), &clocks);
                PausedUntil::Time(now.instant + left)
            }
        });
    }

    /// Ends a pause whose time is over. The server is not needed for this, and may be unreachable.
    fn end_pause(&mut self, now: Instant) {
        match self.paused {
            Some(PausedUntil::Time(end)) if end <= now => {
                tracing::info!("the pause has expired");
                self.paused = None;
                self.ledger.pause = None;
                self.save();
            }
            Some(PausedUntil::Time(_) | PausedUntil::Resumed) | None => {}
        }
    }

    fn pause_ends(&self) -> Option<Instant> {
        match self.paused {
            Some(PausedUntil::Time(end)) => Some(end),
            Some(PausedUntil::Resumed) | None => None,
        }
    }

    pub(super) fn save(&mut self) {
        self.effects.push(Effect::SaveLedger(Box::new(self.ledger.clone())));
    }

    pub(super) fn view(&self) -> LedgerView<'_> {
        LedgerView {
            has_incarnation: self.ledger.incarnation.is_some(),
            role: self.ledger.role.as_ref(),
            desired: self.ledger.desired.as_ref(),
            snapshot: self.snapshot.as_deref(),
            last: self.ledger.last.as_ref(),
            last_snapshot: self.last_snapshot.as_deref(),
            failures: self.ledger.failures(),
            applied: self.ledger.applied.as_ref(),
            hooks: &self.ledger.hooks,
            unconfirmed: awaited(&self.ledger).is_some(),
            // Held like a paused node, until the server accepts the agent.
            paused: if self.duplicate { Some(PausedUntil::Resumed) } else { self.paused },
        }
    }
}

impl RunQueue {
    /// Publishes the current status if it has changed.
    pub(super) fn publish(&mut self, now: EventTime) {
        let sync_state = SyncState::new(&self.ledger, self.snapshot.as_deref());
        let mut activity = self.activity(now);
        // The time of the same retry, computed again from two clocks, may differ a little.
        if let (Activity::Retrying { attempt: a, .. }, Activity::Retrying { attempt: b, .. }) =
            (&self.published.activity, &activity)
            && a == b
        {
            activity = self.published.activity.clone();
        }
        let (awaited, validations) = (awaited(&self.ledger), self.validations);
        let status = QueueStatus { sync_state, activity, awaited, validations };
        if self.published != status {
            self.published = status.clone();
            self.effects.push(Effect::Publish(Box::new(status)));
        }
    }

    fn activity(&self, now: EventTime) -> Activity {
        if let Some(running) = &self.ledger.running {
            let (run, version, since) = (running.run.clone(), running.version.clone(), running.started);
            match (running.work, running.phase) {
                // Timed work is no activity: only a changed result is reported.
                (Work::Validation, _) => {}
                (Work::Run | Work::Preview, _) if running.is_timed() => {}
                (Work::Run | Work::Preview | Work::Hooks, RunPhase::Applying) => {
                    return Activity::Applying { run, version, since };
                }
                (Work::Run | Work::Preview | Work::Hooks, RunPhase::Validating) => {
                    return Activity::Validating { run, version, since };
                }
            }
        }
        match self.schedule.retry {
            None => Activity::Idle,
            Some(retry) => {
                let left = retry.due.saturating_duration_since(now.instant);
                let at = now.clock.saturating_add(jiff::SignedDuration::try_from(left).unwrap_or_default());
                Activity::Retrying { attempt: retry.attempt, at: at.unwrap_or(now.clock) }
            }
        }
    }
}

/// The generation whose next accepted report the queue must store; see [`crate::queue::auto_rollback`].
pub(super) fn awaited(ledger: &Ledger) -> Option<Generation> {
    ledger.current_rollback().filter(|rollback| rollback.is_open()).map(|rollback| rollback.generation)
}
