//! Task of the queue: receives messages, passes them to the [state machine](super::state_machine), and carries out its
//! effects in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use muster_core::node::status::Activity;
use muster_core::txn::Generation;

use crate::backoff::{self, RetryBackoff};
use crate::clock::EventTime;
use crate::queue::io::{Effect, Input};
use crate::queue::state_machine::RunQueue;
use crate::release::NodeReleases;
use crate::run::WorkOrder;
use crate::service_manager::ServiceManager;
use crate::state::directory::Layout;
use crate::state::durable::{self, StateWriteError};
use crate::state::outbox::Outbox;
use crate::sync::handshake::{IncarnationRenewal, SyncState};

/// Backoff of failed writes. An operator who frees disk space soon sees the effect, and the retries are no load.
const WRITE_RETRY: RetryBackoff = RetryBackoff { first: Duration::from_millis(100), cap: Duration::from_secs(5) };

/// An input for the queue from another task.
#[derive(Debug)]
pub struct QueueMessage {
    pub input: Input,
    /// Receives the acknowledgement, if the sender waits for one.
    pub ack: Option<oneshot::Sender<()>>,
}

impl From<Input> for QueueMessage {
    fn from(input: Input) -> Self {
        Self { input, ack: None }
    }
}

impl QueueMessage {
    /// A message whose sender waits until its content is on disk. There is no acknowledgement if the agent shuts down.
    pub fn with_ack(input: Input) -> (Self, oneshot::Receiver<()>) {
        let (ack, acknowledged) = oneshot::channel();
        (Self { input, ack: Some(ack) }, acknowledged)
    }
}

/// Channels from the queue to the other tasks.
#[derive(Clone, Debug)]
pub struct Channels {
    pub orders: mpsc::Sender<WorkOrder>,
    pub sync_state: watch::Sender<SyncState>,
    pub activity: watch::Sender<Activity>,
    /// Wakes the report sender.
    pub reports: Arc<Notify>,
    pub renewal: IncarnationRenewal,
    /// True while no report is on its way; see [`crate::report::activity`].
    pub settled: watch::Sender<bool>,
    /// See [`QueueStatus::awaited`](crate::queue::io::QueueStatus).
    pub awaited: watch::Sender<Option<Generation>>,
    /// See [`QueueStatus::validations`](crate::queue::io::QueueStatus).
    pub validations: watch::Sender<u64>,
}

#[derive(Debug)]
pub struct QueueTask {
    pub queue: RunQueue,
    pub layout: Layout,
    pub outbox: Outbox,
    pub releases: Arc<NodeReleases>,
    pub channels: Channels,
    /// Notified by this task, because the agent does nothing without it.
    pub service_manager: ServiceManager,
    pub cancel: CancellationToken,
}

/// The agent shuts down before an effect was carried out. The effect is repeated after the next start.
#[derive(Debug)]
struct ShuttingDown;

impl QueueTask {
    /// Runs until the agent shuts down and all senders of messages are gone.
    pub async fn run(mut self, mut messages: mpsc::Receiver<QueueMessage>) {
        let Ok(()) = self.serve(&mut messages).await else { return };
        // Store the result of work that ended during the shutdown.
        while let Some(QueueMessage { input, ack: _ }) = messages.recv().await {
            let effects = self.queue.handle_at_shutdown(input, EventTime::read());
            if self.carry_out(effects, None).await.is_err() {
                return;
            }
        }
    }

    async fn serve(&mut self, messages: &mut mpsc::Receiver<QueueMessage>) -> Result<(), ShuttingDown> {
        // Before the first write, which may wait for space on the disk.
        self.service_manager.ready();
        self.handle(QueueMessage::from(Input::Started)).await?;
        loop {
            let wake = self.queue.wake_at();
            let message = tokio::select! {
                () = self.cancel.cancelled() => return Ok(()),
                received = messages.recv() => match received {
                    Some(message) => message,
                    None => return Ok(()),
                },
                () = sleep_until(wake) => Input::Tick.into(),
                () = sleep_until(self.service_manager.next()) => {
                    self.service_manager.alive();
                    continue;
                }
            };
            self.handle(message).await?;
        }
    }

