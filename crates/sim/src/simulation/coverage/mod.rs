//! Counts how many seeds reach each decision of the rollout engine.
//!
//! [`DecisionArm`] lists the decisions. [`observe`] maps the engine's results to them, with matches that have no wildcard:
//! a new variant of the engine does not compile before it has an arm here.

mod arms;
pub(crate) mod observe;

use std::fmt;

pub use arms::DecisionArm;

/// The decisions that occurred in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReachedArms([bool; DecisionArm::ALL.len()]);

impl Default for ReachedArms {
    fn default() -> Self {
        Self([false; DecisionArm::ALL.len()])
    }
}

impl ReachedArms {
    pub(crate) fn record(&mut self, arms: impl IntoIterator<Item = DecisionArm>) {
        for arm in arms {
            self.0[arm as usize] = true;
        }
    }

    pub fn contains(&self, arm: DecisionArm) -> bool {
        self.0[arm as usize]
    }
}

/// For each decision, the number of seeds that reached it.
#[derive(Clone, Copy, Debug)]
pub struct ArmCoverage {
    runs: u64,
    seeds: [u64; DecisionArm::ALL.len()],
}

impl Default for ArmCoverage {
    fn default() -> Self {
        Self { runs: 0, seeds: [0; DecisionArm::ALL.len()] }
    }
}

impl ArmCoverage {
    pub fn add(&mut self, run: &ReachedArms) {
        self.runs += 1;
        for (seeds, reached) in self.seeds.iter_mut().zip(run.0) {
            *seeds += u64::from(reached);
        }
    }

    /// The number of seeds that reached a decision.
    pub fn seeds(&self, arm: DecisionArm) -> u64 {
        self.seeds[arm as usize]
    }

    /// Decisions that no seed reached.
    pub fn unreached(&self) -> impl Iterator<Item = DecisionArm> {
        DecisionArm::ALL.into_iter().filter(|arm| self.seeds(*arm) == 0)
    }
}

impl fmt::Display for ArmCoverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = DecisionArm::ALL.len();
        let reached = all - self.unreached().count();
        writeln!(f, "{reached} of {all} decisions of the engine were reached by {} seeds:", self.runs)?;
        for arm in DecisionArm::ALL.into_iter().filter(|arm| self.seeds(*arm) > 0) {
            writeln!(f, "{:>10}  {}", self.seeds(arm), arm.words())?;
        }
        if reached < all {
            writeln!(f, "reached by no seed:")?;
        }
        for arm in self.unreached() {
            let why = arm.out_of_reach().or(arm.rare()).unwrap_or("not in these seeds");
            writeln!(f, "{:>10}  {} ({why})", 0, arm.words())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_count_seeds_and_name_unreached_arms() {
        let mut run = ReachedArms::default();
        run.record([DecisionArm::Grant, DecisionArm::Grant]);
        assert!(run.contains(DecisionArm::Grant) && !run.contains(DecisionArm::GrantRetry));
        let mut coverage = ArmCoverage::default();
        coverage.add(&run);
        coverage.add(&run);
        coverage.add(&ReachedArms::default());
        assert_eq!((coverage.seeds(DecisionArm::Grant), coverage.runs), (2, 3));
        assert_eq!(coverage.unreached().count(), DecisionArm::ALL.len() - 1);
        let text = coverage.to_string();
        assert!(text.contains("         2  nodes are granted\n"), "{text}");
        assert!(text.contains("         0  a node is granted again after a retry (not in these seeds)\n"), "{text}");
    }

    #[test]
    fn every_arm_has_its_own_words() {
        let words: std::collections::BTreeSet<&str> = DecisionArm::ALL.into_iter().map(DecisionArm::words).collect();
        assert_eq!(words.len(), DecisionArm::ALL.len());
    }
}
