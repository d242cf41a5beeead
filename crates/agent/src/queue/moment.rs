//! When something happens, by all the clocks that a decision may ask.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::backoff;
use crate::queue::server_time::{self, Here};

/// A moment. Decisions read no clock and draw no lots: whoever calls them says what time it is, and a simulator makes it up.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// By the clock that is waited by; it never jumps.
    pub instant: Instant,
    /// Since the machine's start, with the time that it slept.
    pub up: Duration,
    /// For people and reports. It may be wrong, and may be set.
    pub clock: Timestamp,
    /// Between 0 and 1, drawn anew for each moment: it spreads a fleet in time.
    pub chance: f64,
}

impl Moment {
    /// Now, by the clocks of this machine.
    pub fn read() -> Self {
        let (up, clock) = server_time::read();
        Self { instant: Instant::now(), up, clock, chance: backoff::chance() }
    }

    pub(super) fn here(&self, boot: Option<&str>) -> Here {
        Here { boot: boot.map(str::to_owned), up: self.up, clock: self.clock }
    }
}
