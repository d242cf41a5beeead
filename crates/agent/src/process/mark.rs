//! The mark of the processes of a run or a check, and their termination.

use std::time::Duration;

/// Time between SIGTERM and SIGKILL.
pub const GRACE: Duration = Duration::from_secs(5);
/// The same when the agent shuts down, or for processes of an earlier agent: their result is not needed.
pub const SHORT_GRACE: Duration = Duration::from_secs(2);

/// An environment variable that identifies the processes of a run or a check.
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

/// Ends every process that carries the mark. One that hangs in the kernel is logged; the agent does not wait for it.
pub async fn end_all(mark: &Mark, grace: Duration) {
    match muster_marked::terminate_all(mark.variable, &mark.value, grace).await {
        Ok(ended) if ended.is_complete() => {}
        Ok(ended) => {
            tracing::error!(mark = mark.value, pids = ?ended.remaining, "processes do not end after SIGKILL");
        }
        Err(error) => tracing::error!(mark = mark.value, %error, "cannot search for the processes of a run"),
    }
}
