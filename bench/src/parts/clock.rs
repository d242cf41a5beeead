//! The machine's clock, for comparing with what other processes wrote down.

use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};

/// The time since the epoch, as a script sees it in `$EPOCHREALTIME`.
pub(crate) fn now() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

pub(crate) fn timestamp() -> anyhow::Result<Timestamp> {
    Ok(Timestamp::from_duration(SignedDuration::try_from(now())?)?)
}
