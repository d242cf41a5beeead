//! Why a machine does not move, or has failed: values, which only the edge turns into words.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use muster_core::names::NodeName;
use muster_core::node::record::MachineStage;

/// What a machine waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// A step that was accepted has not ended yet.
    StepUnderway { stage: MachineStage },
    /// The machine runs; its agent has until then to say hello.
    AgentHello { until: Timestamp },
    /// It failed, and is tried again then.
    NextAttempt { attempt: u32, at: Timestamp },
    /// The node leaves, and these have until then to run without it.
    OthersRunFirst { waits_for: Vec<NodeName>, until: Timestamp },
    /// The machine's controller could not be asked.
    ControllerSilent { cause: String },
    /// It waits for nothing.
    Provisioned,
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HoldReason::StepUnderway { stage } => write!(f, "{stage} is under way"),
            HoldReason::AgentHello { until } => write!(f, "waiting until {until} for its agent to say hello"),
            HoldReason::NextAttempt { attempt, at } => write!(f, "attempt {attempt} is made at {at}"),
            HoldReason::OthersRunFirst { waits_for, until } => {
                let names: Vec<&str> = waits_for.iter().map(NodeName::as_str).collect();
                write!(f, "waiting until {until} for {} to run without it", names.join(", "))
            }
            HoldReason::ControllerSilent { cause } => write!(f, "cannot tell how the machine is: {cause}"),
            HoldReason::Provisioned => f.write_str("provisioned"),
        }
    }
}

/// What somebody has to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StuckReason {
    /// No further attempt is made.
    GaveUp { during: MachineStage, cause: String, attempt: u32 },
    /// The machine is gone, and what was on it cannot be made again by a new one.
    Lost,
}

impl fmt::Display for StuckReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StuckReason::GaveUp { during, cause, attempt } => {
                write!(f, "gave up after attempt {attempt}, while {during}: {cause}")
            }
            StuckReason::Lost => f.write_str("the machine is gone, and must not be replaced without being asked to"),
        }
    }
}

/// Why an attempt has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The driver did not do it.
    Refused { cause: String, lasting: bool },
    /// The driver has seen it fail.
    SeenBroken { cause: String },
    /// It was under way for too long.
    TooLate { within: SignedDuration },
    /// The machine runs, and its agent does not speak.
    NoHello { within: SignedDuration, log: Option<String> },
}

impl FailureCause {
    /// Whether another attempt would end the same way.
    pub(super) fn is_lasting(&self) -> bool {
        match self {
            FailureCause::Refused { lasting, .. } => *lasting,
            FailureCause::SeenBroken { .. } | FailureCause::TooLate { .. } | FailureCause::NoHello { .. } => false,
        }
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureCause::Refused { cause, .. } | FailureCause::SeenBroken { cause } => f.write_str(cause),
            FailureCause::TooLate { within } => write!(f, "it did not come about within {}", words(*within)),
            FailureCause::NoHello { within, log } => {
                write!(f, "the agent did not say hello within {}", words(*within))?;
                log.as_ref().map_or(Ok(()), |log| write!(f, ": see {log}"))
            }
        }
    }
}

/// A limit as people say it. Limits are whole seconds.
fn words(limit: SignedDuration) -> String {
    let seconds = limit.as_secs();
    let (count, unit) = if seconds >= 60 && seconds % 60 == 0 { (seconds / 60, "minute") } else { (seconds, "second") };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_agent_is_told_with_the_place_to_look() {
        let cause = FailureCause::NoHello {
            within: SignedDuration::from_mins(2),
            log: Some(".muster/nodes/web1/agent.log".into()),
        };
        assert_eq!(cause.to_string(), "the agent did not say hello within 2 minutes: see .muster/nodes/web1/agent.log");
        assert_eq!(
            FailureCause::TooLate { within: SignedDuration::from_secs(90) }.to_string(),
            "it did not come about within 90 seconds"
        );
        assert_eq!(words(SignedDuration::from_secs(60)), "1 minute");
    }
}
