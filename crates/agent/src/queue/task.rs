//! The task that owns what the agent knows: it writes down, decides, and gives orders.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use muster_core::names::{Role, RunId};
use muster_core::report::{Cause, Report};
use muster_core::snapshot::Snapshot;
use muster_core::standing::Activity;
use muster_wire::sync::DesiredState;

use crate::backoff::{self, Backoff};
use crate::clock;
use crate::durable::{self, WriteError};
use crate::ledger::{LastRun, Ledger, LocalVersion, RunEnd, RunPhase, RunningRun};
use crate::node::Node;
use crate::opening::Opening;
use crate::outbox::Outbox;
use crate::queue::decide::{Action, Event, Known, Pauses, Queue, decide};
use crate::recovery;
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
        /// The stream was opened to ask for another incarnation.
        renewed: bool,
    },
    Desired(DesiredState),
    Snapshot(Box<Snapshot>),
    RunAsked {
        id: String,
        by: String,
    },
    /// The applier ended well. The run goes on when this is written.
    Configured {
        report: Box<Report>,
        written: oneshot::Sender<()>,
    },
    Finished {
        report: Box<Report>,
        last: Box<LastRun>,
    },
    /// The agent is to end, and so the run was.
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
    queue: Queue,
    /// The last request for a run that was taken; the server may say it again after a reconnection.
    asked: Option<String>,
}

