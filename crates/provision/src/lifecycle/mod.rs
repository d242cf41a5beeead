//! The planner: decides the next action for a machine from its record and its observed state.
//!
//! It is level-triggered: a step changes the machine, and the observed state changes the phase. Nothing is lost if the
//! process ends between the two, and a machine that was changed from outside (powered off, wiped, repaired) continues from
//! its observed state. The phase only changes by observation.
//!
//! ```text
//! declared ─▶ allocating ─▶ deploying ─▶ booting ─▶ bootstrapping ─▶ provisioned
//!                 │             │           │  ▲          │             │    │
//!                 └─────────────┴───────────┼──┼──────────┴─────────────│────┘ broken, refused, timed out
//!                                           ▼  └────────────────────────┘ powered off
//!                                         failed ─▶ retried a limited number of times, then stuck
//!
//! any of these ─▶ releasing ─▶ gone, with the record          the node is decommissioned
//!                     │ ▲
//!                     ▼ │        failed ─▶ retried until it succeeds
//! ```

mod phases;
mod policy;

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use muster_core::names::NodeName;
use muster_core::node::record::{MachinePhase, MachineRecord, MachineStage};

use crate::driver::MachineObservation;

pub use phases::{enter, fail};
pub use policy::Policy;

/// A step of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineStep {
    Allocate,
    Deploy,
    Boot,
    Release,
}

impl MachineStep {
    /// The stage that fails if this step fails.
    pub fn stage(self) -> MachineStage {
        match self {
            MachineStep::Allocate => MachineStage::Allocating,
            MachineStep::Deploy => MachineStage::Deploying,
            MachineStep::Boot => MachineStage::Booting,
            MachineStep::Release => MachineStage::Releasing,
        }
    }
}

/// The next action for a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineDecision {
    /// Wait for a change, or until `recheck`.
    Hold { reason: MachineHoldReason, recheck: Option<Timestamp> },
    /// Run this step, then observe again.
    Do { step: MachineStep, attempt: u32 },
    /// Retry the failed step. If the driver accepts it, the machine enters that phase again.
    Retry { step: MachineStep, attempt: u32 },
    /// Record this phase.
    Goto { phase: MachinePhase, attempt: u32 },
    /// Record that the attempt failed.
    Fail { during: MachineStage, cause: FailureCause, attempt: u32 },
    /// The machine of a decommissioned node is gone: delete everything about the node.
    Retire,
}

/// Current facts about a machine, besides its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    pub observation: MachineObservation,
    /// The node's agent is connected.
    pub agent_connected: bool,
    /// Set if the node is being decommissioned.
    pub leaving: Option<PendingDecommission>,
}

/// The decommissioning of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDecommission {
    /// Nodes that have not run without it yet.
    pub waits_for: Vec<NodeName>,
    /// Deadline of the wait.
    pub until: Timestamp,
}

/// Decides the next action. `record` is `None` for a new node.
pub fn decide(
    record: Option<&MachineRecord>,
    facts: &MachineFacts,
    policy: &Policy,
    now: Timestamp,
) -> MachineDecision {
    let Some(record) = record else { return MachineDecision::Goto { phase: MachinePhase::Declared, attempt: 1 } };
    let context = phases::DecisionContext { record, facts, policy, now };
    match (&facts.leaving, &record.phase) {
        (Some(_), phase) if phase.is_releasing() => {}
        (Some(decommission), _) => return phases::decommissioned(&context, decommission),
        (None, phase) if phase.is_releasing() => return phases::needed_again(),
        (None, _) => {}
    }
    match &record.phase {
        MachinePhase::Declared => phases::declared(&context),
        MachinePhase::Allocating => phases::allocating(&context),
        MachinePhase::Deploying => phases::deploying(&context),
        MachinePhase::Booting => phases::booting(&context),
        MachinePhase::Bootstrapping => phases::bootstrapping(&context),
        MachinePhase::Provisioned => phases::provisioned(&context),
        MachinePhase::Failed { during, cause, retry } => phases::failed(&context, *during, cause, *retry),
        MachinePhase::Releasing => phases::releasing(&context),
    }
}

