//! Everything that the queue knows and decides, without a disk, a clock or a task: what happens goes in, what is to be done
//! comes out, in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use muster_core::lookup::snapshot::Snapshot;
use muster_core::report::Cause;

use crate::backoff::Backoff;
use crate::ledger::Ledger;
use crate::node::Node;
use crate::opening::Opening;
use crate::queue::causes::merge;
use crate::queue::decide::Event;
use crate::queue::effect::{Effect, Telling};
use crate::queue::input::Input;
use crate::queue::moment::Moment;
use crate::queue::server_time::ServerTime;
use crate::queue::telling::awaited;
use crate::queue::waiting::{Known, PausedUntil, Queue};

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
    pub(super) habits: Habits,
    pub(super) queue: Queue,
    /// What the last run saw, and what is seen by the one that goes on.
    pub(super) seen: Option<Arc<Snapshot>>,
    pub(super) given: Option<Arc<Snapshot>>,
    /// The pause of the ledger, by a clock that never jumps.
    pub(super) paused: Option<PausedUntil>,
    /// When the time is over in which a server is to take a report of what is on trial.
    pub(super) confirm_by: Option<Instant>,
    pub(super) told: Telling,
    /// What is to be done for the input that is being taken.
    pub(super) effects: Vec<Effect>,
}

impl Mind {
    pub fn new(node: Arc<Node>, found: Found, habits: Habits) -> Self {
        let Found { ledger, snapshot, seen } = found;
        let opening = Opening::new(&ledger, snapshot.as_ref());
        let told = Telling { opening, awaited: awaited(&ledger), ..Telling::default() };
        Self {
            node,
            ledger,
            snapshot: snapshot.map(Arc::new),
            habits,
            queue: Queue::default(),
            seen: seen.map(Arc::new),
            given: None,
            paused: None,
            confirm_by: None,
            told,
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
        [self.queue.wake_at(self.known()), self.pause_ends(), self.confirm_by()].into_iter().flatten().min()
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
            Input::Finished { report, last } => self.finished(*report, *last, now),
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
            Input::Taken(report) => self.taken(&report),
            Input::Started
            | Input::ProcessesEnded
            | Input::Tick
            | Input::Hello { .. }
            | Input::Desired(_)
            | Input::Snapshot(_)
            | Input::Pause(_)
            | Input::RunAsked { .. }
            | Input::LookedOnShelf { .. } => {}
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
                (!self.looks_back(now.instant)).then_some(Event::Tick)
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
                self.finished(*report, *last, now);
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
            Input::Taken(report) => {
                self.taken(&report);
                self.effects.push(Effect::Acknowledge);
                None
            }
            Input::LookedOnShelf { problem } => self.looked(problem),
            Input::Interrupted => None,
        }
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
