//! The task that owns what the agent knows: it writes down, decides, and gives orders.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use muster_core::names::Role;
use muster_core::pause::Paused;
use muster_core::report::{Cause, HookResult, Report};
use muster_core::snapshot::Snapshot;
use muster_core::standing::Activity;
use muster_wire::sync::DesiredState;

use crate::backoff::{self, Backoff};
use crate::clock;
use crate::durable::{self, WriteError};
use crate::ledger::{self, AppliedRelease, LastRun, Ledger, RunPhase, RunningRun, Work};
use crate::node::Node;
use crate::opening::Opening;
use crate::outbox::Outbox;
use crate::queue::causes::merge;
use crate::queue::decide::{Action, Event, Pauses, decide};
use crate::queue::hooks::{self, HookOn};
use crate::queue::server_time::ServerTime;
use crate::queue::waiting::{Known, PausedUntil, Queue};
use crate::renewal::Renewal;
use crate::run::Order;
use crate::run_id;

/// Between two tries to write when the disk does not take it. Space comes back when a person makes some: soon enough
/// for them to see it work, seldom enough to be no load.
const BLOCKED: Backoff = Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(5) };

/// What sync and run tell the queue.
#[derive(Debug)]
pub enum Message {
    Hello {
        incarnation: u64,
        role: Role,
        /// What time it is for the server.
        now: Timestamp,
        /// The stream was opened to ask for another incarnation.
        renewed: bool,
    },
    Desired(DesiredState),
    Snapshot(Box<Snapshot>),
    Pause(Option<Paused>),
    RunAsked {
        id: String,
        by: String,
        /// Only to say what it would do.
        noop: bool,
    },
    /// The applier ended well. The run goes on when this is written.
    Configured {
        report: Box<Report>,
        applied: Box<AppliedRelease>,
        written: oneshot::Sender<()>,
    },
    /// The hooks have ended well, and what they have started is meant to stay. The checks begin when this is written.
    HooksEnded {
        written: oneshot::Sender<()>,
    },
    /// A run is over.
    Finished {
        report: Box<Report>,
        last: Box<LastRun>,
    },
    /// A preview is over.
    Previewed {
        report: Box<Report>,
    },
    /// A validation on its own is over; none if it could not be made.
    Validated {
        report: Option<Box<Report>>,
    },
    /// Hooks are over, and the checks after them.
    HooksRun {
        report: Box<Report>,
        results: Vec<HookResult>,
    },
    /// The agent is to end, and so what went on was ended.
    Interrupted,
}

/// What the queue tells the others.
#[derive(Clone, Debug)]
pub struct Outlets {
    pub orders: mpsc::Sender<Order>,
    pub opening: watch::Sender<Opening>,
    pub activity: watch::Sender<Activity>,
    /// Wakes whoever sends reports.
    pub reports: Arc<Notify>,
    pub renewal: Renewal,
    /// Whether there is no report that could still be on its way; see [`crate::activity`].
    pub settled: watch::Sender<bool>,
}

/// The queue task.
#[derive(Debug)]
pub struct Keeper {
    pub node: Arc<Node>,
    pub ledger: Ledger,
    pub snapshot: Option<Arc<Snapshot>>,
    pub outbox: Outbox,
    pub outlets: Outlets,
    pub debounce: Duration,
    pub retry: Backoff,
    pub cancel: CancellationToken,
    pub(super) queue: Queue,
    /// What the last run saw, and what is seen by the one that goes on.
    pub(super) seen: Option<Arc<Snapshot>>,
    pub(super) given: Option<Arc<Snapshot>>,
    /// The pause of the ledger, by a clock that never jumps.
    pub(super) paused: Option<PausedUntil>,
}

/// The agent is to end, and something could not be written any more. It is done again after the next start.
#[derive(Debug)]
pub(super) struct Ending;

impl Keeper {
    #[expect(clippy::too_many_arguments, reason = "the parts of one task, put together in one place")]
    pub fn new(
        node: Arc<Node>,
        ledger: Ledger,
        snapshot: Option<Snapshot>,
        outbox: Outbox,
        outlets: Outlets,
        debounce: Duration,
        retry: Backoff,
        cancel: CancellationToken,
    ) -> Self {
        let snapshot = snapshot.map(Arc::new);
        let seen = ledger::seen_by(&node.layout, ledger.last.as_ref()).map(Arc::new);
        let queue = Queue::default();
        Self {
            node,
            ledger,
            snapshot,
            outbox,
            outlets,
            debounce,
            retry,
            cancel,
            queue,
            seen,
            given: None,
            paused: None,
        }
    }

