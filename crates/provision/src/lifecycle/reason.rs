//! Reasons why a machine waits, is stuck or has failed.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use muster_core::names::NodeName;
use muster_core::node::record::MachineStage;

/// Reason that a machine waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldReason {
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
    /// Nothing to do.
    Provisioned,
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldReason::StepUnderway { stage } => write!(f, "{stage} is in progress"),
            HoldReason::AgentHello { until } => write!(f, "waiting until {until} for its agent to connect"),
            HoldReason::NextAttempt { attempt, at } => write!(f, "attempt {attempt} starts at {at}"),
            HoldReason::OthersRunFirst { waits_for, until } => {
                let names: Vec<&str> = waits_for.iter().map(NodeName::as_str).collect();
                write!(f, "waiting until {until} for {} to run without it", names.join(", "))
            }
            HoldReason::ControllerSilent { cause } => write!(f, "cannot observe the machine: {cause}"),
            HoldReason::Provisioned => f.write_str("provisioned"),
        }
    }
}

/// Reason that an operator has to act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StuckReason {
    /// All attempts have failed.
    GaveUp { during: MachineStage, cause: String, attempt: u32 },
    /// The machine is lost, and its content cannot be created again.
    Lost,
}

impl fmt::Display for StuckReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StuckReason::GaveUp { during, cause, attempt } => {
                write!(f, "gave up after attempt {attempt}, while {during}: {cause}")
            }
            StuckReason::Lost => {
                f.write_str("the machine is lost, and the policy does not allow an automatic replacement")
            }
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
