//! Generates random scenarios of rollouts under faults. Pure: the same seed gives the same scenarios.
//!
//! The faults are those of [`plan`](crate::cluster::plan), in the same order. During each of them a rollout runs: the
//! fault comes when some nodes have been granted, and an operator sends a command during or after it.

use std::fmt;
use std::time::Duration;

use crate::cluster::fault::{ClusterFault, FaultyReplica};
use crate::cluster::plan::{FaultStep, Pace, PlanRng, plan};

/// Time of one rollout of [`FleetSize::soaked`](super::fleet::FleetSize::soaked) with its checks.
pub const PACE: Pace = Pace { healing: Duration::from_secs(40), ..Pace::SHORT };

/// One rollout with its fault and operator command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Number of grants before the fault.
    pub granted: u64,
    pub fault: ClusterFault,
    pub lasts: Duration,
    /// It begins after the first, and ends after it.
    pub second: Option<ClusterFault>,
    pub intervention: Intervention,
    /// True if the operator command is sent during the fault; otherwise after it.
    pub during_fault: bool,
}

/// Operator command, or decision of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intervention {
    /// No command.
    NoCommand,
    PauseAndResume,
    /// Another rollout supersedes it.
    Supersede,
    RollBack,
    Abort,
    /// The gate of the second stage fails, which causes an automatic rollback.
    GateFails,
}

impl Intervention {
    const ALL: [Intervention; 6] = [
        Intervention::NoCommand,
        Intervention::PauseAndResume,
        Intervention::Supersede,
        Intervention::RollBack,
        Intervention::Abort,
        Intervention::GateFails,
    ];

    /// Number of grants before the fault, so that the command still has an effect.
    fn granted(self, rng: &mut PlanRng) -> u64 {
        let most = match self {
            Intervention::NoCommand
            | Intervention::PauseAndResume
            | Intervention::Supersede
            | Intervention::RollBack
            | Intervention::Abort => 12,
            // All in the first stage, before the gate runs.
            Intervention::GateFails => 4,
        };
        u64::try_from(rng.below(most) + 1).unwrap_or(1)
    }
}

impl Scenario {
    fn from_step(step: FaultStep, intervention: Intervention, rng: &mut PlanRng) -> Self {
        let FaultStep { fault, lasts, second, before: _, quiet: _ } = step;
        let granted = intervention.granted(rng);
        let during_fault = rng.below(2) == 0 && leaves_a_replica(fault);
        Self {
            granted,
            fault: target_rollout_holder(fault),
            lasts,
            second: second.map(target_rollout_holder),
            intervention,
            during_fault,
        }
    }
}

/// Replaces the target by the replica that executes the rollout.
fn target_rollout_holder(fault: ClusterFault) -> ClusterFault {
    match fault {
        ClusterFault::KillReplica(FaultyReplica::LivenessHolder) => {
            ClusterFault::KillReplica(FaultyReplica::RolloutHolder)
        }
        ClusterFault::StopReplica(FaultyReplica::LivenessHolder) => {
            ClusterFault::StopReplica(FaultyReplica::RolloutHolder)
        }
        ClusterFault::CompactUnder(FaultyReplica::LivenessHolder) => {
            ClusterFault::CompactUnder(FaultyReplica::RolloutHolder)
        }
        ClusterFault::KillMember(_)
        | ClusterFault::KillEtcd
        | ClusterFault::StopMember(_)
        | ClusterFault::WipeMember(_)
        | ClusterFault::KillReplica(_)
        | ClusterFault::KillReplicas
        | ClusterFault::StopReplica(_)
        | ClusterFault::CompactUnder(_)
        | ClusterFault::ExhaustQuota
        | ClusterFault::CutStreams => fault,
    }
}

/// True if a replica can accept a command during the fault.
fn leaves_a_replica(fault: ClusterFault) -> bool {
    match fault {
        ClusterFault::KillMember(_)
        | ClusterFault::StopMember(_)
        | ClusterFault::WipeMember(_)
        | ClusterFault::KillReplica(_)
        | ClusterFault::StopReplica(_)
        | ClusterFault::CompactUnder(_)
        | ClusterFault::CutStreams => true,
        ClusterFault::KillEtcd | ClusterFault::KillReplicas | ClusterFault::ExhaustQuota => false,
    }
}

/// Scenarios for about this time. Every command occurs once before any occurs twice.
pub fn scenarios(seed: u64, time: Duration, pace: Pace) -> Vec<Scenario> {
    let mut rng = PlanRng::new(seed ^ 0x5eed);
    let mut turns: Vec<Intervention> = Vec::new();
    let scenario = |step| {
        if turns.is_empty() {
            turns = Intervention::ALL.to_vec();
        }
        let intervention = turns.swap_remove(rng.below(turns.len()));
        Scenario::from_step(step, intervention, &mut rng)
    };
    plan(seed, time, pace).into_iter().map(scenario).collect()
}

impl fmt::Display for Intervention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Intervention::NoCommand => "completes",
            Intervention::PauseAndResume => "is paused and resumed",
            Intervention::Supersede => "is superseded",
            Intervention::RollBack => "is rolled back",
            Intervention::Abort => "is aborted",
            Intervention::GateFails => "fails its gate and rolls back automatically",
        })
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { granted, fault, lasts, second, intervention, during_fault } = self;
        let nodes = if *granted == 1 { "node" } else { "nodes" };
        write!(f, "a rollout {intervention}; after {granted} {nodes}: {fault} for {lasts:?}")?;
        if let Some(second) = second {
            write!(f, ", and meanwhile {second}")?;
        }
        match intervention {
            Intervention::NoCommand | Intervention::GateFails => Ok(()),
            Intervention::PauseAndResume | Intervention::Supersede | Intervention::RollBack | Intervention::Abort => {
                f.write_str(if *during_fault { "; command during the fault" } else { "; command after the fault" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn same_seed_gives_the_same_scenarios() {
        let (short, long) = (scenarios(7, MINUTE * 3, PACE), scenarios(7, MINUTE * 10, PACE));
        assert_eq!(scenarios(7, MINUTE * 10, PACE), long);
        assert_eq!(long[..short.len()], short);
        assert_ne!(scenarios(8, MINUTE * 10, PACE), long);
    }

    #[test]
    fn ten_minutes_contain_every_command() {
        for seed in 0..100 {
            let generated = scenarios(seed, MINUTE * 10, PACE);
            assert!(
                Intervention::ALL
                    .iter()
                    .all(|intervention| generated.iter().any(|scenario| scenario.intervention == *intervention)),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn no_command_while_all_replicas_are_down() {
        for scenario in (0..100).flat_map(|seed| scenarios(seed, MINUTE * 10, PACE)) {
            assert!(!scenario.during_fault || leaves_a_replica(scenario.fault), "{scenario}");
        }
    }
}
