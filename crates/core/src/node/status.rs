//! Status of a node: one state and, if the node is not validated at its desired version, the reason.
//!
//! The status combines four facts that are stored apart: machine, connection, activity of the agent, and service state.
//! [`Reason`] says why a node does not progress; [`Hold`](crate::rollout::progress::Hold) says it for a rollout, with
//! the node as part of the value and under another tag in JSON.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fleet::{DesiredVersion, Fleet, Node};
use crate::names::{NodeName, RunId, Version};
use crate::node::agent::{CallInterval, IncompatibleProtocol};
use crate::node::decommission;
use crate::node::liveness::Link;
use crate::node::pause::NodePause;
use crate::node::record::MachinePhase;
use crate::node::service_state::{ConfigureResult, ServiceState, ValidationResult};
use crate::report::ResourceError;
use crate::report::reason::{Need, RunReason};

/// Current activity of the agent. It is not stored and ends with the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "activity", rename_all = "snake_case")]
pub enum Activity {
    #[default]
    Idle,
    Applying {
        run: RunId,
        version: Version,
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    Validating {
        run: RunId,
        version: Version,
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// The last run failed, or waits for something that only another run can detect. The next run is scheduled.
    Retrying {
        attempt: u32,
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
    },
    /// The agent cannot act, for example because its disk is full.
    Blocked { problem: String },
}

/// State of a node for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Removed from the design: out of service, its machine is being released.
    Leaving,
    /// In the design. Its machine is being provisioned.
    Provisioning,
    /// Provisioning of its machine failed.
    Unprovisioned,
    /// Its agent is not connected.
    Silent,
    Applying,
    Validating,
    /// Waits for another node.
    Pending,
    /// The applier failed.
    Failed,
    /// The validation failed.
    Invalid,
    /// Its agent cannot act.
    Blocked,
    /// Has not begun to run its desired version.
    Outdated,
    /// Configured. Its validation has not been reported.
    Configured,
    /// Has validated its desired version.
    Validated,
}

impl NodeState {
    /// In the order of a node's way into service.
    pub const ALL: [NodeState; 13] = [
        NodeState::Leaving,
        NodeState::Provisioning,
        NodeState::Unprovisioned,
        NodeState::Silent,
        NodeState::Applying,
        NodeState::Validating,
        NodeState::Pending,
        NodeState::Failed,
        NodeState::Invalid,
        NodeState::Blocked,
        NodeState::Outdated,
        NodeState::Configured,
        NodeState::Validated,
    ];

    /// Values of a filter on states: the labels of screens with `_` for a space, in the order of [`NodeState::ALL`].
    pub const FILTER_VALUES: [&'static str; 13] = {
        let (mut values, mut at) = ([""; 13], 0);
        while at < NodeState::ALL.len() {
            values[at] = NodeState::ALL[at].filter_value();
            at += 1;
        }
        values
    };

    /// Names in JSON that differ from the labels: a filter accepts them, too.
    pub const FILTER_ALIASES: [&'static str; 2] = [NodeState::Silent.as_str(), NodeState::Invalid.as_str()];

    /// Name in JSON, keys and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            NodeState::Leaving => "leaving",
            NodeState::Provisioning => "provisioning",
            NodeState::Unprovisioned => "unprovisioned",
            NodeState::Silent => "silent",
            NodeState::Applying => "applying",
            NodeState::Validating => "validating",
            NodeState::Pending => "pending",
            NodeState::Failed => "failed",
            NodeState::Invalid => "invalid",
            NodeState::Blocked => "blocked",
            NodeState::Outdated => "outdated",
            NodeState::Configured => "configured",
            NodeState::Validated => "validated",
        }
    }

    /// Name on screens.
    pub const fn label(self) -> &'static str {
        match self {
            NodeState::Silent => UNREACHABLE,
            NodeState::Invalid => "checks failed",
            NodeState::Leaving
            | NodeState::Provisioning
            | NodeState::Unprovisioned
            | NodeState::Applying
            | NodeState::Validating
            | NodeState::Pending
            | NodeState::Failed
            | NodeState::Blocked
            | NodeState::Outdated
            | NodeState::Configured
            | NodeState::Validated => self.as_str(),
        }
    }

    /// The label with `_` for a space, which a filter would have to quote.
    const fn filter_value(self) -> &'static str {
        if matches!(self, NodeState::Invalid) { "checks_failed" } else { self.label() }
    }

    /// Tests the values of a filter that select this state: its label, and its name in JSON.
    pub fn any_filter_value(self, test: &mut dyn FnMut(&str) -> bool) -> bool {
        test(self.filter_value()) || self.filter_value() != self.as_str() && test(self.as_str())
    }
}

