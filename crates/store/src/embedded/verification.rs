//! Limits verifications of the file, which all other requests wait for: a recent result is the answer to further requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::LeaseClock;
use crate::store::{Integrity, StoreError, Verification};

/// Shortest time from the end of a verification to the next one.
const INTERVAL: Duration = Duration::from_secs(10 * 60);
/// The same as a multiple of the duration of a verification: a large file is unavailable for at most one percent of the time.
const REST: u32 = 99;

#[derive(Debug)]
pub(super) struct Verifications {
    clock: Arc<dyn LeaseClock>,
    /// Start of the verification in progress.
    started: watch::Sender<Option<Duration>>,
    last: Mutex<Option<FinishedVerification>>,
}

#[derive(Clone, Debug)]
struct FinishedVerification {
    ended: Duration,
    took: Duration,
    result: Result<Integrity, StoreError>,
}

impl Verifications {
    pub(super) fn new(clock: Arc<dyn LeaseClock>) -> Self {
        Self { clock, started: watch::Sender::new(None), last: Mutex::default() }
    }

    /// Returns the last result while it is recent, and otherwise that of `verify`. Only the writer calls this: requests that
    /// wait for a verification in progress get its result.
    pub(super) fn run(
        &self,
        verify: impl FnOnce() -> Result<Integrity, StoreError>,
    ) -> Result<Verification, StoreError> {
        let started = self.clock.now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(FinishedVerification { ended, took, result }) = &*last {
            let age = started.saturating_sub(*ended);
            if age < INTERVAL.max(took.saturating_mul(REST)) {
                return result.clone().map(|integrity| Verification { integrity, age });
            }
        }
        self.started.send_replace(Some(started));
        let result = verify();
        self.started.send_replace(None);
        let ended = self.clock.now();
        // After any other error the file was not verified.
        if let Ok(_) | Err(StoreError::Corrupt { .. }) = &result {
            *last = Some(FinishedVerification { ended, took: ended.saturating_sub(started), result: result.clone() });
        }
        result.map(|integrity| Verification { integrity, age: Duration::ZERO })
    }

    /// Waits until a verification is in progress. Returns the time since its start.
    pub(super) async fn in_progress(&self) -> Duration {
        let mut started = self.started.subscribe();
        loop {
            let found = *started.borrow_and_update();
            if let Some(found) = found {
                return self.clock.now().saturating_sub(found);
            }
            if started.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::{EmbeddedOptions, EmbeddedStore};
    use super::*;
    use crate::clock::ManualClock;
    use crate::store::{Store, text_cause};

    fn corrupt() -> StoreError {
        StoreError::Corrupt { store: "embedded:/store".into(), cause: text_cause("a checksum does not match") }
    }

    #[test]
    fn recent_result_is_returned_with_its_age() {
        let clock = Arc::new(ManualClock::new());
        let verifications = Verifications::new(clock.clone());
        let run = |result: Result<Integrity, StoreError>, takes: Duration| {
            verifications.run(|| {
                clock.advance(takes);
                result
            })
        };
        let refused = || panic!("it is verified again");
        assert!(matches!(run(Err(StoreError::Closed), Duration::ZERO), Err(StoreError::Closed)));
        let second = Duration::from_secs(1);
        let first = run(Ok(Integrity::Intact), second).unwrap();
        assert_eq!(first, Verification { integrity: Integrity::Intact, age: Duration::ZERO });
        clock.advance(INTERVAL - second);
        let again = verifications.run(refused).unwrap();
        assert_eq!(again, Verification { integrity: Integrity::Intact, age: INTERVAL - second });

        clock.advance(second);
        let hour = Duration::from_secs(3600);
        assert!(matches!(run(Err(corrupt()), hour), Err(StoreError::Corrupt { .. })));
        clock.advance(hour * REST - second);
        assert!(matches!(verifications.run(refused), Err(StoreError::Corrupt { .. })), "of a slow verification");
        clock.advance(second);
        assert_eq!(run(Ok(Integrity::Repaired), second).unwrap().integrity, Integrity::Repaired);
    }

    #[tokio::test]
    async fn health_does_not_wait_for_a_verification() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new());
        let options = EmbeddedOptions { clock: clock.clone(), ..EmbeddedOptions::default() };
        let store = EmbeddedStore::open(directory.path().join("store"), options).await.unwrap();
        let shared = Arc::clone(&store.shared);
        let (begun, is_begun) = mpsc::sync_channel(1);
        let (end, ends) = mpsc::sync_channel(1);
        let verification = std::thread::spawn(move || {
            let _slot = shared.slot.write().unwrap();
            shared.verifications.run(|| {
                begun.send(()).unwrap();
                ends.recv().unwrap();
                Ok(Integrity::Intact)
            })
        });
        is_begun.recv().unwrap();
        clock.advance(Duration::from_secs(40));
        let health = store.health().await;
        assert_eq!((health.verifying, health.latency), (Some(Duration::from_secs(40)), None));
        end.send(()).unwrap();
        verification.join().unwrap().unwrap();
        let health = store.health().await;
        assert!(health.verifying.is_none() && health.latency.is_some());
        let verified = store.verify().await.unwrap();
        assert_eq!(verified.integrity, Integrity::Intact);
    }
}
