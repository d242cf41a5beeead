//! Records of rollouts in the store: `rollouts/active`, `rollouts/<id>` and the grants in `desired/<node>`.

use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{NodeName, Version};
use crate::report::ResourceError;
use crate::txn::{Generation, Revision};

use crate::rollout::RolloutId;

/// `rollouts/active`: the rollout that decides the version of nodes without a grant. It stays after the rollout has
/// ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActiveRollout {
    pub id: RolloutId,
    /// Version of nodes until they are granted. None before the first version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<FromVersion>,
    pub to: Version,
    /// Grants of rollouts before this one are not valid: it moved all nodes.
    pub floor: RolloutId,
    #[serde(default)]
    pub at_once: bool,
    /// All nodes have moved. Nodes without a grant run `current_version`.
    #[serde(default)]
    pub completed: bool,
}

/// Version that nodes should run before a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FromVersion {
    pub version: Version,
    /// Generation under which it was sent. The nodes are not sent the version again.
    pub generation: Generation,
    #[serde(default)]
    pub allow_older: bool,
}

/// `desired/<node>`: the grant. Its revision is the generation that the node is sent, and fences its reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredRecord {
    pub version: Version,
    /// Rollout that granted it.
    pub rollout: RolloutId,
    #[schema(value_type = String, format = DateTime)]
    pub granted: Timestamp,
    /// A node that is not healthy by then counts as failed. None for nodes that were skipped or are not waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_older: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub confirm_within: Option<SignedDuration>,
    /// An operator skipped the node. It keeps this generation and is not sent the version again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Generation>,
}

/// `rollouts/<id>`. Each step of the engine and each operator command rewrites it. Writes are guarded by its revision,
/// so a decision on an older record fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutRecord {
    pub id: RolloutId,
    /// Idempotency key of the request that started it.
    pub request: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Version>,
    /// Every node had validated `from` when this rollout started. It can be rolled back to then.
    #[serde(default, alias = "from_proved")]
    pub from_validated: bool,
    pub to: Version,
    /// Digest of the blob with the plan.
    pub plan: String,
    /// Digest of the blob with the final state of each node. Later rollouts overwrite the grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolls_back: Option<RolloutId>,
    #[serde(default)]
    pub at_once: bool,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    #[serde(flatten)]
    pub phase: RolloutPhase,
    #[schema(value_type = String, format = DateTime)]
    pub phase_since: Timestamp,
    /// Waves that have begun, in the order of the plan. The last one is in progress.
    pub waves: Vec<WaveState>,
    /// Completed with every node at the target: none skipped, none failed, at least one validated. The target is a
    /// rollback target then.
    #[serde(rename = "whole", default)]
    pub all_nodes_at_target: bool,
    /// Decisions of operators on this rollout.
    #[serde(flatten)]
    pub operator: OperatorDecisions,
    /// Progress at the engine's last step.
    #[serde(flatten)]
    pub steps: StepProgress,
}

/// Decisions of operators on a rollout, part of [`RolloutRecord`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorDecisions {
    /// No further wave needs a promotion.
    #[serde(rename = "full", default)]
    pub promotes_all: bool,
    /// Nodes skipped by an operator.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub skipped: BTreeSet<NodeName>,
    /// Nodes whose slots an operator released. They no longer count for the budget.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub released: BTreeSet<NodeName>,
    /// Nodes to grant again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub retry: BTreeSet<NodeName>,
    /// All nodes that had failed by then are granted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_before: Option<FailureCutoff>,
    /// Failures up to here were seen by the operator who resumed. They no longer pause the rollout.
    #[serde(rename = "forgiven", default, skip_serializing_if = "Option::is_none")]
    pub reviewed: Option<FailureCutoff>,
    /// Idempotency keys of the last operator commands.
    #[serde(rename = "said", default, skip_serializing_if = "Vec::is_empty")]
    pub command_ids: Vec<String>,
}

