//! How many streams are opened at the same time.
//!
//! To open a stream costs a comparison and, for most, a whole snapshot that stays in memory until the agent has taken
//! it. When a fleet comes back after an outage, that would be done for all of it at once. So a few are let in at a time,
//! some wait for their turn, and all others are told to come back in a moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// An opening takes a millisecond or two; with so many at once all cores are busy, and their snapshots fit into memory.
const INSIDE: usize = 64;
/// Each that waits is a request of a few kilobytes.
const WAITING: usize = 1024;
/// Well below the 10 s after which an agent looks for another server.
const TURN: Duration = Duration::from_secs(2);
/// An agent that does not take its first events does not keep others out for longer.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);
/// When those come back who were sent away. They add as much again by chance.
const COME_BACK: u16 = 2;

#[derive(Debug)]
pub struct Admission {
    inside: Arc<Semaphore>,
    waiting: Semaphore,
    /// Who is inside, in the order of their coming. A permit is here and not with the agent's stream, because nobody
    /// looks after a stream whose agent takes nothing.
    permits: Arc<Mutex<BTreeMap<u64, (Instant, OwnedSemaphorePermit)>>>,
    entered: AtomicU64,
    /// The most that were inside at once.
    most: AtomicUsize,
    refused: AtomicU64,
    limit: usize,
}

/// An agent whose stream is being opened: until this is dropped, or has taken too long.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    number: u64,
    permits: Arc<Mutex<BTreeMap<u64, (Instant, OwnedSemaphorePermit)>>>,
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        lock(&self.permits).remove(&self.number);
    }
}

/// Too many are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryAfter {
    pub(crate) seconds: u16,
}

impl Default for Admission {
    fn default() -> Self {
        Self::new(INSIDE, WAITING)
    }
}

impl Admission {
    fn new(inside: usize, waiting: usize) -> Self {
        Self {
            inside: Arc::new(Semaphore::new(inside)),
            waiting: Semaphore::new(waiting),
            permits: Arc::default(),
            entered: AtomicU64::new(0),
            most: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            limit: inside,
        }
    }

    /// Lets an agent in, at once or when it is its turn.
    pub(crate) async fn enter(&self) -> Result<AdmissionPermit, RetryAfter> {
        match self.turn().await {
            Some(permit) => Ok(self.open(permit)),
            None => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(RetryAfter { seconds: COME_BACK })
            }
        }
    }

    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turn_out_the_slow();
        if let Ok(permit) = Arc::clone(&self.inside).try_acquire_owned() {
            return Some(permit);
        }
        let _place = self.waiting.try_acquire().ok()?;
        timeout(TURN, Arc::clone(&self.inside).acquire_owned()).await.ok()?.ok()
    }

    fn open(&self, permit: OwnedSemaphorePermit) -> AdmissionPermit {
        let number = self.entered.fetch_add(1, Ordering::Relaxed);
        lock(&self.permits).insert(number, (Instant::now(), permit));
        self.most.fetch_max(self.limit - self.inside.available_permits(), Ordering::Relaxed);
        AdmissionPermit { number, permits: self.permits.clone() }
    }

    fn turn_out_the_slow(&self) {
        lock(&self.permits).retain(|_, (since, _)| since.elapsed() < TAKEN_WITHIN);
    }

    /// How many are being opened now, the most that ever were at once, and how many were sent away.
    pub fn counts(&self) -> (usize, usize, u64) {
        let now = self.limit - self.inside.available_permits();
        (now, self.most.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// How many are let in at once.
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
    async fn some_are_let_in_some_wait_and_the_rest_come_back() {
        let admission = Arc::new(Admission::new(2, 1));
        let first = admission.enter().await.unwrap();
        let _second = admission.enter().await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        let waiting = Arc::clone(&admission);
        tasks.spawn(async move { waiting.enter().await.is_ok() });
        tokio::task::yield_now().await;
        assert_eq!(admission.enter().await.unwrap_err(), RetryAfter { seconds: COME_BACK }, "one waits already");
        drop(first);
        assert!(tasks.join_next().await.unwrap().unwrap(), "its turn has come");
        assert_eq!(admission.counts().1, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_and_nobody_keeps_others_out_for_ever() {
        let admission = Admission::new(1, 1);
        let _slow = admission.enter().await.unwrap();
        assert!(admission.enter().await.is_err(), "its turn did not come");
        tokio::time::sleep(TAKEN_WITHIN).await;
        assert!(admission.enter().await.is_ok(), "the slow one counts no more");
        assert_eq!(admission.counts().2, 1);
    }
}
