//! The one place where the agent reads the clock of its machine.

use jiff::Timestamp;

/// The time for people and reports. Waiting is done on the runtime's own clock, which never jumps.
#[expect(clippy::disallowed_methods, reason = "the edge that reads the clock; decisions take the time as an argument")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
