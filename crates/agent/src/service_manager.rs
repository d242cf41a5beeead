//! Messages to systemd, for a unit with `Type=notify` and `WatchdogSec`. Elsewhere nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Instant;

/// Tells systemd that the agent has started, and then that its main loop is alive.
#[derive(Debug)]
pub struct ServiceManager {
    /// Interval of the messages; none if systemd does not expect them.
    interval: Option<Duration>,
    next: Instant,
}

impl ServiceManager {
    pub fn from_process() -> Self {
        // Half of the time after which systemd ends the agent, as sd_watchdog_enabled(3) recommends.
        let interval = sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|interval| !interval.is_zero());
        Self { interval, next: Instant::now() }
    }

    /// The agent has read its state, and works with or without a server.
    pub fn ready(&mut self) {
        notify(NotifyState::Ready);
        self.alive();
    }

    /// Sends a message if one is due. Only the main loop calls this.
    pub fn alive(&mut self) {
        if let Some(interval) = self.interval
            && self.next <= Instant::now()
        {
            notify(NotifyState::Watchdog);
            self.next = Instant::now() + interval;
        }
    }

    /// Time of the next message.
    pub fn next(&self) -> Option<Instant> {
        self.interval.map(|_| self.next)
    }
}

/// The agent stops. A run in progress continues.
pub fn stopping() {
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "systemd cannot be notified");
    }
}
