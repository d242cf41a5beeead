//! Asking again and again.

use std::thread;
use std::time::{Duration, Instant};

/// How long a thing may take that is done in a moment on a machine that has time. It is no expectation: it only ends a
/// test whose event never comes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks until there is an answer, and gives it. An answer that is not the right one says why; the last of them is told
/// if the right one does not come in time.
pub fn eventually<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let begin = Instant::now();
    loop {
        let last = match probe() {
            Ok(answer) => return answer,
            Err(last) => last,
        };
        assert!(begin.elapsed() < deadline, "{what}: not within {deadline:?}; the last answer was: {last}");
        #[expect(clippy::disallowed_methods, reason = "nobody tells of it; this is the one place that asks again")]
        thread::sleep(PAUSE);
    }
}
