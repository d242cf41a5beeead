//! Whether the view shows what the store held a moment ago.

use jiff::{SignedDuration, Timestamp};

use crate::health::later;

/// So long a view that was fresh is taken for fresh.
const FRESH: SignedDuration = SignedDuration::from_millis(500);
/// Where the store or its watch is slower than that, this often it is asked for one step. Then the step is taken all the same:
/// a rollout on a slow store must go on, and what it writes compares what it was decided on.
const TIMES: u8 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Freshness {
    #[default]
    Unknown,
    /// The store was asked for this step.
    Asked { at: Timestamp, times: u8 },
    /// It was asked for an earlier one. Steps that follow each other at once need not ask again, as each of them waits until
    /// the view shows the one before; but that may take long.
    Kept { since: Timestamp },
}

impl Freshness {
    pub(super) fn holds(self, now: Timestamp) -> bool {
        let is_recent = |at: Timestamp| at <= now && now <= later(at, FRESH);
        match self {
            Self::Unknown => false,
            Self::Asked { at, times } => is_recent(at) || times >= TIMES,
            Self::Kept { since } => is_recent(since),
        }
    }

    /// The store is asked, now.
    pub(super) fn ask(self, now: Timestamp) -> Self {
        let before = match self {
            Self::Asked { times, .. } => times,
            Self::Unknown | Self::Kept { .. } => 0,
        };
        Self::Asked { at: now, times: before + 1 }
    }

    /// Something was written since.
    pub(super) fn kept(self) -> Self {
        match self {
            Self::Asked { at, .. } => Self::Kept { since: at },
            Self::Unknown | Self::Kept { .. } => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_always_slow_is_asked_a_few_times_and_stops_nothing() {
        let (mut now, mut freshness) = (Timestamp::UNIX_EPOCH, Freshness::default());
        let mut asked = 0;
        while !freshness.holds(now) {
            freshness = freshness.ask(now);
            now = later(now, SignedDuration::from_secs(2));
            asked += 1;
        }
        assert_eq!(asked, TIMES);
        let freshness = freshness.kept();
        assert!(!freshness.holds(now), "the next step asks for itself");
        assert!(freshness.ask(now).holds(now));
    }
}