/// Progress of a rollout at the engine's last step, part of [`RolloutRecord`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepProgress {
    /// Number of healthy nodes at the last write.
    #[serde(default)]
    pub healthy: u32,
    #[schema(value_type = String, format = DateTime)]
    pub progress: Timestamp,
    /// Begin of a time in which nothing can be done: no window is open, or the remaining nodes are paused. The deadline
    /// for progress does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub idle: Option<Timestamp>,
    /// Number of grants.
    #[serde(default)]
    pub grants: u64,
    /// Revision of the view at the last step.
    #[serde(default)]
    pub seen: Revision,
}

/// Limit that separates known failures from new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureCutoff {
    /// Covers grants before this generation of the same epoch. A node that is granted again and fails is a new failure.
    pub before: Generation,
    /// A node that was in progress at this time and failed later is not covered.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

impl FailureCutoff {
    /// Covers everything in a view of the store up to now.
    pub fn up_to(epoch: u64, seen: Revision, now: Timestamp) -> Self {
        Self { before: Generation { epoch, number: seen.0.saturating_add(1) }, at: now }
    }

    /// Returns whether a failure is covered, by its grant and its time.
    pub fn covers(&self, epoch: u64, granted: Revision, since: Timestamp) -> bool {
        self.before.epoch == epoch && granted.0 < self.before.number && since <= self.at
    }
}

/// Phase of a rollout.
///
/// It is flattened into the record, which has a field `by` already. The fields of an end are renamed for that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum RolloutPhase {
    Running,
    /// Nothing is granted until an operator acts.
    Paused {
        why: PauseReason,
    },
    /// Every node of the design runs the target or was skipped.
    Completed,
    /// Ended by an operator. Nodes keep their versions.
    Aborted {
        #[serde(rename = "aborted_by")]
        by: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// Rolled back after a failure or by an operator. The other rollout moves the nodes back.
    RolledBack {
        #[serde(rename = "rolled_back_by")]
        by: RolloutId,
        why: PauseReason,
    },
    /// Replaced by another rollout.
    Superseded {
        #[serde(rename = "superseded_by")]
        by: RolloutId,
    },
}

impl RolloutPhase {
    pub const WORDS: [&str; 6] = ["running", "paused", "completed", "aborted", "rolled back", "superseded"];

    /// Returns whether it may still grant nodes, now or after an operator command.
    pub fn is_open(&self) -> bool {
        match self {
            RolloutPhase::Running | RolloutPhase::Paused { .. } => true,
            RolloutPhase::Completed
            | RolloutPhase::Aborted { .. }
            | RolloutPhase::RolledBack { .. }
            | RolloutPhase::Superseded { .. } => false,
        }
    }

    pub fn word(&self) -> &'static str {
        match self {
            RolloutPhase::Running => "running",
            RolloutPhase::Paused { .. } => "paused",
            RolloutPhase::Completed => "completed",
            RolloutPhase::Aborted { .. } => "aborted",
            RolloutPhase::RolledBack { .. } => "rolled back",
            RolloutPhase::Superseded { .. } => "superseded",
        }
    }
}

/// Reason why a rollout is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum PauseReason {
    Operator {
        by: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// Earlier reason, if the rollout was paused already. Never another operator's pause.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(no_recursion)]
        over: Option<Box<PauseReason>>,
    },
    /// More nodes have failed than the limit allows.
    Failures {
        threshold: Threshold,
        failed: u32,
        tolerated: u32,
        /// First failed nodes with their errors.
        nodes: Vec<FailedNode>,
    },
    GateFailed {
        check: String,
        message: String,
    },
    /// Only with a strategy in which an inconclusive check is no failure.
    GateInconclusive {
        check: String,
        message: String,
    },
    NoProgress {
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// A rollback was due, and there is no version to roll back to.
    #[serde(rename = "nothing_to_go_back_to")]
    NoRollbackTarget {
        #[schema(no_recursion)]
        why: Box<PauseReason>,
    },
    /// The plan cannot be read or executed.
    Blocked {
        problem: String,
    },
}

