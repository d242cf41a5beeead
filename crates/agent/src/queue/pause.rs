//! How the queue keeps to a pause.

use tokio::time::Instant;

use crate::queue::server_time::{self, Here};
use crate::queue::task::{Ending, Keeper};
use crate::queue::waiting::PausedUntil;

impl Keeper {
    pub(super) fn here(&self) -> Here {
        Here::read(self.node.boot.as_deref())
    }

    /// Puts the end of the pause, a time of the server's, on the clock that the agent waits by.
    pub(super) fn measure_pause(&mut self) {
        self.paused = self.ledger.pause.as_ref().map(|paused| match paused.pause.until {
            None => PausedUntil::Resumed,
            Some(until) => {
                let left = server_time::left(until, self.ledger.server_time.as_ref(), &self.here());
                PausedUntil::Time(Instant::now() + left)
            }
        });
    }

    /// A pause that has an end needs nobody to end it: the server may be away.
    pub(super) async fn end_pause(&mut self, now: Instant) -> Result<(), Ending> {
        match self.paused {
            Some(PausedUntil::Time(end)) if end <= now => {
                tracing::info!("the pause has come to its end");
                self.paused = None;
                self.ledger.pause = None;
                self.save().await
            }
            Some(PausedUntil::Time(_) | PausedUntil::Resumed) | None => Ok(()),
        }
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let pause = match self.paused {
            Some(PausedUntil::Time(end)) => Some(end),
            Some(PausedUntil::Resumed) | None => None,
        };
        [self.queue.wake_at(self.known()), pause].into_iter().flatten().min()
    }
}
