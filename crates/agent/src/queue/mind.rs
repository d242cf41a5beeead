//! Everything that the queue knows and decides, without a disk, a clock or a task: what happens goes in, what is to be done
//! comes out, in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use muster_core::report::Cause;
use muster_core::snapshot::Snapshot;
use muster_wire::sync::DesiredState;

use crate::backoff::Backoff;
use crate::ledger::{Ledger, RunPhase, RunningRun, Work};
use crate::node::Node;
use crate::opening::Opening;
use crate::queue::causes::merge;
use crate::queue::decide::{Action, Event, Pauses, decide};
use crate::queue::effect::{Effect, Telling};
use crate::queue::hooks::{self, HookOn};
use crate::queue::input::Input;
use crate::queue::moment::Moment;
use crate::queue::server_time::ServerTime;
use crate::queue::waiting::{Known, PausedUntil, Queue};
use crate::run::Order;
use crate::run_id;

/// What an agent finds on its disk when it starts.
#[derive(Clone, Debug)]
pub struct Found {
    pub ledger: Ledger,
    pub snapshot: Option<Snapshot>,
    /// The snapshot that the last run saw, if it is still there; see [`crate::ledger::seen_by`].
    pub seen: Option<Snapshot>,
}

/// How long the queue waits for what.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// For further causes of the same run.
    pub debounce: Duration,
    /// Before a failed run is made again.
    pub retry: Backoff,
}

/// The queue itself. See [the module](super) for how it is driven.
#[derive(Clone, Debug)]
pub struct Mind {
    pub(super) node: Arc<Node>,
    pub(super) ledger: Ledger,
    pub(super) snapshot: Option<Arc<Snapshot>>,
    habits: Habits,
    pub(super) queue: Queue,
    /// What the last run saw, and what is seen by the one that goes on.
    pub(super) seen: Option<Arc<Snapshot>>,
    pub(super) given: Option<Arc<Snapshot>>,
    /// The pause of the ledger, by a clock that never jumps.
    pub(super) paused: Option<PausedUntil>,
    pub(super) told: Telling,
    /// What is to be done for the input that is being taken.
    pub(super) effects: Vec<Effect>,
}

impl Mind {
    pub fn new(node: Arc<Node>, found: Found, habits: Habits) -> Self {
        let Found { ledger, snapshot, seen } = found;
        let opening = Opening::new(&ledger, snapshot.as_ref());
        Self {
            node,
            ledger,
            snapshot: snapshot.map(Arc::new),
            habits,
            queue: Queue::default(),
            seen: seen.map(Arc::new),
            given: None,
            paused: None,
            told: Telling { opening, ..Telling::default() },
            effects: Vec::new(),
        }
    }

    /// What it knows. What of it is on disk by now is said by the effects alone.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What the others have been told, or knew from the start.
    pub fn told(&self) -> &Telling {
        &self.told
    }