/// Label of a node whose agent is not connected.
pub const UNREACHABLE: &str = "unreachable";

/// Reason why a node is not validated at its desired version. Every node that is not validated has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Reason {
    /// The node leaves. Its machine runs until these nodes have run without it, or until a timeout.
    Leaving {
        /// First nodes that it waits for.
        waits_for: Vec<NodeName>,
        /// Number of further nodes.
        #[serde(default, skip_serializing_if = "is_none")]
        more: usize,
        #[schema(value_type = String, format = DateTime)]
        until: Timestamp,
    },
    /// Its machine is being provisioned or released, or that failed.
    Machine {
        #[serde(flatten)]
        phase: MachinePhase,
        attempt: u32,
    },
    Silent,
    /// A run is in progress.
    Running {
        run: RunId,
    },
    /// The environment has no version yet.
    NoVersion,
    /// The run of the desired version has not begun.
    Behind {
        version: Version,
    },
    /// The run of the desired version has not begun: cron starts the agent, and has not started it since.
    NotDue {
        version: Version,
        every: CallInterval,
        /// Time of its next call.
        #[schema(value_type = String, format = DateTime)]
        due: Timestamp,
    },
    /// Its agent is refused: agent and server speak protocols that are too far apart.
    Incompatible {
        /// Version of the agent.
        version: String,
        #[serde(flatten)]
        protocols: IncompatibleProtocol,
    },
    /// The run of the desired version has not begun because of a pause.
    Paused {
        /// Desired version.
        version: Version,
        #[serde(flatten)]
        paused: NodePause,
    },
    Waiting {
        needs: Vec<Need>,
        /// Next run, for needs that no change in the store can announce.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        retry: Option<Timestamp>,
    },
    Failed {
        reason: Option<RunReason>,
        errors: Vec<ResourceError>,
        attempt: u32,
        /// Next attempt of the agent.
        #[schema(value_type = Option<String>, format = DateTime)]
        retry: Option<Timestamp>,
    },
    Blocked {
        problem: String,
    },
    NotValidated,
    /// Its machine was restarted, and it has not been validated since.
    Restarted,
    /// Its agent got a new incarnation, and it has not been validated since.
    Renewed,
}