impl PauseReason {
    /// Returns whether the rollout failed. If not, an operator has to look.
    pub fn is_failure(&self) -> bool {
        match self {
            PauseReason::Failures { .. } | PauseReason::GateFailed { .. } | PauseReason::NoRollbackTarget { .. } => {
                true
            }
            // A failure is not undone by an operator's pause.
            PauseReason::Operator { over, .. } => over.as_ref().is_some_and(|over| over.is_failure()),
            PauseReason::GateInconclusive { .. } | PauseReason::NoProgress { .. } | PauseReason::Blocked { .. } => {
                false
            }
        }
    }

    /// Pause by an operator of a rollout that was not paused.
    pub fn by_operator(by: impl Into<String>, reason: impl Into<String>) -> Self {
        PauseReason::Operator { by: by.into(), reason: reason.into(), over: None }
    }
}

/// Failure limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    Canary,
    Wave,
    Total,
    /// Nothing is left to do, and these nodes failed to roll back.
    #[serde(rename = "going_back")]
    Rollback,
    /// Nothing is left to do, and no node is healthy.
    #[serde(rename = "everybody")]
    AllNodes,
}

/// Maximum number of failed nodes to name in a pause reason.
pub const NAMED_FAILURES: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailedNode {
    pub node: NodeName,
    pub how: FailureKind,
    /// First error, with file and line if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResourceError>,
}

/// Kind of failure of a granted node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    NotConfigured,
    NotValidated,
    /// It could not report in time and rolled back by itself.
    #[serde(rename = "went_back")]
    RolledBack,
    /// Not healthy when its grant expired.
    Expired,
    /// Waited for other nodes for too long.
    PendingTooLong,
    /// Its agent was not connected for too long.
    Unreachable,
}

impl FailureKind {
    pub fn words(self) -> &'static str {
        match self {
            FailureKind::NotConfigured => "its run failed",
            FailureKind::NotValidated => "its validation failed",
            FailureKind::RolledBack => "it could not report in time and rolled back by itself",
            FailureKind::Expired => "it was not healthy in time",
            FailureKind::PendingTooLong => "it was pending for too long",
            FailureKind::Unreachable => "its agent was not connected for too long",
        }
    }
}

impl fmt::Display for FailedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.how.words())?;
        if let Some(error) = &self.error {
            write!(f, ": {error}")?;
        }
        Ok(())
    }
}

/// State of a wave that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaveState {
    #[schema(value_type = String, format = DateTime)]
    pub began: Timestamp,
    /// Time at which its last node became healthy or was skipped. Cleared if a node becomes unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub settled: Option<Timestamp>,
    /// Result of its gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateVerdict>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoted: Option<Promotion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub passed: Option<Timestamp>,
}

