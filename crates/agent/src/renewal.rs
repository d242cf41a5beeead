//! How the agent comes to a new incarnation while it runs.
//!
//! A node whose state directory was set back, by a restored backup for example, numbers its reports as it did before,
//! and the server takes them for old ones. So the sender of reports asks for another incarnation; the next stream is
//! opened as if there was none, to which the server answers with the next one; and when that is written down the queue
//! says so, and reports go on. Nothing of this is written: after a restart the report that waits asks again.
//!
//! The old incarnation stays in the ledger meanwhile. With the server away, that is what the node goes on with.

use tokio::sync::watch;

/// Whether another incarnation is asked for.
#[derive(Clone, Debug)]
pub struct Renewal {
    asked: watch::Sender<bool>,
}

/// The end of the one who opens streams.
#[derive(Debug)]
pub struct Asked {
    asked: watch::Receiver<bool>,
}

impl Renewal {
    pub fn new() -> (Self, Asked) {
        let (asked, receiver) = watch::channel(false);
        (Self { asked }, Asked { asked: receiver })
    }

    pub fn ask(&self) {
        self.asked.send_replace(true);
    }

    pub fn is_asked(&self) -> bool {
        *self.asked.borrow()
    }

    /// The server has given another, and it is known to whoever sends.
    pub fn done(&self) {
        self.asked.send_replace(false);
    }
}

impl Asked {
    /// Whether a stream that is opened now asks for it.
    pub fn now(&mut self) -> bool {
        *self.asked.borrow_and_update()
    }

    /// Waits until it is asked for, again after the last look.
    pub async fn anew(&mut self) {
        loop {
            if self.asked.changed().await.is_err() {
                // Nobody is left to ask.
                std::future::pending::<()>().await;
            }
            if *self.asked.borrow() {
                return;
            }
        }
    }
}
