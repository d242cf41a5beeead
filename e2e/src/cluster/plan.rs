//! Random plans of faults. Pure: the same seed gives the same plan.

use std::fmt;
use std::time::Duration;

use crate::cluster::fault::{ClusterFault, FaultyMember, FaultyReplica};

/// Pseudo-random numbers (splitmix64, which has no bad seeds).
#[derive(Clone, Debug)]
pub struct PlanRng(u64);

impl PlanRng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^= number >> 31;
        usize::try_from(number % u64::try_from(sides).unwrap()).unwrap()
    }
}

/// Durations of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time that a process is stopped. Longer than the 10 seconds of a replica's lease.
    pub stopped: Duration,
    /// Time before a killed process is restarted.
    pub away: Duration,
    /// The same, every second time, for replicas and for all of etcd: leases end meanwhile, and replicas know that they
    /// are cut off.
    pub long_away: Duration,
    /// Estimated time of recovery and checks of a step, to estimate the length of a plan.
    pub healing: Duration,
}

impl Pace {
    pub const SHORT: Self = Self {
        stopped: Duration::from_secs(15),
        away: Duration::from_secs(2),
        long_away: Duration::from_secs(13),
        healing: Duration::from_secs(7),
    };
    pub const LONG: Self = Self { stopped: Duration::from_secs(30), ..Self::SHORT };
}

/// A fault, sometimes with a second one during it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultStep {
    /// Time between a change of the version and the fault: some nodes have received it, some run, some report.
    pub before: Duration,
    pub fault: ClusterFault,
    pub lasts: Duration,
    /// It begins after the first, and ends after it.
    pub second: Option<ClusterFault>,
    /// The version does not change meanwhile: an idle fleet detects other things, and later.
    pub quiet: bool,
}

impl fmt::Display for FaultStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {:?}", self.fault, self.lasts)?;
        if let Some(second) = self.second {
            write!(f, ", and meanwhile {second}")?;
        }
        match self.quiet {
            true => f.write_str(", while nothing else happens"),
            false => write!(f, ", {:?} after a change of the version", self.before),
        }
    }
}

/// Makes steps for about this time. Every kind of fault occurs once before any occurs twice.
pub fn plan(seed: u64, time: Duration, pace: Pace) -> Vec<FaultStep> {
    let mut rng = PlanRng::new(seed);
    let mut steps = Vec::new();
    let mut left = time;
    let mut kinds: Vec<FaultKind> = Vec::new();
    loop {
        if kinds.is_empty() {
            kinds = FaultKind::ALL.to_vec();
        }
        let kind = kinds.swap_remove(rng.below(kinds.len()));
        let fault = kind.hitting(&mut rng);
        let step = FaultStep {
            before: Duration::from_millis(u64::try_from(rng.below(15)).unwrap_or_default() * 100),
            fault,
            lasts: kind.lasts(pace, &mut rng),
            second: second(fault, &mut rng),
            // A compaction needs revisions to discard.
            quiet: rng.below(3) == 0 && kind != FaultKind::Compact,
        };
        let takes = step.before + step.lasts + pace.healing;
        if takes > left && !steps.is_empty() {
            return steps;
        }
        left = left.saturating_sub(takes);
        steps.push(step);
    }
}

/// A fault without its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    KillMember,
    KillEtcd,
    StopMember,
    WipeMember,
    KillReplica,
    KillReplicas,
    StopReplica,
    Compact,
    Quota,
    Cut,
}

impl FaultKind {
    const ALL: [FaultKind; 10] = [
        FaultKind::KillMember,
        FaultKind::KillEtcd,
        FaultKind::StopMember,
        FaultKind::WipeMember,
        FaultKind::KillReplica,
        FaultKind::KillReplicas,
        FaultKind::StopReplica,
        FaultKind::Compact,
        FaultKind::Quota,
        FaultKind::Cut,
    ];