/// The agent is to end, and something could not be written any more. It is done again after the next start.
#[derive(Debug)]
struct Ending;

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
        let queue = Queue::default();
        Self { node, ledger, snapshot, outbox, outlets, debounce, retry, cancel, queue, asked: None }
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
        self.happened(Event::Started { interrupted }, Instant::now()).await?;
        loop {
            self.publish();
            let wake = self.queue.wake_at(self.known());
            let message = tokio::select! {
                () = self.cancel.cancelled() => return Ok(()),
                message = messages.recv() => message,
                () = sleep_until(wake) => {
                    self.happened(Event::Tick, Instant::now()).await?;
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
            Message::Hello { incarnation, role, renewed } => {
                if self.ledger.incarnation != Some(incarnation) || self.ledger.role.as_ref() != Some(&role) {
                    tracing::info!(incarnation, %role, "the server says hello");
                    self.ledger.incarnation = Some(incarnation);
                    self.ledger.role = Some(role);
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
            Message::RunAsked { id, by } => {
                let again = self.asked.as_ref() == Some(&id);
                self.asked = Some(id.clone());
                if again { None } else { Some(Event::RunAsked { id, by }) }
            }
            Message::Configured { report, written } => {
                self.configured(&report).await?;
                // Nobody waits for it any more only if the agent is to end.
                let _ = written.send(());
                None
            }
            Message::Finished { report, last } => {
                self.finished(&report, *last).await?;
                Some(Event::Finished)
            }
            Message::Interrupted => None,
        })
    }

    /// The same when the agent is to end: nothing new begins.
    async fn take_at_end(&mut self, message: Message) -> Result<(), Ending> {
        match message {
            Message::Finished { report, last } => self.finished(&report, *last).await,
            Message::Interrupted => {
                if let Some(run) = &mut self.ledger.running {
                    run.ended = Some(clock::now());
                }
                self.save().await
            }
            // Nobody is told that it is written, so the run goes no further; but what the applier has started may stay.
            Message::Configured { report, .. } => self.configured(&report).await,
            Message::Hello { .. } | Message::Desired(_) | Message::Snapshot(_) | Message::RunAsked { .. } => Ok(()),
        }
    }

    /// Decides, and carries out what was decided.
    async fn happened(&mut self, event: Event, now: Instant) -> Result<(), Ending> {
        let pauses = Pauses { debounce: self.debounce, retry: self.retry, chance: backoff::chance() };
        let (queue, action) = decide(self.queue.clone(), self.known(), event, now, pauses);
        self.queue = queue;
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
            Action::Start { causes, failures } => self.start(causes, failures).await,
        }
    }

    async fn start(&mut self, causes: Vec<Cause>, failures: u32) -> Result<(), Ending> {
        let (Some(desired), Some(role), Some(snapshot)) =
            (self.ledger.desired.clone(), self.ledger.role.clone(), self.snapshot.clone())
        else {
            return Ok(());
        };
        let started = clock::now();
        let seq = self.ledger.next_seq;
        let run = RunningRun {
            run: run_id::make(&self.node, seq, started),
            seq,
            phase: RunPhase::Applying,
            version: desired.version,
            digest: desired.digest,
            generation: desired.generation,
            causes,
            failures,
            started,
            ended: None,
        };
        self.ledger.running = Some(run.clone());
        // One for each of its reports.
        self.ledger.next_seq = seq + 2;
        self.save().await?;
        self.publish();
        self.outlets.orders.send(Order { run, role, snapshot }).await.map_err(|_| Ending)
    }

    async fn configured(&mut self, report: &Report) -> Result<(), Ending> {
        tracing::info!(run = %report.run, result = report.outcome.word(), "configured");
        self.report(report).await?;
        if let Some(run) = &mut self.ledger.running {
            run.phase = RunPhase::Validating;
        }
        self.save().await?;
        self.publish();
        Ok(())
    }

    async fn finished(&mut self, report: &Report, last: LastRun) -> Result<(), Ending> {
        let reason = report.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        let (phase, result) = (report.outcome.phase(), report.outcome.word());
        match last.end {
            RunEnd::Validated | RunEnd::Pending => tracing::info!(run = %report.run, result, reason, "{phase}"),
            RunEnd::Failed => tracing::warn!(run = %report.run, result, reason, "{phase}"),
        }
        self.report(report).await?;
        if last.end == RunEnd::Validated {
            self.ledger.local = Some(LocalVersion { version: report.version.clone(), digest: report.digest.clone() });
        }
        self.ledger.last = Some(last);
        self.ledger.running = None;
        self.save().await
    }

    /// A run that is in the ledger at the start was cut off: what is left of it is ended, and it is reported.
    async fn recover(&mut self) -> Result<Option<RunId>, Ending> {
        let Some(cut_off) = self.ledger.running.clone() else { return Ok(None) };
        tracing::warn!(run = %cut_off.run, version = %cut_off.version, "a run was interrupted; ending what is left of it");
        recovery::end_processes(&cut_off).await;
        let (report, last) = recovery::interrupted(&self.node, &cut_off, self.ledger.last.as_ref(), clock::now());
        self.finished(&report, last).await?;
        Ok(Some(cut_off.run))
    }

    async fn report(&mut self, report: &Report) -> Result<(), Ending> {
        let outbox = self.outbox.clone();
        self.until_written(|_| outbox.keep(report)).await?;
        self.outlets.settled.send_replace(false);
        self.outlets.reports.notify_one();
        Ok(())
    }

    async fn save(&self) -> Result<(), Ending> {
        self.until_written(|keeper| keeper.ledger.save(&keeper.node.layout)).await
    }

    /// Writes, and tries again for as long as the disk does not take it. Nothing is done meanwhile: the agent never acts
    /// on what could not be written.
    async fn until_written(&self, write: impl Fn(&Self) -> Result<(), WriteError>) -> Result<(), Ending> {
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

    fn known(&self) -> Known<'_> {
        Known {
            greeted: self.ledger.incarnation.is_some(),
            role: self.ledger.role.as_ref(),
            desired: self.ledger.desired.as_ref(),
            snapshot: self.snapshot.as_deref(),
            last: self.ledger.last.as_ref(),
            failures: self.ledger.failures(),
        }
    }

    /// Tells the others what there is to know now; who knows it already is not woken.
    fn publish(&self) {
        let opening = Opening::new(&self.ledger, self.snapshot.is_some());
        self.outlets.opening.send_if_modified(|known| std::mem::replace(known, opening.clone()) != opening);
        let activity = self.activity();
        self.outlets.activity.send_if_modified(|known| {
            // The same retry, computed again from two clocks, may differ by a little.
            if let (Activity::Retrying { attempt: a, .. }, Activity::Retrying { attempt: b, .. }) = (&*known, &activity)
                && a == b
            {
                return false;
            }
            std::mem::replace(known, activity.clone()) != activity
        });
    }

    fn activity(&self) -> Activity {
        if let Some(run) = &self.ledger.running {
            let (run, version, since) = (run.run.clone(), run.version.clone(), run.started);
            return match self.ledger.running.as_ref().map(|run| run.phase) {
                Some(RunPhase::Validating) => Activity::Validating { run, version, since },
                Some(RunPhase::Applying) | None => Activity::Applying { run, version, since },
            };
        }
        match self.queue.retry {
            None => Activity::Idle,
            Some(retry) => {
                let left = retry.due.saturating_duration_since(Instant::now());
                let at = clock::now().saturating_add(jiff::SignedDuration::try_from(left).unwrap_or_default());
                Activity::Retrying { attempt: retry.attempt, at: at.unwrap_or_else(|_| clock::now()) }
            }
        }
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
