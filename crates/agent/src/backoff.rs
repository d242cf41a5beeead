//! How long to wait before trying again: doubling from a first pause up to a longest one, with some chance in it so that
//! a fleet whose server comes back does not knock in step.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// A first and a longest pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub cap: Duration,
}

impl Backoff {
    /// The pause before the given attempt to try again, counted from 1. `chance` is between 0 and 1 and moves the pause
    /// by up to a tenth either way.
    pub fn pause(&self, attempt: u32, chance: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        spread(self.first.saturating_mul(1 << doublings).min(self.cap), chance)
    }

    /// Anywhere between the first pause and that before the given attempt: for many who began to wait at the same moment,
    /// which a tenth either way would leave in step.
    pub fn anywhere(&self, attempt: u32, chance: f64) -> Duration {
        let longest = self.pause(attempt, 0.5);
        self.first + longest.saturating_sub(self.first).mul_f64(chance.clamp(0.0, 1.0))
    }

    /// The longest pause, moved in the same way.
    pub fn longest(&self, chance: f64) -> Duration {
        spread(self.cap, chance)
    }
}

fn spread(pause: Duration, chance: f64) -> Duration {
    pause.mul_f64(0.9 + 0.2 * chance.clamp(0.0, 1.0))
}

/// A number between 0 and 1 that nobody can foresee; good enough to spread a fleet, and for nothing else.
pub fn chance() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    // The upper 53 bits are what a float between 0 and 1 holds.
    (random >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_and_vary_by_a_tenth() {
        let backoff = Backoff { first: Duration::from_secs(5), cap: Duration::from_secs(300) };
        let seconds = |attempt| backoff.pause(attempt, 0.5).as_secs();
        assert_eq!([1, 2, 3, 6, 7, 8, 1000].map(seconds), [5, 10, 20, 160, 300, 300, 300]);
        assert_eq!(backoff.pause(1, 0.0), Duration::from_millis(4500));
        assert_eq!(backoff.pause(1, 1.0), Duration::from_millis(5500));
        assert_eq!([0.0, 0.5, 1.0].map(|chance| backoff.longest(chance).as_secs()), [270, 300, 330]);
        assert_eq!([0.0, 0.5, 1.0].map(|chance| backoff.anywhere(3, chance).as_millis()), [5_000, 12_500, 20_000]);
        assert!((0.0..1.0).contains(&chance()));
    }
}
