//! Messages of `muster serve` to systemd, for a unit with `Type=notify` and `WatchdogSec`. Elsewhere nothing is sent.

use std::time::Duration;

use muster_server::LatestRevision;
use sd_notify::NotifyState;

/// The server answers requests.
pub(crate) fn ready() {
    notify(NotifyState::Ready);
}

/// The server stops: it answers open requests.
pub(crate) fn stopping() {
    notify(NotifyState::Stopping);
}

/// Tells systemd, as often as it expects, that the store has answered. Runs forever.
///
/// An error is an answer too: a restart does not bring a lost etcd back. A read that does not return, because a lock or a disk
/// hangs, ends the messages, and systemd restarts the server.
pub(crate) async fn keep_watchdog(revision: &LatestRevision) {
    let Some(interval) = interval() else { return std::future::pending().await };
    loop {
        let _ = revision.read().await;
        notify(NotifyState::Watchdog);
        tokio::time::sleep(interval).await;
    }
}

/// Half of the time after which systemd ends the server, as sd_watchdog_enabled(3) recommends.
fn interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|interval| !interval.is_zero())
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "systemd cannot be notified");
    }
}