impl Reason {
    /// Name of the reason in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Reason::Leaving { .. } => "leaving",
            Reason::Machine { .. } => "machine",
            Reason::Silent => "silent",
            Reason::Running { .. } => "running",
            Reason::NoVersion => "no_version",
            Reason::Behind { .. } => "behind",
            Reason::NotDue { .. } => "not_due",
            Reason::Incompatible { .. } => "incompatible",
            Reason::Paused { .. } => "paused",
            Reason::Waiting { .. } => "waiting",
            Reason::Failed { .. } => "failed",
            Reason::Blocked { .. } => "blocked",
            Reason::NotValidated => "not_validated",
            Reason::Restarted => "restarted",
            Reason::Renewed => "renewed",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Leaving { waits_for, .. } if waits_for.is_empty() => {
                f.write_str("its machine is about to be released")
            }
            Reason::Leaving { waits_for, more, until } => {
                let (names, have) = (named(waits_for, *more), if waits_for.len() == 1 { "has" } else { "have" });
                let at = until.strftime("%H:%M:%S");
                write!(f, "waits until {names} {have} run without it, at the latest until {at} UTC")
            }
            Reason::Machine { phase: MachinePhase::Failed { during, cause, .. }, attempt } => {
                write!(f, "its machine failed while {during} (attempt {attempt}): {cause}")
            }
            Reason::Machine { phase: MachinePhase::Releasing, .. } => f.write_str("its machine is being released"),
            Reason::Machine { phase, .. } => write!(f, "its machine is {}", phase.word()),
            Reason::Silent => f.write_str("its agent is not connected"),
            Reason::Running { run } => write!(f, "run {run} is in progress"),
            Reason::NoVersion => f.write_str("no version was chosen yet: run `muster trigger-update VERSION`"),
            Reason::Behind { version } => write!(f, "has not begun to run {version}"),
            Reason::NotDue { version, every, due } => {
                let due = due.strftime("%F %T");
                write!(f, "has not begun to run {version}: cron starts its agent every {every}, next call by {due} UTC")
            }
            Reason::Incompatible { version, protocols } => {
                write!(f, "its agent {version} is refused: {protocols}; {}", protocols.hint())
            }
            Reason::Paused { version, paused } => write!(f, "has not begun to run {version}: {paused}"),
            Reason::Waiting { needs, .. } => {
                // The counts are newer than the run: needs that are met by now are not what the node waits for.
                let unmet: Vec<Need> = needs.iter().filter(|need| !need.is_met()).cloned().collect();
                if unmet.is_empty() && !needs.is_empty() {
                    return f.write_str("waited for other nodes; its needs are met now, and it runs again soon");
                }
                write!(f, "{}", RunReason::Waiting { needs: unmet })
            }
            Reason::Failed { reason, errors, .. } => match (reason, errors.first()) {
                (_, Some(error)) => write!(f, "{error}"),
                (Some(reason), None) => write!(f, "{reason}"),
                (None, None) => f.write_str("failed without a reason"),
            },
            Reason::Blocked { problem } => f.write_str(problem),
            Reason::NotValidated => f.write_str("configured; its validation has not been reported"),
            Reason::Restarted => f.write_str("its machine was restarted, and it has not been validated since"),
            Reason::Renewed => f.write_str("its agent has a new incarnation, and it has not been validated since"),
        }
    }
}

/// Maximum number of nodes to name in a reason.
const NAMED: usize = 5;

fn is_none(more: &usize) -> bool {
    *more == 0
}

fn named(names: &[NodeName], more: usize) -> String {
    let mut shown: Vec<String> = names.iter().map(NodeName::to_string).collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    match shown.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some(_) | None => shown.join(""),
    }
}

/// State of a node with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    pub state: NodeState,
    /// Begin of the state, if known.
    pub since: Option<Timestamp>,
    pub reason: Option<Reason>,
}