    /// Handles a message. Its time is read before the writes, which therefore count towards the debounce.
    async fn handle(&mut self, message: QueueMessage) -> Result<(), ShuttingDown> {
        let QueueMessage { input, mut ack } = message;
        let mut next = Some(input);
        while let Some(input) = next {
            let effects = self.queue.handle(input, EventTime::read());
            next = self.carry_out(effects, ack.take()).await?;
        }
        Ok(())
    }

    /// Carries out effects in order. Returns the answer of an effect that has one.
    async fn carry_out(
        &mut self,
        effects: Vec<Effect>,
        mut ack: Option<oneshot::Sender<()>>,
    ) -> Result<Option<Input>, ShuttingDown> {
        let mut answer = None;
        for effect in effects {
            match effect {
                Effect::SaveLedger(ledger) => {
                    let layout = self.layout.clone();
                    self.write_with_retry(|| ledger.save(&layout)).await?;
                }
                Effect::SaveSnapshot(snapshot) => {
                    let path = self.layout.snapshot();
                    self.write_with_retry(|| durable::replace_json(&path, &*snapshot)).await?;
                }
                Effect::StoreReport(report) => {
                    let outbox = self.outbox.clone();
                    self.write_with_retry(|| outbox.store(&report)).await?;
                    self.channels.settled.send_replace(false);
                }
                Effect::WakeSender => self.channels.reports.notify_one(),
                Effect::IncarnationRenewed => self.channels.renewal.complete(),
                Effect::Acknowledge => {
                    // The receiver is gone only if the agent shuts down.
                    if let Some(ack) = ack.take() {
                        let _ = ack.send(());
                    }
                }
                Effect::CheckRelease(desired) => {
                    let problem = self.releases.check_local(&desired).await.err().map(|reason| reason.to_string());
                    answer = Some(Input::ReleaseChecked { problem });
                }
                Effect::Publish(status) => {
                    self.channels.awaited.send_replace(status.awaited);
                    self.channels.validations.send_replace(status.validations);
                    let (sync_state, activity) = (status.sync_state, status.activity);
                    self.channels
                        .sync_state
                        .send_if_modified(|known| std::mem::replace(known, sync_state.clone()) != sync_state);
                    self.publish_activity(activity);
                }
                Effect::StartWork(order) | Effect::AdoptWork(order) => {
                    self.channels.orders.send(*order).await.map_err(|_| ShuttingDown)?
                }
            }
        }
        Ok(answer)
    }

    /// Publishes the activity. Receivers are woken only if it has changed.
    fn publish_activity(&self, activity: Activity) {
        self.channels.activity.send_if_modified(|known| std::mem::replace(known, activity.clone()) != activity);
    }

    /// Writes, and retries until the disk accepts it. The queue does nothing meanwhile: the agent never acts on state that
    /// is not stored.
    async fn write_with_retry(&mut self, write: impl Fn() -> Result<(), StateWriteError>) -> Result<(), ShuttingDown> {
        let mut attempt = 0;
        let before = self.channels.activity.borrow().clone();
        while let Err(error) = write() {
            attempt += 1;
            let problem = error.in_one_line();
            if attempt == 1 {
                tracing::error!(problem, "blocked: cannot write the agent's state; retrying until it succeeds");
            }
            self.channels.activity.send_replace(Activity::Blocked { problem });
            // A restart would not free any space.
            self.service_manager.alive();
            tokio::select! {
                () = self.cancel.cancelled() => return Err(ShuttingDown),
                () = tokio::time::sleep(WRITE_RETRY.pause(attempt, backoff::chance())) => {}
            }
        }
        if attempt > 0 {
            tracing::info!("the agent's state can be written again");
            // A newer activity follows with the next effect.
            self.publish_activity(before);
        }
        Ok(())
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