    /// Works until the agent is to end and everybody who could say something has gone.
    pub async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        let Ok(()) = self.work(&mut messages).await else { return };
        // A run that ended while the agent was told to end is not to be lost; and one that was cut off is noted.
        while let Some(message) = messages.recv().await {
            if self.take_at_end(message).await.is_err() {
                return;
            }
        }
    }

    async fn work(&mut self, messages: &mut mpsc::Receiver<Message>) -> Result<(), Ending> {
        let interrupted = self.recover().await?;
        self.measure_pause();
        let (waiting, previews) = (self.ledger.waiting.clone(), self.ledger.previews.clone());
        self.happened(Event::Started { interrupted, waiting, previews }, Instant::now()).await?;
        loop {
            self.publish();
            let wake = self.wake_at();
            let message = tokio::select! {
                () = self.cancel.cancelled() => return Ok(()),
                message = messages.recv() => message,
                () = sleep_until(wake) => {
                    let now = Instant::now();
                    self.end_pause(now).await?;
                    self.happened(Event::Tick, now).await?;
                    continue;
                }
            };
            let Some(message) = message else { return Ok(()) };
            // The debounce begins when something is heard: the time that it takes to write it down is part of it.
            let heard = Instant::now();
            if let Some(event) = self.take(message).await? {
                self.happened(event, heard).await?;
            }
        }
    }

    /// Writes down what was said, and gives what has happened with it.
    async fn take(&mut self, message: Message) -> Result<Option<Event>, Ending> {
        Ok(match message {
            Message::Hello { incarnation, role, now, renewed } => {
                self.ledger.server_time = Some(ServerTime::heard(now, &self.here()));
                self.measure_pause();
                let is_news = self.ledger.incarnation != Some(incarnation) || self.ledger.role.as_ref() != Some(&role);
                if is_news {
                    tracing::info!(incarnation, %role, "the server says hello");
                    self.ledger.incarnation = Some(incarnation);
                    self.ledger.role = Some(role);
                }
                // The time is worth a write only for what ends by it.
                if is_news || self.ledger.pause.is_some() {
                    self.save().await?;
                }
                // The server is there: whatever waits for it can go.
                self.publish();
                if renewed {
                    self.outlets.renewal.done();
                }
                self.outlets.reports.notify_one();
                Some(Event::Greeted)
            }
            Message::Desired(desired) => Some(Event::Desired(desired)),
            Message::Snapshot(snapshot) => {
                let path = self.node.layout.snapshot();
                // A run that reads it starts with a write of the ledger, in the same directory: that makes it last.
                self.until_written(|_| durable::replace_json(&path, &snapshot)).await?;
                self.snapshot = Some(Arc::new(*snapshot));
                Some(Event::SnapshotStored)
            }
            Message::Pause(pause) => {
                if pause == self.ledger.pause {
                    return Ok(None);
                }
                match &pause {
                    Some(paused) => tracing::info!("{paused}"),
                    None => tracing::info!("the pause is over"),
                }
                self.ledger.pause = pause;
                self.measure_pause();
                self.save().await?;
                Some(Event::PauseStored)
            }
            Message::RunAsked { id, .. } if self.ledger.asked.as_ref() == Some(&id) => None,
            Message::RunAsked { id, by, noop } => {
                self.ledger.asked = Some(id.clone());
                if noop {
                    merge(&mut self.ledger.previews, Cause::Operator { id: id.clone(), by: by.clone() });
                    Some(Event::PreviewAsked { id, by })
                } else {
                    Some(Event::RunAsked { id, by })
                }
            }
            Message::Configured { report, applied, written } => {
                self.configured(*report, *applied).await?;
                // Nobody waits for it any more only if the agent is to end.
                let _ = written.send(());
                None
            }
            Message::HooksEnded { written } => {
                self.hooks_ended().await?;
                let _ = written.send(());
                None
            }
            Message::Finished { report, last } => {
                self.finished(*report, *last).await?;
                Some(Event::Finished)
            }
            Message::Previewed { report } => {
                self.previewed(*report).await?;
                Some(Event::Finished)
            }
            Message::Validated { report } => {
                self.validated(report.map(|report| *report)).await?;
                Some(Event::Finished)
            }
            Message::HooksRun { report, results } => {
                self.hooks_run(*report, &results).await?;
                Some(Event::Finished)
            }
            Message::Interrupted => None,
        })
    }

    /// The same when the agent is to end: nothing new begins.
    async fn take_at_end(&mut self, message: Message) -> Result<(), Ending> {
        match message {
            Message::Finished { report, last } => self.finished(*report, *last).await,
            Message::Previewed { report } => self.previewed(*report).await,
            Message::Validated { report } => self.validated(report.map(|report| *report)).await,
            Message::HooksRun { report, results } => self.hooks_run(*report, &results).await,
            Message::Interrupted => {
                if let Some(run) = &mut self.ledger.running {
                    run.ended = Some(clock::now());
                }
                self.save().await
            }
            // Nobody is told that it is written, so the run goes no further; but what the applier has started may stay.
            Message::Configured { report, applied, .. } => self.configured(*report, *applied).await,
            Message::HooksEnded { .. } => self.hooks_ended().await,
            Message::Hello { .. }
            | Message::Desired(_)
            | Message::Snapshot(_)
            | Message::Pause(_)
            | Message::RunAsked { .. } => Ok(()),
        }
    }

    /// Decides, and carries out what was decided.
    async fn happened(&mut self, event: Event, now: Instant) -> Result<(), Ending> {
        let asked = matches!(event, Event::RunAsked { .. } | Event::PreviewAsked { .. });
        let pauses = Pauses { debounce: self.debounce, retry: self.retry, chance: backoff::chance() };
        let (queue, action) = decide(self.queue.clone(), self.known(), event, now, pauses);
        self.queue = queue;
        let waits_longer = self.paused.is_some() && self.ledger.waiting != self.queue.waiting;
        self.ledger.waiting.clone_from(&self.queue.waiting);
        if asked || waits_longer {
            self.save().await?;
        }
        match action {
            Action::Wait => Ok(()),
            Action::Adopt(desired) => {
                tracing::info!(version = %desired.version, generation = %desired.generation, "the node should run");
                self.ledger.desired = Some(desired);
                self.save().await
            }
            Action::RefuseOlder => {
                tracing::warn!("the server says an older desired state than it said before; it is refused");
                Ok(())
            }
            Action::IgnoreKnown => Ok(()),
            Action::Start { causes, failures } => {
                let desired = self.ledger.desired.clone();
                self.start(Work::Run, desired, causes, failures, Vec::new()).await
            }
            Action::Preview { causes } => {
                let desired = self.ledger.desired.clone();
                self.start(Work::Preview, desired, causes, 0, Vec::new()).await
            }
            Action::RunHooks { hooks, causes } => {
                let failures = hooks::failures(&hooks, &self.ledger.hooks);
                self.start(Work::Hooks, self.applied(), causes, failures, hooks).await
            }
            Action::Validate => {
                let failures = self.ledger.failures();
                self.start(Work::Validation, self.applied(), vec![Cause::Schedule], failures, Vec::new()).await
            }
        }
    }

    fn applied(&self) -> Option<DesiredState> {
        self.ledger.applied.as_ref().map(|applied| applied.desired.clone())
    }

    async fn start(
        &mut self,
        work: Work,
        desired: Option<DesiredState>,
        causes: Vec<Cause>,
        failures: u32,
        hooks: Vec<HookOn>,
    ) -> Result<(), Ending> {
        let (Some(desired), Some(role), Some(snapshot)) = (desired, self.ledger.role.clone(), self.snapshot.clone())
        else {
            // Nothing is decided to start without these; if it were, the slot must not stay taken for ever.
            self.queue.running = None;
            return Ok(());
        };
        let started = clock::now();
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
        self.save().await?;
        self.publish();
        self.given = Some(Arc::clone(&snapshot));
        let watched = self.ledger.last.as_ref().map(|last| last.lookups.keys().cloned().collect()).unwrap_or_default();
        self.outlets.orders.send(Order { run, desired, role, snapshot, watched }).await.map_err(|_| Ending)
    }

    pub(super) async fn save(&self) -> Result<(), Ending> {
        self.until_written(|keeper| keeper.ledger.save(&keeper.node.layout)).await
    }

    /// Writes, and tries again for as long as the disk does not take it. Nothing is done meanwhile: the agent never acts
    /// on what could not be written.
    pub(super) async fn until_written(&self, write: impl Fn(&Self) -> Result<(), WriteError>) -> Result<(), Ending> {
        let mut attempt = 0;
        while let Err(error) = write(self) {
            attempt += 1;
            let problem = error.in_one_line();
            if attempt == 1 {
                tracing::error!(problem, "blocked: the agent goes on when its state can be written again");
            }
            self.outlets.activity.send_replace(Activity::Blocked { problem });
            tokio::select! {
                () = self.cancel.cancelled() => return Err(Ending),
                () = tokio::time::sleep(BLOCKED.pause(attempt, backoff::chance())) => {}
            }
        }
        if attempt > 0 {
            tracing::info!("the agent's state can be written again");
            self.publish();
        }
        Ok(())
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

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
