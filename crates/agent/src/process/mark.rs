//! The mark that every process of a run, or of a check, carries; and the end of all that carry it.

use std::time::Duration;

/// How long a process may take to end by itself when asked.
pub const GRACE: Duration = Duration::from_secs(5);
/// The same when the agent itself is to end, or a former agent left the process: nobody waits for its result.
pub const SHORT_GRACE: Duration = Duration::from_secs(2);

/// A variable of the environment that tells whose process it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub variable: &'static str,
    pub value: String,
}

impl Mark {
    pub fn new(variable: &'static str, value: impl Into<String>) -> Self {
        Self { variable, value: value.into() }
    }
}

/// Ends every process that carries the mark. What cannot be ended is told to the operator: a process that hangs in the
/// kernel goes when the kernel lets it, and the agent must not wait for that.
pub async fn end_all(mark: &Mark, grace: Duration) {
    match muster_marked::end_all(mark.variable, &mark.value, grace).await {
        Ok(ended) if ended.all() => {}
        Ok(ended) => {
            tracing::error!(mark = mark.value, pids = ?ended.left, "these processes do not end, not even when killed");
        }
        Err(error) => tracing::error!(mark = mark.value, %error, "cannot look for the processes of a run"),
    }
}
