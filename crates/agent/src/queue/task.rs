//! The task of the queue: it hears what happens, lets the [mind](super::mind) decide, and carries out what that says, in
//! order. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use muster_core::node::status::Activity;
use muster_core::txn::Generation;

use crate::backoff::{self, Backoff};
use crate::durable::{self, WriteError};
use crate::opening::Opening;
use crate::outbox::Outbox;
use crate::queue::effect::Effect;
use crate::queue::input::Input;
use crate::queue::mind::Mind;
use crate::queue::moment::Moment;
use crate::recovery;
use crate::release::Releases;
use crate::renewal::Renewal;
use crate::run::Order;
use crate::state_dir::Layout;

/// Between two tries to write when the disk does not take it. Space comes back when a person makes some: soon enough
/// for them to see it work, seldom enough to be no load.
const BLOCKED: Backoff = Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(5) };

/// What sync and run tell the queue.
#[derive(Debug)]
pub struct Message {
    pub input: Input,
    /// Who waits for it to be written down.
    pub written: Option<oneshot::Sender<()>>,
}

impl From<Input> for Message {
    fn from(input: Input) -> Self {
        Self { input, written: None }
    }
}

impl Message {
    /// One that somebody waits for: they are told when what was said is on disk, and not at all if the agent is to end.
    pub fn awaited(input: Input) -> (Self, oneshot::Receiver<()>) {
        let (written, ack) = oneshot::channel();
        (Self { input, written: Some(written) }, ack)
    }
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
    /// The generation of which it matters that a server takes a report.
    pub awaited: watch::Sender<Option<Generation>>,
}

/// The queue task.
#[derive(Debug)]
pub struct Keeper {
    pub mind: Mind,
    pub layout: Layout,
    pub outbox: Outbox,
    pub releases: Arc<Releases>,
    pub outlets: Outlets,
    pub cancel: CancellationToken,
}

/// The agent is to end, and something could not be written any more. It is done again after the next start.
#[derive(Debug)]
struct Ending;

impl Keeper {
    /// Works until the agent is to end and everybody who could say something has gone.
    pub async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        let Ok(()) = self.work(&mut messages).await else { return };
        // A run that ended while the agent was told to end is not to be lost; and one that was cut off is noted.
        while let Some(Message { input, written: _ }) = messages.recv().await {
            let effects = self.mind.take_at_end(input, Moment::read());
            if self.carry_out(effects, None).await.is_err() {
                return;
            }
        }
    }

    async fn work(&mut self, messages: &mut mpsc::Receiver<Message>) -> Result<(), Ending> {
        let mut message = Message::from(Input::Started);
        loop {
            self.take(message).await?;
            let wake = self.mind.wake_at();
            message = tokio::select! {
                () = self.cancel.cancelled() => return Ok(()),
                heard = messages.recv() => match heard {
                    Some(heard) => heard,
                    None => return Ok(()),
                },
                () = sleep_until(wake) => Input::Tick.into(),
            };
        }
    }

    /// The moment is that at which something is heard: the debounce begins then, and the time that it takes to write it down
    /// is part of it.
    async fn take(&mut self, message: Message) -> Result<(), Ending> {
        let Message { input, mut written } = message;
        let mut next = Some(input);
        while let Some(input) = next {
            let effects = self.mind.take(input, Moment::read());
            next = self.carry_out(effects, written.take()).await?;
        }
        Ok(())
    }

    /// Does one thing after the other. Gives the answer to one that asks for it.
    async fn carry_out(
        &mut self,
        effects: Vec<Effect>,
        mut written: Option<oneshot::Sender<()>>,
    ) -> Result<Option<Input>, Ending> {
        let mut answer = None;
        for effect in effects {
            match effect {
                Effect::EndProcesses(run) => {
                    recovery::end_processes(&run).await;
                    answer = Some(Input::ProcessesEnded);
                }
                Effect::SaveLedger(ledger) => self.until_written(|| ledger.save(&self.layout)).await?,
                Effect::SaveSnapshot(snapshot) => {
                    let path = self.layout.snapshot();
                    self.until_written(|| durable::replace_json(&path, &*snapshot)).await?;
                }
                Effect::KeepReport(report) => {
                    self.until_written(|| self.outbox.keep(&report)).await?;
                    self.outlets.settled.send_replace(false);
                }
                Effect::WakeSender => self.outlets.reports.notify_one(),
                Effect::Renewed => self.outlets.renewal.done(),
                Effect::Acknowledge => {
                    // Nobody waits for it any more only if the agent is to end.
                    if let Some(written) = written.take() {
                        let _ = written.send(());
                    }
                }
                Effect::LookOnShelf(desired) => {
                    let problem = self.releases.holds(&desired).await.err().map(|reason| reason.to_string());
                    answer = Some(Input::LookedOnShelf { problem });
                }
                Effect::Publish(telling) => {
                    self.outlets.awaited.send_replace(telling.awaited);
                    let (opening, activity) = (telling.opening, telling.activity);
                    self.outlets.opening.send_if_modified(|known| std::mem::replace(known, opening.clone()) != opening);
                    self.tell(activity);
                }
                Effect::Give(order) => self.outlets.orders.send(*order).await.map_err(|_| Ending)?,
            }
        }
        Ok(answer)
    }

    /// Who knows it already is not woken.
    fn tell(&self, activity: Activity) {
        self.outlets.activity.send_if_modified(|known| std::mem::replace(known, activity.clone()) != activity);
    }

    /// Writes, and tries again for as long as the disk does not take it. Nothing is done meanwhile: the agent never acts
    /// on what could not be written.
    async fn until_written(&self, write: impl Fn() -> Result<(), WriteError>) -> Result<(), Ending> {
        let mut attempt = 0;
        let before = self.outlets.activity.borrow().clone();
        while let Err(error) = write() {
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
            // What is different by now is told when its turn comes.
            self.tell(before);
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