/// Reason that a machine does not progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineHoldReason {
    /// An accepted step is in progress.
    StepUnderway { stage: MachineStage },
    /// The machine runs, and its agent has to connect by then.
    AgentHello { until: Timestamp },
    /// It failed and is retried then.
    NextAttempt { attempt: u32, at: Timestamp },
    /// The node is being decommissioned, and these nodes have to run without it by then.
    OthersRunFirst { waits_for: Vec<NodeName>, until: Timestamp },
    /// The machine's controller is unreachable.
    ControllerSilent { cause: String },
    /// All attempts have failed: an operator has to act.
    GaveUp { during: MachineStage, cause: String, attempt: u32 },
    /// The machine is lost, and its content cannot be created again: an operator has to act.
    Lost,
    /// Nothing to do.
    Provisioned,
}

impl fmt::Display for MachineHoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineHoldReason::StepUnderway { stage } => write!(f, "{stage} is in progress"),
            MachineHoldReason::AgentHello { until } => write!(f, "waiting until {until} for its agent to connect"),
            MachineHoldReason::NextAttempt { attempt, at } => write!(f, "attempt {attempt} starts at {at}"),
            MachineHoldReason::OthersRunFirst { waits_for, until } => {
                let names: Vec<&str> = waits_for.iter().map(NodeName::as_str).collect();
                write!(f, "waiting until {until} for {} to run without it", names.join(", "))
            }
            MachineHoldReason::ControllerSilent { cause } => write!(f, "cannot observe the machine: {cause}"),
            MachineHoldReason::GaveUp { during, cause, attempt } => {
                write!(f, "gave up after attempt {attempt}, while {during}: {cause}")
            }
            MachineHoldReason::Lost => {
                f.write_str("the machine is lost, and the policy does not allow an automatic replacement")
            }
            MachineHoldReason::Provisioned => f.write_str("provisioned"),
        }
    }
}

/// Reason that an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The driver refused a step.
    Refused { cause: String, permanent: bool },
    /// The driver observed a failure.
    Broken { cause: String },
    /// The stage took too long.
    Timeout { within: SignedDuration },
    /// The machine runs, and its agent did not connect.
    NoHello { within: SignedDuration, log: Option<String> },
}

impl FailureCause {
    /// True if a retry would fail in the same way.
    pub(super) fn is_permanent(&self) -> bool {
        match self {
            FailureCause::Refused { permanent, .. } => *permanent,
            FailureCause::Broken { .. } | FailureCause::Timeout { .. } | FailureCause::NoHello { .. } => false,
        }
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureCause::Refused { cause, .. } | FailureCause::Broken { cause } => f.write_str(cause),
            FailureCause::Timeout { within } => write!(f, "timed out after {}", format_limit(*within)),
            FailureCause::NoHello { within, log } => {
                write!(f, "the agent did not connect within {}", format_limit(*within))?;
                log.as_ref().map_or(Ok(()), |log| write!(f, ": see {log}"))
            }
        }
    }
}

/// Formats a limit of whole seconds.
fn format_limit(limit: SignedDuration) -> String {
    let seconds = limit.as_secs();
    let (count, unit) = if seconds >= 60 && seconds % 60 == 0 { (seconds / 60, "minute") } else { (seconds, "second") };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_hello_names_the_log() {
        let cause = FailureCause::NoHello {
            within: SignedDuration::from_mins(2),
            log: Some(".muster/nodes/web1/agent.log".into()),
        };
        assert_eq!(cause.to_string(), "the agent did not connect within 2 minutes: see .muster/nodes/web1/agent.log");
        assert_eq!(
            FailureCause::Timeout { within: SignedDuration::from_secs(90) }.to_string(),
            "timed out after 90 seconds"
        );
        assert_eq!(format_limit(SignedDuration::from_secs(60)), "1 minute");
    }
}
