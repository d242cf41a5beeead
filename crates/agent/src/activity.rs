//! Tells the server what the agent does right now. Only the newest word counts; one that did not arrive is told again.
//! The server also asks now and then, with a ping, to learn that somebody is there.
//!
//! That a run is over is told only when its report has arrived: else the server would show, for a moment, a node that
//! does nothing and has not begun.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use muster_core::node::status::Activity;

use crate::backoff::{self, Backoff};
use crate::node::Node;
use crate::servers::Servers;
use crate::sync::chain;

/// With the server away for long there is no hurry: the next stream opens with the newest word.
const TELL_AGAIN: Backoff = Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(30) };
/// The server keeps the word in memory and answers at once. A newer one must not wait long behind one that is lost.
const ANSWER: Duration = Duration::from_secs(5);

/// What the task works with.
#[derive(Debug)]
pub struct Teller {
    pub node: Arc<Node>,
    pub servers: Servers,
    pub activity: watch::Receiver<Activity>,
    /// Whether there is no report that could still be on its way.
    pub settled: watch::Receiver<bool>,
    /// The server wants to hear it.
    pub asked: Arc<Notify>,
    pub cancel: CancellationToken,
}

impl Teller {
    pub async fn run(self) {
        let cancel = self.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.work() => {}
        }
    }

    /// Ends when nobody is left who could do something.
    async fn work(mut self) {
        // What the server was told last, and whether it has heard it. A stream opens with what there is at the start.
        let mut told = self.activity.borrow_and_update().clone();
        let mut heard = true;
        let mut attempt = 0;
        let mut again = None;
        loop {
            let asked = tokio::select! {
                changed = self.activity.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    again = None;
                    false
                }
                changed = self.settled.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    false
                }
                () = self.asked.notified() => true,
                () = sleep_until(again) => {
                    again = None;
                    false
                }
            };
            let newest = self.activity.borrow_and_update().clone();
            let may_be_told = is_busy(&newest) || *self.settled.borrow();
            let untold = again.is_none() && (!heard || newest != told);
            let word = match (may_be_told, asked) {
                (true, true) => newest,
                (true, false) if untold => newest,
                // A report is on its way. The server hears that the agent is there, and nothing new.
                (false, true) => told,
                (true | false, false) => continue,
            };
            match self.tell(&word).await {
                Ok(()) => (heard, attempt, again) = (true, 0, None),
                Err(why) => {
                    tracing::debug!(why, "the server does not know what the agent does");
                    attempt += 1;
                    heard = false;
                    again = Some(Instant::now() + TELL_AGAIN.pause(attempt, backoff::chance()));
                }
            }
            told = word;
        }
    }

    async fn tell(&self, word: &Activity) -> Result<(), String> {
        let client = self.servers.current();
        match timeout(ANSWER, client.activity(&self.node.env, &self.node.name, word)).await {
            Ok(answer) => answer.map_err(|error| chain(&error)),
            Err(_) => Err(format!("no answer within {} s", ANSWER.as_secs())),
        }
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Whether the agent does, or is kept from doing, something.
pub(crate) fn is_busy(activity: &Activity) -> bool {
    match activity {
        Activity::Applying { .. } | Activity::Validating { .. } | Activity::Blocked { .. } => true,
        Activity::Idle | Activity::Retrying { .. } => false,
    }
}