/// Determines the status of a node from its machine, its connection, the activity of its agent and its last run.
///
/// A pause is a reason only where a run is missing. A node at its desired version is validated although it is paused,
/// and a failed node reports its failure.
pub fn node_status(
    fleet: &Fleet,
    node: &Node,
    desired: Option<&DesiredVersion>,
    link: Link,
    activity: &Activity,
    paused: Option<&NodePause>,
) -> NodeStatus {
    let machine = node.machine.as_ref().map(|(machine, _)| machine);
    if let Some(leaving) = node.record.as_ref().and_then(|record| record.leaving) {
        let releasing = machine.filter(|machine| machine.phase.is_releasing());
        let why = match releasing {
            Some(machine) => Reason::Machine { phase: machine.phase.clone(), attempt: machine.attempt },
            None => {
                let mut waits_for = decommission::dependents(fleet, node);
                let more = waits_for.len().saturating_sub(NAMED);
                waits_for.truncate(NAMED);
                Reason::Leaving { waits_for, more, until: leaving.until }
            }
        };
        return not_ready(NodeState::Leaving, Some(leaving.since), why);
    }
    if let Some(machine) = machine.filter(|machine| machine.phase != MachinePhase::Provisioned) {
        let failed = matches!(machine.phase, MachinePhase::Failed { .. });
        let word = if failed { NodeState::Unprovisioned } else { NodeState::Provisioning };
        let why = Reason::Machine { phase: machine.phase.clone(), attempt: machine.attempt };
        return not_ready(word, Some(machine.since), why);
    }
    if let Link::Silent { since } = link {
        let incompatible = node.agent().and_then(|agent| Some((agent.version.clone(), agent.incompatible()?)));
        let why = match incompatible {
            Some((version, protocols)) => Reason::Incompatible { version, protocols },
            None => Reason::Silent,
        };
        return not_ready(NodeState::Silent, Some(since), why);
    }
    match activity {
        Activity::Applying { run, since, .. } => {
            return not_ready(NodeState::Applying, Some(*since), Reason::Running { run: run.clone() });
        }
        Activity::Validating { run, since, .. } => {
            return not_ready(NodeState::Validating, Some(*since), Reason::Running { run: run.clone() });
        }
        Activity::Blocked { problem } => {
            return not_ready(NodeState::Blocked, None, Reason::Blocked { problem: problem.clone() });
        }
        Activity::Idle | Activity::Retrying { .. } => {}
    }
    let Some(desired) = desired else { return not_ready(NodeState::Outdated, None, Reason::NoVersion) };
    let answered = |state: &ServiceState| *state.version() == desired.version && node.has_answered(desired.generation);
    let Some((state, leaf)) = node.state().filter(|(state, _)| answered(state)) else {
        let version = desired.version.clone();
        let why = match paused {
            Some(paused) => Reason::Paused { version, paused: paused.clone() },
            None => match link {
                Link::BetweenCalls { every, due, .. } => Reason::NotDue { version, every, due },
                Link::Connected { .. } | Link::Silent { .. } => Reason::Behind { version },
            },
        };
        return not_ready(NodeState::Outdated, None, why);
    };
    let since = Some(leaf.since);
    let reason = match state {
        ServiceState::Validated { result: ValidationResult::Success, .. } if rebooted(node) => {
            return not_ready(NodeState::Outdated, since, Reason::Restarted);
        }
        ServiceState::Validated { result: ValidationResult::Success, .. } if renewed(node) => {
            return not_ready(NodeState::Outdated, since, Reason::Renewed);
        }
        ServiceState::Validated { result: ValidationResult::Success, .. } => None,
        ServiceState::Configured { result: ConfigureResult::Success, .. } => Some(Reason::NotValidated),
        ServiceState::Configured { result: ConfigureResult::Pending, .. } => {
            Some(Reason::Waiting { needs: needs_now(fleet, node), retry: retry(activity) })
        }
        ServiceState::Configured { result: ConfigureResult::Failure, .. }
        | ServiceState::Validated { result: ValidationResult::Failure, .. } => Some(failure(node, activity)),
    };
    NodeStatus { state: state.node_state(), since, reason }
}

fn not_ready(state: NodeState, since: Option<Timestamp>, reason: Reason) -> NodeStatus {
    NodeStatus { state, since, reason: Some(reason) }
}

/// Needs of a pending node with the current counts. The counts of the run may be out of date.
fn needs_now(fleet: &Fleet, node: &Node) -> Vec<Need> {
    let Some(RunReason::Waiting { needs }) = last(node).and_then(|last| last.reason.clone()) else { return Vec::new() };
    let now = |need: Need| match need {
        Need::Role { role, want, .. } => Need::Role { have: fleet.active_count(&role), role, want },
        Need::Published { key, want, .. } => Need::Published { have: fleet.published_count(&key), key, want },
        Need::Leader { .. } | Need::Other { .. } => need,
    };
    needs.into_iter().map(now).collect()
}

/// Time of the next run that the agent has scheduled.
pub(super) fn retry(activity: &Activity) -> Option<Timestamp> {
    if let Activity::Retrying { at, .. } = activity { Some(*at) } else { None }
}

pub(super) fn failure(node: &Node, activity: &Activity) -> Reason {
    let last = last(node);
    Reason::Failed {
        reason: last.and_then(|last| last.reason.clone()),
        errors: last.map(|last| last.errors.clone()).unwrap_or_default(),
        attempt: last.map_or(0, |last| last.attempt),
        retry: retry(activity),
    }
}

fn rebooted(node: &Node) -> bool {
    node.observed.as_ref().is_some_and(|(observed, _)| observed.rebooted)
}

fn renewed(node: &Node) -> bool {
    node.observed.as_ref().is_some_and(|(observed, _)| observed.renewed)
}

fn last(node: &Node) -> Option<&crate::report::record::LastRun> {
    node.observed.as_ref().and_then(|(observed, _)| observed.last.as_ref())
}
