//! Limits the sync streams that are being opened at the same time.
//!
//! Opening a stream costs a comparison and usually a whole snapshot, which stays in memory until the agent has read it. When a
//! fleet reconnects after an outage, all streams are requested at once. A few are admitted, some wait, and the rest get
//! `Retry-After`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Streams that are opened at once. Each takes one or two milliseconds: this many keep all cores busy, and their snapshots
/// fit into memory.
const MAX_OPENING: usize = 64;
/// Requests that wait for admission, each of a few kilobytes.
const MAX_WAITING: usize = 1024;
/// Time that a request waits. Well below the 10 s after which an agent tries another server.
const WAIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which a permit is given to the next agent, though the first events of the stream were not read.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// `Retry-After` of refused agents, in seconds. Agents add up to the same time again at random.
const RETRY_AFTER: u16 = 2;

/// Admission of sync streams.
#[derive(Debug)]
pub struct Admission {
    free: Arc<Semaphore>,
    waiting: Semaphore,
    /// The permits in use, in the order of admission. They are here and not with the streams, because a stream whose agent
    /// reads nothing is never polled.
    permits: Permits,
    admitted: AtomicU64,
    /// The highest number of streams that were being opened at once.
    peak: AtomicUsize,
    refused: AtomicU64,
    limit: usize,
}

type Permits = Arc<Mutex<BTreeMap<u64, (Instant, OwnedSemaphorePermit)>>>;

/// Permit to open a stream, until it is dropped or [`PERMIT_TIMEOUT`] is over.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    number: u64,
    permits: Permits,
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        lock(&self.permits).remove(&self.number);
    }
}

/// The server is busy: the agent tries again after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryAfter {
    pub(crate) seconds: u16,
}

impl Default for Admission {
    fn default() -> Self {
        Self::new(MAX_OPENING, MAX_WAITING)
    }
}

impl Admission {
    fn new(limit: usize, waiting: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(limit)),
            waiting: Semaphore::new(waiting),
            permits: Arc::default(),
            admitted: AtomicU64::new(0),
            peak: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            limit,
        }
    }

    /// Admits a stream, at once or when a permit is free.
    pub(crate) async fn enter(&self) -> Result<AdmissionPermit, RetryAfter> {
        match self.acquire().await {
            Some(permit) => Ok(self.admit(permit)),
            None => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(RetryAfter { seconds: RETRY_AFTER })
            }
        }
    }

    async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        lock(&self.permits).retain(|_, (since, _)| since.elapsed() < PERMIT_TIMEOUT);
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(permit);
        }
        let _place = self.waiting.try_acquire().ok()?;
        timeout(WAIT_TIMEOUT, Arc::clone(&self.free).acquire_owned()).await.ok()?.ok()
    }

    fn admit(&self, permit: OwnedSemaphorePermit) -> AdmissionPermit {
        let number = self.admitted.fetch_add(1, Ordering::Relaxed);
        lock(&self.permits).insert(number, (Instant::now(), permit));
        self.peak.fetch_max(self.limit - self.free.available_permits(), Ordering::Relaxed);
        AdmissionPermit { number, permits: self.permits.clone() }
    }

    /// Streams that are being opened now, their peak, and the number of refused requests.
    pub fn counts(&self) -> (usize, usize, u64) {
        let now = self.limit - self.free.available_permits();
        (now, self.peak.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// Streams that may be opened at once.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn over_the_limit_one_waits_and_the_rest_are_refused() {
        let admission = Arc::new(Admission::new(2, 1));
        let first = admission.enter().await.unwrap();
        let _second = admission.enter().await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        let waiting = Arc::clone(&admission);
        tasks.spawn(async move { waiting.enter().await.is_ok() });
        tokio::task::yield_now().await;
        assert_eq!(admission.enter().await.unwrap_err(), RetryAfter { seconds: RETRY_AFTER }, "one waits already");
        drop(first);
        assert!(tasks.join_next().await.unwrap().unwrap(), "a permit is free");
        assert_eq!(admission.counts().1, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_and_slow_streams_time_out() {
        let admission = Admission::new(1, 1);
        let _slow = admission.enter().await.unwrap();
        assert!(admission.enter().await.is_err(), "no permit became free");
        tokio::time::sleep(PERMIT_TIMEOUT).await;
        assert!(admission.enter().await.is_ok(), "the permit of the slow stream has expired");
        assert_eq!(admission.counts().2, 1);
    }
}
