//! Waiting for the last of many, as cheaply as it can be done: whoever is there counts down once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// How long all of them may take.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub(crate) struct Countdown(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    what: &'static str,
    missing: AtomicUsize,
    last: watch::Sender<Option<Instant>>,
}

impl Countdown {
    /// `what` they are when they have counted, for an error message.
    pub(crate) fn from(count: usize, what: &'static str) -> Self {
        Self(Arc::new(Inner { what, missing: AtomicUsize::new(count), last: watch::Sender::new(None) }))
    }

    /// One more is there. The last one notes the time.
    pub(crate) fn count(&self) {
        if self.0.missing.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.last.send_replace(Some(Instant::now()));
        }
    }

    /// When the last one was there.
    pub(crate) async fn last(&self) -> anyhow::Result<Instant> {
        let mut last = self.0.last.subscribe();
        if let Ok(Ok(at)) = tokio::time::timeout(PATIENCE, last.wait_for(Option::is_some)).await
            && let Some(at) = *at
        {
            return Ok(at);
        }
        let missing = self.0.missing.load(Ordering::Relaxed);
        anyhow::bail!("after {PATIENCE:?}, {missing} are still not {}", self.0.what)
    }
}
