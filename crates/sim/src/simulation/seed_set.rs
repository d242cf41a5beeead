//! The seeds of `make test`: a fixed set, and seeds that follow from the commit.

use std::ops::Range;

/// Number of seeds that every commit runs.
pub const FIXED_SEEDS: u64 = 1_000;
/// Number of seeds that follow from the id of the commit.
pub const DRAWN_SEEDS: u64 = 9_000;
/// The distance between the first seeds of two commits.
const COMMIT_STRIDE: u64 = 10_000;
/// Hexadecimal digits of a commit id that determine its seeds.
const COMMIT_DIGITS: usize = 12;

/// A seed that has violated a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegressionSeed {
    pub seed: u64,
    /// The cause of the violation.
    pub cause: &'static str,
}

/// Seeds that have violated a rule, each with one sentence about the cause. They are part of the fixed set.
pub const REGRESSION_SEEDS: &[RegressionSeed] = &[
    RegressionSeed {
        seed: 777_001_003_884,
        cause: "A node failed before and after an operator's pause, and the next wave was granted while it retried.",
    },
    RegressionSeed {
        seed: 777_001_010_801,
        cause: "A node failed in wave 3 and was still failing while waves 4 and 5 were granted.",
    },
    RegressionSeed {
        seed: 2_361,
        cause: "A node that was unreachable at plan time came back and failed, and its failure did not count.",
    },
    RegressionSeed {
        seed: 8_803,
        cause: "Two nodes of a wave failed and one was tolerated; the other one was excused as unreachable at plan time.",
    },
    RegressionSeed {
        seed: 20_261_116_005_420,
        cause: "The checker let a late report of an earlier grant of the same version extend the deadline of a node.",
    },
    RegressionSeed {
        seed: 20_261_116_008_636,
        cause: "The checker took the validation of the applied release, during a pause, for a run of an older generation.",
    },
    RegressionSeed {
        seed: 20_261_116_014_523,
        cause: "Checks that passed during a pause proved a version whose run had failed.",
    },
    RegressionSeed {
        seed: 20_261_117_015_258,
        cause: "A rollout granted a node while an operator's rollback of it was planned, and the plan missed that node.",
    },
    RegressionSeed {
        seed: 20_261_117_126_704,
        cause: "The checker took the validation of a release that a node had rolled back to by itself, after a newer \
                generation had arrived, for a run of that release.",
    },
    RegressionSeed {
        seed: 20_261_117_017_729,
        cause: "The checker expected a paused node to run at the end of the scenario.",
    },
    RegressionSeed {
        seed: 77_000_674,
        cause: "The store did not answer an operator who ended a cordon, which was not requested again, so the rollout waited for that \
                node for ever.",
    },
    RegressionSeed {
        seed: 721_846_879_391_781_313,
        cause: "A failed node was granted again by the step before, which the view of the decision did not show, and the checker counted \
                it as failed.",
    },
    RegressionSeed {
        seed: 1_647_854_299_786_696_593,
        cause: "A server registered again after a decision that had counted its agents as disconnected, and the checker expected a \
                grant for one of them.",
    },
    RegressionSeed {
        seed: 342_013_184_927_006_882,
        cause: "A node rolled itself back and validated the target again for a new grant, and the checker counted the cause of that run \
                as a failure.",
    },
    RegressionSeed {
        seed: 1_170_620_910_739_215_583,
        cause: "An agent got another incarnation before a timed preview, and the checker expected that it would not report the preview.",
    },
];

/// The seeds that every commit runs: the regression seeds, then 0, 1, 2 and so on.
pub fn fixed_seeds() -> Vec<u64> {
    let regressions = REGRESSION_SEEDS.iter().map(|regression| regression.seed);
    let is_new = |seed: &u64| REGRESSION_SEEDS.iter().all(|regression| regression.seed != *seed);
    regressions.chain((0..).filter(is_new)).take(FIXED_SEEDS as usize).collect()
}

/// The seeds of a commit, by its id in hexadecimal digits. None if the id is not valid.
pub fn drawn_seeds(commit: &str) -> Option<Range<u64>> {
    let digits = commit.get(..COMMIT_DIGITS)?;
    let is_hex = commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    // The first commit number is 1, so that no commit gets the fixed seeds.
    let first = (number + 1) * COMMIT_STRIDE;
    Some(first..first + DRAWN_SEEDS)
}

/// The seeds of a source tree without a commit: those that follow the fixed set.
pub fn seeds_without_commit() -> Range<u64> {
    FIXED_SEEDS..FIXED_SEEDS + DRAWN_SEEDS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn fixed_set_has_each_regression_seed_once() {
        let fixed = fixed_seeds();
        assert_eq!(fixed.len() as u64, FIXED_SEEDS);
        assert_eq!(fixed.iter().collect::<BTreeSet<_>>().len(), fixed.len(), "a seed is in the set twice");
        for RegressionSeed { seed, cause } in REGRESSION_SEEDS {
            assert!(fixed.contains(seed));
            assert!(cause.ends_with('.'), "seed {seed}: {cause:?} is not a sentence");
        }
    }

    #[test]
    fn each_commit_has_its_own_seeds() {
        let of = |commit: &str| drawn_seeds(commit).unwrap();
        let zero = of("0000000000000000000000000000000000000000");
        assert_eq!(zero, 10_000..19_000);
        assert_eq!(of("0000000000010000000000000000000000000000"), 20_000..29_000);
        let last = of("ffffffffffffffffffffffffffffffffffffffff");
        assert_eq!(last.end - last.start, DRAWN_SEEDS);
        assert!(fixed_seeds().iter().all(|seed| !zero.contains(seed)), "the fixed seeds run anyway");
        assert!(seeds_without_commit().end <= zero.start);
    }

    #[test]
    fn invalid_commit_id_has_no_seeds() {
        for commit in ["", "abc", "HEAD", "unknown-commit", "0123456789abx", "ü123456789abcdef"] {
            assert_eq!(drawn_seeds(commit), None, "{commit:?}");
        }
    }
}
