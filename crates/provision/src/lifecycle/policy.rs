//! Timeouts, retries and permissions of the planner.

use jiff::{SignedDuration, Timestamp};

use muster_core::node::record::MachineStage;

/// Timeouts, retries and permissions of the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Timeout of each stage.
    pub allocating: SignedDuration,
    pub deploying: SignedDuration,
    pub booting: SignedDuration,
    /// From the start of the machine to the connection of its agent.
    pub bootstrapping: SignedDuration,
    pub releasing: SignedDuration,
    /// Number of attempts before an operator has to act. A release is retried for ever, because an unused machine may cost
    /// money.
    pub attempts: u32,
    /// Pause after the first failure. It doubles with each failure, up to `retry_cap`.
    pub retry_first: SignedDuration,
    pub retry_cap: SignedDuration,
    /// A machine that was provisioned for this long is stable: its next failure counts as the first.
    pub settled: SignedDuration,
    /// Interval at which machines are observed. `None`: the driver reports changes.
    pub poll_interval: Option<SignedDuration>,
    /// A lost machine is replaced automatically.
    pub replace_lost: bool,
    /// Start time of the controller. Agents could not connect before.
    pub serving_since: Timestamp,
    /// Failures from before the start are retried at once: the operator who restarted the controller may have fixed them.
    pub retry_old_failures: bool,
}

impl Policy {
    /// For local machines: all steps are fast, and retries are harmless.
    pub fn local(serving_since: Timestamp) -> Self {
        Self {
            allocating: SignedDuration::from_secs(30),
            deploying: SignedDuration::from_secs(30),
            booting: SignedDuration::from_secs(30),
            // An agent connects within milliseconds. Two minutes allow for a laptop that swaps.
            bootstrapping: SignedDuration::from_mins(2),
            // Hanging processes are reported after a minute.
            releasing: SignedDuration::from_mins(2),
            attempts: 5,
            retry_first: SignedDuration::from_secs(1),
            retry_cap: SignedDuration::from_secs(30),
            settled: SignedDuration::from_mins(5),
            poll_interval: None,
            replace_lost: true,
            serving_since,
            retry_old_failures: true,
        }
    }

    pub(super) fn limit(&self, stage: MachineStage) -> SignedDuration {
        match stage {
            MachineStage::Allocating => self.allocating,
            MachineStage::Deploying => self.deploying,
            MachineStage::Booting => self.booting,
            MachineStage::Bootstrapping => self.bootstrapping,
            MachineStage::Releasing => self.releasing,
        }
    }

    /// Pause after this attempt has failed.
    pub(super) fn pause_after(&self, attempt: u32) -> SignedDuration {
        // 2^20 times any pause exceeds any cap; a higher power would overflow.
        let doubled = 1_i32 << attempt.saturating_sub(1).min(20);
        self.retry_first.checked_mul(doubled).map_or(self.retry_cap, |pause| pause.min(self.retry_cap))
    }
}

/// Adds a pause to a time, up to the end of the calendar.
pub(super) fn after(time: Timestamp, pause: SignedDuration) -> Timestamp {
    time.checked_add(pause).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_cap() {
        let policy = Policy::local(Timestamp::UNIX_EPOCH);
        let pauses: Vec<i64> = (0..8).map(|attempt| policy.pause_after(attempt).as_secs()).collect();
        assert_eq!(pauses, [1, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(policy.pause_after(u32::MAX), policy.retry_cap);
    }

    #[test]
    fn end_of_the_calendar_is_no_error() {
        assert_eq!(after(Timestamp::MAX, SignedDuration::from_secs(1)), Timestamp::MAX);
    }
}