    /// When there is something to do without anything else happening: then it is to be given an [`Input::Tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        [self.queue.wake_at(self.known()), self.pause_ends()].into_iter().flatten().min()
    }

    /// Takes what has happened, and gives what is to be done about it.
    pub fn take(&mut self, input: Input, now: Moment) -> Vec<Effect> {
        if let Some(event) = self.hear(input, now) {
            self.happened(event, now);
        }
        self.publish(now);
        std::mem::take(&mut self.effects)
    }

    /// The same when the agent is to end: what has come to a result is kept, and nothing new begins.
    pub fn take_at_end(&mut self, input: Input, now: Moment) -> Vec<Effect> {
        match input {
            Input::Finished { report, last } => self.finished(*report, *last),
            Input::Previewed { report } => self.previewed(*report),
            Input::Validated { report } => self.validated(report.map(|report| *report)),
            Input::HooksRun { report, results } => self.hooks_run(*report, &results),
            Input::Interrupted => {
                if let Some(run) = &mut self.ledger.running {
                    run.ended = Some(now.clock);
                }
                self.save();
            }
            // Nobody is told that it is written, so the run goes no further; but what the applier has started may stay.
            Input::Configured { report, applied } => self.configured(*report, *applied, now),
            Input::HooksEnded => self.reached_checks(now),
            Input::Started
            | Input::ProcessesEnded
            | Input::Tick
            | Input::Hello { .. }
            | Input::Desired(_)
            | Input::Snapshot(_)
            | Input::Pause(_)
            | Input::RunAsked { .. } => {}
        }
        std::mem::take(&mut self.effects)
    }

    /// Has written down what was said, and gives what has happened with it.
    fn hear(&mut self, input: Input, now: Moment) -> Option<Event> {
        match input {
            Input::Started => self.begin(now),
            Input::ProcessesEnded => self.recover(now),
            Input::Tick => {
                self.end_pause(now.instant);
                Some(Event::Tick)
            }
            Input::Hello { incarnation, role, now: said, renewed } => {
                let here = now.here(self.node.boot.as_deref());
                self.ledger.server_time = Some(ServerTime::heard(said, &here));
                self.measure_pause(now);
                let is_news = self.ledger.incarnation != Some(incarnation) || self.ledger.role.as_ref() != Some(&role);
                if is_news {
                    tracing::info!(incarnation, %role, "the server says hello");
                    self.ledger.incarnation = Some(incarnation);
                    self.ledger.role = Some(role);
                }
                // The time is worth a write only for what ends by it.
                if is_news || self.ledger.pause.is_some() {
                    self.save();
                }
                // The server is there: whatever waits for it can go.
                self.publish(now);
                if renewed {
                    self.effects.push(Effect::Renewed);
                }
                self.effects.push(Effect::WakeSender);
                Some(Event::Greeted)
            }
            Input::Desired(desired) => Some(Event::Desired(desired)),
            Input::Snapshot(snapshot) => {
                let snapshot = Arc::new(*snapshot);
                self.effects.push(Effect::SaveSnapshot(Arc::clone(&snapshot)));
                self.snapshot = Some(snapshot);
                Some(Event::SnapshotStored)
            }
            Input::Pause(pause) => {
                if pause == self.ledger.pause {
                    return None;
                }
                match &pause {
                    Some(paused) => tracing::info!("{paused}"),
                    None => tracing::info!("the pause is over"),
                }
                self.ledger.pause = pause;
                self.measure_pause(now);
                self.save();
                Some(Event::PauseStored)
            }
            Input::RunAsked { id, .. } if self.ledger.asked.as_ref() == Some(&id) => None,
            Input::RunAsked { id, by, noop } => {
                self.ledger.asked = Some(id.clone());
                if noop {
                    merge(&mut self.ledger.previews, Cause::Operator { id: id.clone(), by: by.clone() });
                    Some(Event::PreviewAsked { id, by })
                } else {
                    Some(Event::RunAsked { id, by })
                }
            }
            Input::Configured { report, applied } => {
                self.configured(*report, *applied, now);
                self.effects.push(Effect::Acknowledge);
                None
            }
            Input::HooksEnded => {
                self.reached_checks(now);
                self.effects.push(Effect::Acknowledge);
                None
            }
            Input::Finished { report, last } => {
                self.finished(*report, *last);
                Some(Event::Finished)
            }
            Input::Previewed { report } => {
                self.previewed(*report);
                Some(Event::Finished)
            }
            Input::Validated { report } => {
                self.validated(report.map(|report| *report));
                Some(Event::Finished)
            }
            Input::HooksRun { report, results } => {
                self.hooks_run(*report, &results);
                Some(Event::Finished)
            }
            Input::Interrupted => None,
        }
    }

    /// Decides, and has done what was decided.
    fn happened(&mut self, event: Event, now: Moment) {
        let asked = matches!(event, Event::RunAsked { .. } | Event::PreviewAsked { .. });
        let Habits { debounce, retry } = self.habits;
        let pauses = Pauses { debounce, retry, chance: now.chance };
        let (queue, action) = decide(self.queue.clone(), self.known(), event, now.instant, pauses);
        self.queue = queue;
        let waits_longer = self.paused.is_some() && self.ledger.waiting != self.queue.waiting;
        self.ledger.waiting.clone_from(&self.queue.waiting);
        if asked || waits_longer {
            self.save();
        }
        match action {
            Action::Wait | Action::IgnoreKnown => {}
            Action::Adopt(desired) => {
                tracing::info!(version = %desired.version, generation = %desired.generation, "the node should run");
                self.ledger.desired = Some(desired);
                self.save();
            }
            Action::RefuseOlder => {
                tracing::warn!("the server says an older desired state than it said before; it is refused");
            }
            Action::Start { causes, failures } => {
                self.start(Work::Run, self.ledger.desired.clone(), causes, failures, Vec::new(), now);
            }
            Action::Preview { causes } => {
                self.start(Work::Preview, self.ledger.desired.clone(), causes, 0, Vec::new(), now);
            }
            Action::RunHooks { hooks, causes } => {
                let failures = hooks::failures(&hooks, &self.ledger.hooks);
                self.start(Work::Hooks, self.applied(), causes, failures, hooks, now);
            }
            Action::Validate => {
                let failures = self.ledger.failures();
                self.start(Work::Validation, self.applied(), vec![Cause::Schedule], failures, Vec::new(), now);
            }
        }
    }

    fn applied(&self) -> Option<DesiredState> {
        self.ledger.applied.as_ref().map(|applied| applied.desired.clone())
    }

    fn start(
        &mut self,
        work: Work,
        desired: Option<DesiredState>,
        causes: Vec<Cause>,
        failures: u32,
        hooks: Vec<HookOn>,
        now: Moment,
    ) {
        let (Some(desired), Some(role), Some(snapshot)) = (desired, self.ledger.role.clone(), self.snapshot.clone())
        else {
            // Nothing is decided to start without these; if it were, the slot must not stay taken for ever.
            self.queue.running = None;
            return;
        };
        let started = now.clock;
        let seq = self.ledger.next_seq;
        let first_failure = match work {
            Work::Run | Work::Validation => self.ledger.first_failure().cloned(),
            Work::Preview | Work::Hooks => None,
        };
        let run = RunningRun {
            run: run_id::make(&self.node, seq, started),
            work,
            seq,
            phase: RunPhase::Applying,
            version: desired.version.clone(),
            digest: desired.digest.clone(),
            generation: desired.generation,
            causes,
            failures,
            first_failure,
            hooks,
            started,
            ended: None,
        };
        self.ledger.running = Some(run.clone());
        // One for each of its reports.
        self.ledger.next_seq = seq + 2;
        self.save();
        self.publish(now);
        self.given = Some(Arc::clone(&snapshot));
        let watched = self.ledger.last.as_ref().map(|last| last.lookups.keys().cloned().collect()).unwrap_or_default();
        self.effects.push(Effect::Give(Box::new(Order { run, desired, role, snapshot, watched })));
    }

    pub(super) fn save(&mut self) {
        self.effects.push(Effect::SaveLedger(Box::new(self.ledger.clone())));
    }

    pub(super) fn known(&self) -> Known<'_> {
        Known {
            greeted: self.ledger.incarnation.is_some(),
            role: self.ledger.role.as_ref(),
            desired: self.ledger.desired.as_ref(),
            snapshot: self.snapshot.as_deref(),
            last: self.ledger.last.as_ref(),
            seen: self.seen.as_deref(),
            failures: self.ledger.failures(),
            applied: self.ledger.applied.as_ref(),
            hooks: &self.ledger.hooks,
            paused: self.paused,
        }
    }
}