    fn hitting(self, rng: &mut PlanRng) -> ClusterFault {
        // The one that matters most is hit half of the time.
        let member = match rng.below(6) {
            0..3 => FaultyMember::Leader,
            number => FaultyMember::Number(number - 3),
        };
        let replica = match rng.below(4) {
            0..2 => FaultyReplica::LivenessHolder,
            number => FaultyReplica::Number(number - 2),
        };
        match self {
            FaultKind::KillMember => ClusterFault::KillMember(member),
            FaultKind::KillEtcd => ClusterFault::KillEtcd,
            FaultKind::StopMember => ClusterFault::StopMember(member),
            FaultKind::WipeMember => ClusterFault::WipeMember(member),
            FaultKind::KillReplica => ClusterFault::KillReplica(replica),
            FaultKind::KillReplicas => ClusterFault::KillReplicas,
            FaultKind::StopReplica => ClusterFault::StopReplica(replica),
            FaultKind::Compact => ClusterFault::CompactUnder(replica),
            FaultKind::Quota => ClusterFault::ExhaustQuota,
            FaultKind::Cut => ClusterFault::CutStreams,
        }
    }

    fn lasts(self, pace: Pace, rng: &mut PlanRng) -> Duration {
        let long = rng.below(2) == 1;
        match self {
            FaultKind::StopMember | FaultKind::StopReplica => pace.stopped,
            FaultKind::KillReplica | FaultKind::KillReplicas | FaultKind::KillEtcd if long => pace.long_away,
            FaultKind::KillMember
            | FaultKind::KillEtcd
            | FaultKind::WipeMember
            | FaultKind::KillReplica
            | FaultKind::KillReplicas
            | FaultKind::Compact
            | FaultKind::Quota
            | FaultKind::Cut => pace.away,
        }
    }
}

/// Every third fault of etcd overlaps with a fault of a replica or a cut, and the other way round.
fn second(first: ClusterFault, rng: &mut PlanRng) -> Option<ClusterFault> {
    let chosen = rng.below(9);
    match first {
        ClusterFault::KillMember(_) | ClusterFault::StopMember(_) | ClusterFault::WipeMember(_) => match chosen {
            0 => Some(ClusterFault::KillReplica(FaultyReplica::LivenessHolder)),
            1 => Some(ClusterFault::KillReplica(FaultyReplica::Number(rng.below(2)))),
            2 => Some(ClusterFault::CutStreams),
            _ => None,
        },
        // Those who set etcd right need all of it.
        ClusterFault::KillEtcd
        | ClusterFault::KillReplica(_)
        | ClusterFault::KillReplicas
        | ClusterFault::StopReplica(_)
        | ClusterFault::CompactUnder(_)
        | ClusterFault::ExhaustQuota
        | ClusterFault::CutStreams => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn plan_depends_only_on_the_seed() {
        assert_eq!(plan(7, MINUTE * 10, Pace::LONG), plan(7, MINUTE * 10, Pace::LONG));
        assert_ne!(plan(7, MINUTE * 10, Pace::LONG), plan(8, MINUTE * 10, Pace::LONG));
    }

    #[test]
    fn longer_plan_starts_like_the_shorter_one() {
        let (short, long) = (plan(7, MINUTE, Pace::SHORT), plan(7, MINUTE * 3, Pace::SHORT));
        assert_eq!(long[..short.len()], short);
    }

    #[test]
    fn ten_minute_plan_has_every_kind_of_fault() {
        for seed in 0..100 {
            let steps = plan(seed, MINUTE * 10, Pace::LONG);
            assert!(steps.len() > FaultKind::ALL.len(), "seed {seed}: {} steps", steps.len());
            let time: Duration = steps.iter().map(|step| step.before + step.lasts + Pace::LONG.healing).sum();
            assert!(time > MINUTE * 9 && time <= MINUTE * 10, "seed {seed}: {time:?}");
        }
    }
}
