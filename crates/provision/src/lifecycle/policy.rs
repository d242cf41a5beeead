//! What the planner may do, and how long things may take.

use jiff::{SignedDuration, Timestamp};

use muster_core::node::record::MachineStage;

/// What the planner may do, and how long things may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long each stage may take before it has failed.
    pub allocating: SignedDuration,
    pub deploying: SignedDuration,
    pub booting: SignedDuration,
    /// From the machine running to its agent's hello.
    pub bootstrapping: SignedDuration,
    pub releasing: SignedDuration,
    /// So many attempts at a machine are made before somebody has to look at it. To give one back is tried for ever:
    /// nobody wants it, and it may cost somebody.
    pub attempts: u32,
    /// The pause after the first failure. It doubles with each, up to `retry_cap`.
    pub retry_first: SignedDuration,
    pub retry_cap: SignedDuration,
    /// A machine that was provisioned for so long has proved itself: its next failure is a first one again.
    pub settled: SignedDuration,
    /// How often to look at a machine that nothing happens to. None: its driver tells of changes.
    pub look_again: Option<SignedDuration>,
    /// A machine that has vanished is replaced without asking.
    pub replace_lost: bool,
    /// Since when whoever decides is there. Before that nobody could have heard an agent's hello.
    pub serving_since: Timestamp,
    /// Whether what failed before that is tried again at once: somebody has started us anew, and may have mended it.
    pub retry_old_failures: bool,
}

impl Policy {
    /// For machines that are processes of this machine: everything is a matter of moments, and nothing is lost by trying.
    pub fn local(serving_since: Timestamp) -> Self {
        Self {
            allocating: SignedDuration::from_secs(30),
            deploying: SignedDuration::from_secs(30),
            booting: SignedDuration::from_secs(30),
            // An agent says hello within milliseconds. Two minutes are for a laptop that swaps.
            bootstrapping: SignedDuration::from_mins(2),
            // Processes that hang are given a minute before they are told of.
            releasing: SignedDuration::from_mins(2),
            attempts: 5,
            retry_first: SignedDuration::from_secs(1),
            retry_cap: SignedDuration::from_secs(30),
            settled: SignedDuration::from_mins(5),
            look_again: None,
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

    /// The pause after the failure of this attempt.
    pub(super) fn pause_after(&self, attempt: u32) -> SignedDuration {
        // 2^20 times any pause is over any cap; a higher power would only overflow.
        let doubled = 1_i32 << attempt.saturating_sub(1).min(20);
        self.retry_first.checked_mul(doubled).map_or(self.retry_cap, |pause| pause.min(self.retry_cap))
    }
}

/// Time can be added up to the end of the calendar. Nobody waits for what is beyond it.
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
    fn the_end_of_time_is_no_error() {
        assert_eq!(after(Timestamp::MAX, SignedDuration::from_secs(1)), Timestamp::MAX);
    }
}
