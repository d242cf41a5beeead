//! Rollouts under faults, in random order: pure, so that the same seed is the same story.
//!
//! The faults are those of [`plan`](crate::cluster::plan), in the same order. Around each of them a rollout is told: it is
//! begun, the fault comes when some nodes have been granted, and somebody says something meanwhile, or afterwards.

use std::fmt;
use std::time::Duration;

use crate::cluster::fault::{Fault, Replica};
use crate::cluster::plan::{Dice, Pace, Step, plan};

/// The last thing that a rollout needs is time: this is for one of [`Size::soaked`](super::fleet::Size::soaked), and its
/// judgement.
pub const PACE: Pace = Pace { healing: Duration::from_secs(40), ..Pace::SHORT };

/// One rollout, and what happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chapter {
    /// The fault comes when so many nodes have been granted.
    pub granted: u64,
    pub fault: Fault,
    pub lasts: Duration,
    /// It begins after the first, and ends after it.
    pub second: Option<Fault>,
    pub turn: Turn,
    /// Whether the operator speaks in the middle of the fault; else when it is over.
    pub amid: bool,
}

/// What an operator says, or a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nobody says anything.
    Through,
    PauseAndResume,
    /// Another rollout is begun in its place.
    Supersede,
    RollBack,
    Abort,
    /// The gate of the second stage says no: it goes back by itself.
    GateSaysNo,
}

impl Turn {
    const ALL: [Turn; 6] =
        [Turn::Through, Turn::PauseAndResume, Turn::Supersede, Turn::RollBack, Turn::Abort, Turn::GateSaysNo];

    /// Grants after which the fault comes: where there is something left to be said.
    fn granted(self, dice: &mut Dice) -> u64 {
        let most = match self {
            Turn::Through | Turn::PauseAndResume | Turn::Supersede | Turn::RollBack | Turn::Abort => 12,
            // All of them in the first stage, so that the gate has not been asked yet.
            Turn::GateSaysNo => 4,
        };
        u64::try_from(dice.throw(most) + 1).unwrap_or(1)
    }
}

impl Chapter {
    fn of(step: Step, turn: Turn, dice: &mut Dice) -> Self {
        let Step { fault, lasts, second, before: _, quiet: _ } = step;
        let granted = turn.granted(dice);
        let amid = dice.throw(2) == 0 && leaves_somebody(fault);
        Self { granted, fault: whoever_acts(fault), lasts, second: second.map(whoever_acts), turn, amid }
    }
}

/// The one that matters most is now the one that carries the rollout out.
fn whoever_acts(fault: Fault) -> Fault {
    match fault {
        Fault::KillReplica(Replica::Holder) => Fault::KillReplica(Replica::Acting),
        Fault::StopReplica(Replica::Holder) => Fault::StopReplica(Replica::Acting),
        Fault::CompactUnder(Replica::Holder) => Fault::CompactUnder(Replica::Acting),
        Fault::KillMember(_)
        | Fault::KillEtcd
        | Fault::StopMember(_)
        | Fault::WipeMember(_)
        | Fault::KillReplica(_)
        | Fault::KillReplicas
        | Fault::StopReplica(_)
        | Fault::CompactUnder(_)
        | Fault::ExhaustQuota
        | Fault::CutStreams => fault,
    }
}

/// Whether anybody can take a word while it lasts.
fn leaves_somebody(fault: Fault) -> bool {
    match fault {
        Fault::KillMember(_)
        | Fault::StopMember(_)
        | Fault::WipeMember(_)
        | Fault::KillReplica(_)
        | Fault::StopReplica(_)
        | Fault::CompactUnder(_)
        | Fault::CutStreams => true,
        Fault::KillEtcd | Fault::KillReplicas | Fault::ExhaustQuota => false,
    }
}

/// Chapters for about so long. Every turn comes once before any comes twice.
pub fn chapters(seed: u64, time: Duration, pace: Pace) -> Vec<Chapter> {
    let mut dice = Dice::new(seed ^ 0x5eed);
    let mut turns: Vec<Turn> = Vec::new();
    let chapter = |step| {
        if turns.is_empty() {
            turns = Turn::ALL.to_vec();
        }
        let turn = turns.swap_remove(dice.throw(turns.len()));
        Chapter::of(step, turn, &mut dice)
    };
    plan(seed, time, pace).into_iter().map(chapter).collect()
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Turn::Through => "goes through",
            Turn::PauseAndResume => "is paused, and resumed",
            Turn::Supersede => "is superseded",
            Turn::RollBack => "is rolled back",
            Turn::Abort => "is aborted",
            Turn::GateSaysNo => "is stopped by its gate, and goes back by itself",
        })
    }
}

impl fmt::Display for Chapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { granted, fault, lasts, second, turn, amid } = self;
        let nodes = if *granted == 1 { "node" } else { "nodes" };
        write!(f, "a rollout {turn}; after {granted} {nodes}: {fault} for {lasts:?}")?;
        if let Some(second) = second {
            write!(f, ", and meanwhile {second}")?;
        }
        match turn {
            Turn::Through | Turn::GateSaysNo => Ok(()),
            Turn::PauseAndResume | Turn::Supersede | Turn::RollBack | Turn::Abort => {
                f.write_str(if *amid { "; that is said amid it" } else { "; that is said after it" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_same_seed_is_the_same_story_and_a_longer_one_begins_as_the_shorter() {
        let (short, long) = (chapters(7, MINUTE * 3, PACE), chapters(7, MINUTE * 10, PACE));
        assert_eq!(chapters(7, MINUTE * 10, PACE), long);
        assert_eq!(long[..short.len()], short);
        assert_ne!(chapters(8, MINUTE * 10, PACE), long);
    }

    #[test]
    fn ten_minutes_hold_every_turn() {
        for seed in 0..100 {
            let told = chapters(seed, MINUTE * 10, PACE);
            assert!(Turn::ALL.iter().all(|turn| told.iter().any(|chapter| chapter.turn == *turn)), "seed {seed}");
        }
    }

    #[test]
    fn nobody_speaks_where_nobody_can_hear() {
        for chapter in (0..100).flat_map(|seed| chapters(seed, MINUTE * 10, PACE)) {
            assert!(!chapter.amid || leaves_somebody(chapter.fault), "{chapter}");
        }
    }
}
