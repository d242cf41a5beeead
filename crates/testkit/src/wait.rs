//! Waits for a condition.
//!
//! A test waits for an event and never for a time. The timeouts here are no expectation: they are long enough for a busy
//! machine, and only end a test whose event never comes.

use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The longest wait for a single event.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two checks of a condition.
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits for a future, for at most [`TIMEOUT`].
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(TIMEOUT, future).await.unwrap_or_else(|_| panic!("not within {TIMEOUT:?}: {what}"))
}

/// Checks a condition at intervals until it holds.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            sleep(INTERVAL).await;
        }
    };
    within(what, holds).await;
}

/// Checks a condition at each change of a watched value until it holds.
pub async fn until_changed<T>(what: &str, mut changes: watch::Receiver<T>, mut condition: impl FnMut() -> bool) {
    let holds = async {
        loop {
            changes.mark_unchanged();
            if condition() {
                return;
            }
            changes.changed().await.expect("the watched value still has a sender");
        }
    };
    within(what, holds).await;
}

/// Calls a probe at intervals until it succeeds, and returns its result. Blocks the thread. The last error is shown if the
/// time is over.
pub fn eventually<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let begin = Instant::now();
    loop {
        let last = match probe() {
            Ok(result) => return result,
            Err(last) => last,
        };
        assert!(begin.elapsed() < deadline, "{what}: not within {deadline:?}; last result: {last}");
        #[expect(clippy::disallowed_methods, reason = "no event is sent for what is probed here")]
        thread::sleep(INTERVAL * 4);
    }
}
