//! The clock of leases. It is passed in, so that tests and the simulator can control time.

use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

/// A monotonic clock. Times are counted from its start, because leases need no calendar.
pub trait LeaseClock: Debug + Send + Sync + 'static {
    fn now(&self) -> Duration;

    /// Resolves when the clock has reached this time.
    fn reached(&self, moment: Duration) -> BoxFuture<'_, ()>;
}

/// The monotonic clock of the machine.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl LeaseClock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn reached(&self, moment: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep_until(self.start + moment))
    }
}

/// A clock that only moves when it is advanced.
#[derive(Debug)]
pub struct ManualClock {
    now: watch::Sender<Duration>,
}

impl ManualClock {
    pub fn new() -> Self {
        Self { now: watch::Sender::new(Duration::ZERO) }
    }

    pub fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now += by);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl LeaseClock for ManualClock {
    fn now(&self) -> Duration {
        *self.now.borrow()
    }

    fn reached(&self, moment: Duration) -> BoxFuture<'_, ()> {
        let mut now = self.now.subscribe();
        Box::pin(async move {
            // The sender lives in `self`, which the future borrows, so this cannot fail.
            let _ = now.wait_for(|now| *now >= moment).await;
        })
    }
}
