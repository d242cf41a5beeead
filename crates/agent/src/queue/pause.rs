//! How the queue keeps to a pause.

use tokio::time::Instant;

use crate::queue::mind::Mind;
use crate::queue::moment::Moment;
use crate::queue::server_time;
use crate::queue::waiting::PausedUntil;

impl Mind {
    /// Puts the end of the pause, a time of the server's, on the clock that the agent waits by.
    pub(super) fn measure_pause(&mut self, now: Moment) {
        self.paused = self.ledger.pause.as_ref().map(|paused| match paused.pause.until {
            None => PausedUntil::Resumed,
            Some(until) => {
                let here = now.here(self.node.boot.as_deref());
                let left = server_time::left(until, self.ledger.server_time.as_ref(), &here);
                PausedUntil::Time(now.instant + left)
            }
        });
    }

    /// A pause that has an end needs nobody to end it: the server may be away.
    pub(super) fn end_pause(&mut self, now: Instant) {
        match self.paused {
            Some(PausedUntil::Time(end)) if end <= now => {
                tracing::info!("the pause has come to its end");
                self.paused = None;
                self.ledger.pause = None;
                self.save();
            }
            Some(PausedUntil::Time(_) | PausedUntil::Resumed) | None => {}
        }
    }

    pub(super) fn pause_ends(&self) -> Option<Instant> {
        match self.paused {
            Some(PausedUntil::Time(end)) => Some(end),
            Some(PausedUntil::Resumed) | None => None,
        }
    }
}
