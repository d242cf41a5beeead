//! Faults in random order: pure, so that the same seed is the same plan, to the second.

use std::fmt;
use std::time::Duration;

use crate::cluster::fault::{Fault, Member, Replica};

/// Numbers that are the same for the same seed (splitmix64, which has no bad seeds).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn throw(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^= number >> 31;
        usize::try_from(number % u64::try_from(sides).unwrap()).unwrap()
    }
}

/// How long the things of a plan last.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// For how long somebody is stopped. Longer than the 10 seconds after which a replica's lease ends.
    pub stopped: Duration,
    /// For how long somebody who was killed is away.
    pub away: Duration,
    /// The same, every second time, for replicas and for all of etcd: leases end meanwhile, and replicas know that they
    /// are cut off.
    pub long_away: Duration,
    /// What a step takes besides, for the healing and the judgement: only there to know when a plan is long enough.
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

/// One step: a fault; sometimes a second one in the middle of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// From a change of the version to the fault: some nodes have been told then, some run, some report.
    pub before: Duration,
    pub fault: Fault,
    pub lasts: Duration,
    /// It begins after the first, and ends after it.
    pub second: Option<Fault>,
    /// Nobody changes the version meanwhile: a fleet that has nothing to say notices other things, and later.
    pub quiet: bool,
}

impl fmt::Display for Step {
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

/// Steps for about so long. Every kind of fault comes once before any comes twice.
pub fn plan(seed: u64, time: Duration, pace: Pace) -> Vec<Step> {
    let mut dice = Dice::new(seed);
    let mut steps = Vec::new();
    let mut left = time;
    let mut kinds: Vec<Kind> = Vec::new();
    loop {
        if kinds.is_empty() {
            kinds = Kind::ALL.to_vec();
        }
        let kind = kinds.swap_remove(dice.throw(kinds.len()));
        let fault = kind.hitting(&mut dice);
        let step = Step {
            before: Duration::from_millis(u64::try_from(dice.throw(15)).unwrap_or_default() * 100),
            fault,
            lasts: kind.lasts(pace, &mut dice),
            second: second(fault, &mut dice),
            // What a compaction takes away has to be there.
            quiet: dice.throw(3) == 0 && kind != Kind::Compact,
        };
        let takes = step.before + step.lasts + pace.healing;
        if takes > left && !steps.is_empty() {
            return steps;
        }
        left = left.saturating_sub(takes);
        steps.push(step);
    }
}

/// A fault without the one whom it hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::KillMember,
        Kind::KillEtcd,
        Kind::StopMember,
        Kind::WipeMember,
        Kind::KillReplica,
        Kind::KillReplicas,
        Kind::StopReplica,
        Kind::Compact,
        Kind::Quota,
        Kind::Cut,
    ];

    fn hitting(self, dice: &mut Dice) -> Fault {
        // The one that matters most is hit half of the time.
        let member = match dice.throw(6) {
            0..3 => Member::Leader,
            number => Member::Number(number - 3),
        };
        let replica = match dice.throw(4) {
            0..2 => Replica::Holder,
            number => Replica::Number(number - 2),
        };
        match self {
            Kind::KillMember => Fault::KillMember(member),
            Kind::KillEtcd => Fault::KillEtcd,
            Kind::StopMember => Fault::StopMember(member),
            Kind::WipeMember => Fault::WipeMember(member),
            Kind::KillReplica => Fault::KillReplica(replica),
            Kind::KillReplicas => Fault::KillReplicas,
            Kind::StopReplica => Fault::StopReplica(replica),
            Kind::Compact => Fault::CompactUnder(replica),
            Kind::Quota => Fault::ExhaustQuota,
            Kind::Cut => Fault::CutStreams,
        }
    }

    fn lasts(self, pace: Pace, dice: &mut Dice) -> Duration {
        let long = dice.throw(2) == 1;
        match self {
            Kind::StopMember | Kind::StopReplica => pace.stopped,
            Kind::KillReplica | Kind::KillReplicas | Kind::KillEtcd if long => pace.long_away,
            Kind::KillMember
            | Kind::KillEtcd
            | Kind::WipeMember
            | Kind::KillReplica
            | Kind::KillReplicas
            | Kind::Compact
            | Kind::Quota
            | Kind::Cut => pace.away,
        }
    }
}

/// Every third fault of etcd has one of a replica in its middle, or a cut; the other way round it is the same.
fn second(first: Fault, dice: &mut Dice) -> Option<Fault> {
    let chosen = dice.throw(9);
    match first {
        Fault::KillMember(_) | Fault::StopMember(_) | Fault::WipeMember(_) => match chosen {
            0 => Some(Fault::KillReplica(Replica::Holder)),
            1 => Some(Fault::KillReplica(Replica::Number(dice.throw(2)))),
            2 => Some(Fault::CutStreams),
            _ => None,
        },
        // Those who set etcd right need all of it.
        Fault::KillEtcd
        | Fault::KillReplica(_)
        | Fault::KillReplicas
        | Fault::StopReplica(_)
        | Fault::CompactUnder(_)
        | Fault::ExhaustQuota
        | Fault::CutStreams => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_same_seed_is_the_same_plan_and_another_one_is_another() {
        assert_eq!(plan(7, MINUTE * 10, Pace::LONG), plan(7, MINUTE * 10, Pace::LONG));
        assert_ne!(plan(7, MINUTE * 10, Pace::LONG), plan(8, MINUTE * 10, Pace::LONG));
    }

    #[test]
    fn a_longer_plan_begins_as_the_shorter_one() {
        let (short, long) = (plan(7, MINUTE, Pace::SHORT), plan(7, MINUTE * 3, Pace::SHORT));
        assert_eq!(long[..short.len()], short);
    }

    #[test]
    fn ten_minutes_hold_every_kind_of_fault_and_are_about_ten_minutes() {
        for seed in 0..100 {
            let steps = plan(seed, MINUTE * 10, Pace::LONG);
            assert!(steps.len() > Kind::ALL.len(), "seed {seed}: {} steps", steps.len());
            let time: Duration = steps.iter().map(|step| step.before + step.lasts + Pace::LONG.healing).sum();
            assert!(time > MINUTE * 9 && time <= MINUTE * 10, "seed {seed}: {time:?}");
        }
    }
}