impl WaveState {
    pub fn begun(at: Timestamp) -> Self {
        Self { began: at, settled: None, gate: None, promoted: None, passed: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Promotion {
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// Result of the checks at the end of a wave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum GateVerdict {
    Passed {
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
    },
    Failed {
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
        check: String,
        message: String,
    },
    /// A check had no result after its retries. The strategy decides whether that is a failure.
    Inconclusive {
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
        check: String,
        message: String,
    },
}

impl fmt::Display for PauseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PauseReason::Operator { by, reason, over } => {
                write!(f, "paused by {by}")?;
                if !reason.is_empty() {
                    write!(f, ": {reason}")?;
                }
                over.as_ref().map_or(Ok(()), |over| write!(f, "; it was paused already: {over}"))
            }
            PauseReason::Failures { threshold, failed, tolerated, nodes } => {
                let (were, are) = (plural(*failed, "node has", "nodes have"), plural(*tolerated, "is", "are"));
                let limit = |place| format!(" failed, and {tolerated} {are} tolerated {place}");
                let consequence = match threshold {
                    Threshold::Canary => limit("in the first wave of a stage"),
                    Threshold::Wave => limit("in a wave"),
                    Threshold::Total => limit("in all"),
                    Threshold::Rollback => " failed to roll back".to_owned(),
                    Threshold::AllNodes => " failed, and no node is healthy".to_owned(),
                };
                write!(f, "{failed} {were}{consequence}")?;
                nodes.first().map_or(Ok(()), |first| write!(f, "; {first}"))
            }
            PauseReason::GateFailed { check, message } => write!(f, "the check {check:?} failed: {message}"),
            PauseReason::GateInconclusive { check, message } => {
                write!(f, "the check {check:?} is inconclusive: {message}")
            }
            PauseReason::NoProgress { since } => {
                write!(f, "no progress since {} UTC", since.strftime("%Y-%m-%d %H:%M:%S"))
            }
            PauseReason::NoRollbackTarget { why } => {
                write!(f, "{why}; there is no version to roll back to: the whole fleet has validated no other one")
            }
            PauseReason::Blocked { problem } => f.write_str(problem),
        }
    }
}

fn plural<'t>(count: u32, one: &'t str, many: &'t str) -> &'t str {
    if count == 1 { one } else { many }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutoff_of_another_epoch_covers_nothing() {
        let at: Timestamp = "2026-11-15T10:00:00Z".parse().unwrap();
        let later = at + SignedDuration::from_secs(1);
        let earlier = FailureCutoff::up_to(7, Revision(900), at);
        assert!(earlier.covers(7, Revision(900), at));
        assert!(!earlier.covers(7, Revision(901), at), "granted once more");
        assert!(!earlier.covers(7, Revision(900), later), "failed afterwards");
        assert!(!earlier.covers(8, Revision(12), at), "a restored store counts from below");
    }

    #[test]
    fn record_survives_json_in_every_phase() {
        let at: Timestamp = "2026-11-15T10:00:00Z".parse().unwrap();
        let why = || PauseReason::by_operator("bob", "lunch");
        let inner = PauseReason::GateFailed { check: "door".into(), message: "503".into() };
        let held = PauseReason::Operator { by: "bob".into(), reason: "lunch".into(), over: Some(Box::new(inner)) };
        assert!(held.is_failure() && !why().is_failure());
        assert_eq!(held.to_string(), "paused by bob: lunch; it was paused already: the check \"door\" failed: 503");
        let phases = [
            RolloutPhase::Running,
            RolloutPhase::Paused { why: why() },
            RolloutPhase::Paused { why: held },
            RolloutPhase::Paused { why: PauseReason::NoRollbackTarget { why: Box::new(why()) } },
            RolloutPhase::Completed,
            RolloutPhase::Aborted { by: "bob".into(), reason: "no".into() },
            RolloutPhase::RolledBack { by: RolloutId(8), why: why() },
            RolloutPhase::Superseded { by: RolloutId(8) },
        ];
        for phase in phases {
            let record = RolloutRecord {
                id: RolloutId(7),
                request: "r".into(),
                from: None,
                from_validated: false,
                to: Version::new("v2").unwrap(),
                plan: "sha256:0".into(),
                outcome: Some("sha256:1".into()),
                rolls_back: None,
                at_once: false,
                by: "ann".into(),
                started: at,
                phase,
                phase_since: at,
                waves: vec![WaveState::begun(at)],
                all_nodes_at_target: true,
                operator: OperatorDecisions {
                    reviewed: Some(FailureCutoff::up_to(7, Revision(3), at)),
                    command_ids: vec!["s".into()],
                    ..OperatorDecisions::default()
                },
                steps: StepProgress { healthy: 0, progress: at, idle: None, grants: 0, seen: Revision(9) },
            };
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<RolloutRecord>(&text).unwrap(), record, "{text}");
        }
    }
}
