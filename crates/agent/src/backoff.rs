//! Exponential backoff with jitter, so that the agents of a fleet do not retry in step.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// First and longest pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBackoff {
    pub first: Duration,
    pub cap: Duration,
}

impl RetryBackoff {
    /// The pause before retry `attempt`, counted from 1. `chance`, between 0 and 1, varies it by up to 10 % either way.
    pub fn pause(&self, attempt: u32, chance: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        with_jitter(self.first.saturating_mul(1 << doublings).min(self.cap), chance)
    }

    /// A pause anywhere between the first one and that of `attempt`, for agents that all start to wait at the same time: 10 %
    /// either way would leave them in step.
    pub fn spread(&self, attempt: u32, chance: f64) -> Duration {
        let longest = self.pause(attempt, 0.5);
        self.first + longest.saturating_sub(self.first).mul_f64(chance.clamp(0.0, 1.0))
    }

    /// The longest pause, with the same jitter.
    pub fn longest(&self, chance: f64) -> Duration {
        with_jitter(self.cap, chance)
    }
}

fn with_jitter(pause: Duration, chance: f64) -> Duration {
    pause.mul_f64(0.9 + 0.2 * chance.clamp(0.0, 1.0))
}

/// A random number between 0 and 1, good enough for jitter and nothing else.
pub fn chance() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    // A float between 0 and 1 has 53 significant bits.
    (random >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_with_jitter() {
        let backoff = RetryBackoff { first: Duration::from_secs(5), cap: Duration::from_secs(300) };
        let seconds = |attempt| backoff.pause(attempt, 0.5).as_secs();
        assert_eq!([1, 2, 3, 6, 7, 8, 1000].map(seconds), [5, 10, 20, 160, 300, 300, 300]);
        assert_eq!(backoff.pause(1, 0.0), Duration::from_millis(4500));
        assert_eq!(backoff.pause(1, 1.0), Duration::from_millis(5500));
        assert_eq!([0.0, 0.5, 1.0].map(|chance| backoff.longest(chance).as_secs()), [270, 300, 330]);
        assert_eq!([0.0, 0.5, 1.0].map(|chance| backoff.spread(3, chance).as_millis()), [5_000, 12_500, 20_000]);
        assert!((0.0..1.0).contains(&chance()));
    }
}
