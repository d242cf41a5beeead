//! Sends the agent's current activity to the server. Only the latest value counts; one that did not arrive is sent again.
//! It is also the answer to a ping, by which the server knows that the agent is connected. The activity is sent on the sync
//! stream if that has a direction to the server, and in requests otherwise.
//!
//! The end of a run is sent only after its report has arrived. Otherwise the server would for a moment show an idle node
//! that has not started the run.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify, watch};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use muster_core::node::status::Activity;
use muster_wire::client::{ClientError, SyncReplies};

use crate::backoff::{self, RetryBackoff};
use crate::config::AgentNode;
use crate::sync::error_chain;
use crate::sync::servers::ServerClients;

/// Long pauses are fine while the server is unreachable: the next stream opens with the current activity.
const RESEND: RetryBackoff = RetryBackoff { first: Duration::from_millis(200), cap: Duration::from_secs(30) };
/// The server keeps the activity in memory and answers at once. A newer value must not wait long behind a lost one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The open stream's direction to the server. None without a stream, or if the stream has no such direction.
pub type StreamReplies = Arc<Mutex<Option<SyncReplies>>>;

/// Task that sends the activity.
#[derive(Debug)]
pub struct ActivitySender {
    pub node: Arc<AgentNode>,
    pub servers: ServerClients,
    pub replies: StreamReplies,
    pub activity: watch::Receiver<Activity>,
    /// True while no report is on its way.
    pub settled: watch::Receiver<bool>,
    /// The server requests the activity.
    pub requested: Arc<Notify>,
    pub cancel: CancellationToken,
}

impl ActivitySender {
    pub async fn run(self) {
        let cancel = self.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.send_all() => {}
        }
    }

    /// Ends when the queue has ended.
    async fn send_all(mut self) {
        // The last value sent, and whether it arrived. A stream opens with the initial value.
        let mut sent = self.activity.borrow_and_update().clone();
        let mut arrived = true;
        let mut attempt = 0;
        let mut resend_at = None;
        loop {
            let requested = tokio::select! {
                changed = self.activity.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    resend_at = None;
                    false
                }
                changed = self.settled.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    false
                }
                () = self.requested.notified() => true,
                () = sleep_until(resend_at) => {
                    resend_at = None;
                    false
                }
            };
            let latest = self.activity.borrow_and_update().clone();
            let may_send = is_busy(&latest) || *self.settled.borrow();
            let unsent = resend_at.is_none() && (!arrived || latest != sent);
            let next = match (may_send, requested) {
                (true, true) => latest,
                (true, false) if unsent => latest,
                // A report is on its way. The old value shows that the agent is connected.
                (false, true) => sent,
                (true | false, false) => continue,
            };
            match self.publish(&next).await {
                Ok(()) => (arrived, attempt, resend_at) = (true, 0, None),
                Err(error) => {
                    tracing::debug!(error, "cannot send the activity");
                    attempt += 1;
                    arrived = false;
                    resend_at = Some(Instant::now() + RESEND.pause(attempt, backoff::chance()));
                }
            }
            sent = next;
        }
    }

    async fn publish(&self, activity: &Activity) -> Result<(), String> {
        let mut replies = self.replies.lock().await;
        let sent = match replies.as_mut() {
            Some(stream) => timeout(ANSWER_TIMEOUT, stream.send(activity)).await,
            None => {
                drop(replies);
                let client = self.servers.current();
                let request = client.activity(&self.node.env, &self.node.name, activity);
                return answer(timeout(ANSWER_TIMEOUT, request).await);
            }
        };
        let sent = answer(sent);
        if sent.is_err() {
            // A part of the frame may have been sent.
            *replies = None;
        }
        sent
    }
}

fn answer(answered: Result<Result<(), ClientError>, Elapsed>) -> Result<(), String> {
    match answered {
        Ok(answer) => answer.map_err(|error| error_chain(&error)),
        Err(_) => Err(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())),
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// True if the agent works, or is blocked from working.
pub(crate) fn is_busy(activity: &Activity) -> bool {
    match activity {
        Activity::Applying { .. } | Activity::Validating { .. } | Activity::Blocked { .. } => true,
        Activity::Idle | Activity::Retrying { .. } => false,
    }
}
