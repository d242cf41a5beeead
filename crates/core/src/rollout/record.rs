//! How far a rollout has come: what is in the store of it.

use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{NodeName, Version};
use crate::report::ResourceError;
use crate::txn::{Generation, Revision};

use crate::rollout::RolloutId;

/// `rollouts/active`: which rollout decides what nodes run that were not granted anything. It stays when that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActiveRollout {
    pub id: RolloutId,
    /// What nodes stay at until they are granted; none before the first version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<FromVersion>,
    pub to: Version,
    /// What was granted before this rollout no longer counts: it moved everybody.
    pub floor: RolloutId,
    #[serde(default)]
    pub at_once: bool,
    /// Every node has been moved: who has no word of its own goes by `current_version`.
    #[serde(default)]
    pub completed: bool,
}

/// What nodes were told to run before a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FromVersion {
    pub version: Version,
    /// The one under which they were told so: they are not told anew.
    pub generation: Generation,
    #[serde(default)]
    pub allow_older: bool,
}

/// `desired/<node>`: the grant. Its revision is the generation under which the node is told, and fences what it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredRecord {
    pub version: Version,
    /// Who granted it.
    pub rollout: RolloutId,
    #[schema(value_type = String, format = DateTime)]
    pub granted: Timestamp,
    /// A node that is not healthy by then counts as failed. None for one that was set aside, or is not waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_older: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub confirm_within: Option<SignedDuration>,
    /// It was left where it is by somebody: it is not told anew, and keeps the generation that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Generation>,
}

/// `rollouts/<id>`. Every step of the engine and every word of an operator rewrites it, under its revision: what was decided
/// on an older one is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutRecord {
    pub id: RolloutId,
    /// Of whoever asked for it: the same request again is this rollout.
    pub request: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Version>,
    /// Whether every node had proved that it runs that, when this began: then it can be gone back to, whoever chose it.
    #[serde(default)]
    pub from_proved: bool,
    pub to: Version,
    /// Digest of the blob that holds the plan.
    pub plan: String,
    /// Digest of the blob that holds how each node stood when it ended. Grants are overwritten by those of later rollouts.
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
    /// The waves that have begun, in the order of the plan; the last of them goes on.
    pub waves: Vec<WaveState>,
    /// It has ended with every node at the target: nobody was set aside, nobody failed, and somebody proved it. Only such a
    /// version is gone back to.
    #[serde(default)]
    pub whole: bool,
    /// Nobody has to promote a wave any more.
    #[serde(default)]
    pub full: bool,
    /// Nodes that an operator has set aside.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub skipped: BTreeSet<NodeName>,
    /// Nodes whose slots an operator has released: they no longer count for the budget.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub released: BTreeSet<NodeName>,
    /// Nodes that are to be granted once more.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub retry: BTreeSet<NodeName>,
    /// All nodes that had failed by then are to be granted once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_before: Option<FailureCutoff>,
    /// Failures that were there by then were seen by the operator who resumed: they no longer stop anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgiven: Option<FailureCutoff>,
    /// The requests of the last words that operators said: the same request again is the same word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<String>,
    /// How many nodes were healthy when that was last written, and when something last got better.
    #[serde(default)]
    pub healthy: u32,
    #[schema(value_type = String, format = DateTime)]
    pub progress: Timestamp,
    /// Since when nothing can be done, and nobody is to blame: it is not the time for it, or what is left is paused. The
    /// deadline for progress stands still meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub idle: Option<Timestamp>,
    /// How many grants were made.
    #[serde(default)]
    pub grants: u64,
    /// The revision of the view that the last step was decided on.
    #[serde(default)]
    pub seen: Revision,
}

/// Which failures were there when somebody looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureCutoff {
    /// Of grants that were made before this, in the same life of the store: revisions of another one say nothing. One that is
    /// granted once more and fails again fails anew.
    pub before: Generation,
    /// A node that was on its way at that moment, and failed later, was not seen.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

impl FailureCutoff {
    /// Everything that a view of the store holds, and that has happened by now.
    pub fn than(epoch: u64, seen: Revision, now: Timestamp) -> Self {
        Self { before: Generation { epoch, number: seen.0.saturating_add(1) }, at: now }
    }

    /// Whether a failure was there: of a grant, and clear since a moment.
    pub fn covers(&self, epoch: u64, granted: Revision, since: Timestamp) -> bool {
        self.before.epoch == epoch && granted.0 < self.before.number && since <= self.at
    }
}

/// How a rollout stands.
///
/// It is flattened into the record, which says already by whom the rollout was started: so each ending says in its own words
/// by whom it was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum RolloutPhase {
    Running,
    /// Nothing is granted until a person says so.
    Paused {
        why: PauseReason,
    },
    /// Every node of the design runs the target, or was set aside.
    Completed,
    /// Somebody has ended it; nodes stay where they are.
    Aborted {
        #[serde(rename = "aborted_by")]
        by: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// It failed, or somebody wished it: the other rollout goes back.
    RolledBack {
        #[serde(rename = "rolled_back_by")]
        by: RolloutId,
        why: PauseReason,
    },
    /// Another one was started instead.
    Superseded {
        #[serde(rename = "superseded_by")]
        by: RolloutId,
    },
}

impl RolloutPhase {
    /// All words that there are.
    pub const WORDS: [&str; 6] = ["running", "paused", "completed", "aborted", "rolled back", "superseded"];

    /// Whether it may still grant something, now or after a word of an operator.
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

/// Why a rollout grants nothing more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum PauseReason {
    Operator {
        by: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// Why it stood still already. Never an operator's pause again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(no_recursion)]
        over: Option<Box<PauseReason>>,
    },
    /// More nodes have failed than are tolerated.
    Failures {
        threshold: Threshold,
        failed: u32,
        tolerated: u32,
        /// The first few of them, with what went wrong.
        nodes: Vec<FailedNode>,
    },
    GateFailed {
        check: String,
        message: String,
    },
    GateInconclusive {
        check: String,
        message: String,
    },
    NoProgress {
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// It was to be rolled back, and no whole rollout has ever validated a version.
    NothingToGoBackTo {
        #[schema(no_recursion)]
        why: Box<PauseReason>,
    },
    /// The plan cannot be read, or what it says cannot be done.
    Blocked {
        problem: String,
    },
}

impl PauseReason {
    /// Whether the rollout itself went wrong; else somebody has to look, and nobody can say yet.
    pub fn is_failure(&self) -> bool {
        match self {
            PauseReason::Failures { .. } | PauseReason::GateFailed { .. } | PauseReason::NothingToGoBackTo { .. } => {
                true
            }
            // What went wrong is not undone by somebody who holds it.
            PauseReason::Operator { over, .. } => over.as_ref().is_some_and(|over| over.is_failure()),
            PauseReason::GateInconclusive { .. } | PauseReason::NoProgress { .. } | PauseReason::Blocked { .. } => {
                false
            }
        }
    }

    /// What an operator says, to a rollout that did not stand still.
    pub fn by_operator(by: impl Into<String>, reason: impl Into<String>) -> Self {
        PauseReason::Operator { by: by.into(), reason: reason.into(), over: None }
    }
}

/// Which limit of failures was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    Canary,
    Wave,
    Total,
    /// All that can be done is done, and these could not go back.
    GoingBack,
    /// All that can be done is done, and nobody is well.
    Everybody,
}

/// So many failed nodes are named where a rollout says why it stopped.
pub const NAMED_FAILURES: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailedNode {
    pub node: NodeName,
    pub how: FailureKind,
    /// The first thing that went wrong, with file and line if those are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ResourceError>,
}

/// How a granted node failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    NotConfigured,
    NotValidated,
    /// It could not report in time, and went back to what it ran before.
    WentBack,
    /// It was not healthy when its grant expired.
    Expired,
    /// It waited for others for too long.
    PendingTooLong,
    /// Its agent was not there for too long.
    Unreachable,
}

impl FailureKind {
    pub fn words(self) -> &'static str {
        match self {
            FailureKind::NotConfigured => "its run failed",
            FailureKind::NotValidated => "its validation failed",
            FailureKind::WentBack => "it could not report in time, and went back by itself",
            FailureKind::Expired => "it was not healthy in time",
            FailureKind::PendingTooLong => "it waited for others for too long",
            FailureKind::Unreachable => "its agent was not there for too long",
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

/// One wave that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaveState {
    #[schema(value_type = String, format = DateTime)]
    pub began: Timestamp,
    /// When its last node became healthy, or was set aside. Withdrawn if one of them is no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub settled: Option<Timestamp>,
    /// What its gate said.
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

/// What the checks at the end of a wave said.
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
    /// Nobody can say: the rollout pauses, and a person looks.
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
                over.as_ref().map_or(Ok(()), |over| write!(f, "; it stood still already: {over}"))
            }
            PauseReason::Failures { threshold, failed, tolerated, nodes } => {
                let (were, are) = (plural(*failed, "node has", "nodes have"), plural(*tolerated, "is", "are"));
                let of = |of| format!(" failed, and {tolerated} {are} tolerated {of}");
                let so = match threshold {
                    Threshold::Canary => of("in the first wave of a stage"),
                    Threshold::Wave => of("in a wave"),
                    Threshold::Total => of("in all"),
                    Threshold::GoingBack => " failed to go back".to_owned(),
                    Threshold::Everybody => " failed, and nobody is well".to_owned(),
                };
                write!(f, "{failed} {were}{so}")?;
                nodes.first().map_or(Ok(()), |first| write!(f, "; {first}"))
            }
            PauseReason::GateFailed { check, message } => write!(f, "the check {check:?} failed: {message}"),
            PauseReason::GateInconclusive { check, message } => {
                write!(f, "the check {check:?} could not say whether all is well: {message}")
            }
            PauseReason::NoProgress { since } => {
                write!(f, "nothing has got better since {} UTC", since.strftime("%Y-%m-%d %H:%M:%S"))
            }
            PauseReason::NothingToGoBackTo { why } => {
                write!(f, "{why}; no version was ever validated by a whole rollout, so there is none to go back to")
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
    fn what_was_there_in_another_life_of_the_store_says_nothing() {
        let at: Timestamp = "2026-11-15T10:00:00Z".parse().unwrap();
        let later = at + SignedDuration::from_secs(1);
        let earlier = FailureCutoff::than(7, Revision(900), at);
        assert!(earlier.covers(7, Revision(900), at));
        assert!(!earlier.covers(7, Revision(901), at), "granted once more");
        assert!(!earlier.covers(7, Revision(900), later), "failed afterwards");
        assert!(!earlier.covers(8, Revision(12), at), "a restored store counts from below");
    }

    #[test]
    fn a_record_reads_back_as_what_was_written_however_it_ended() {
        let at: Timestamp = "2026-11-15T10:00:00Z".parse().unwrap();
        let why = || PauseReason::by_operator("bob", "lunch");
        let inner = PauseReason::GateFailed { check: "door".into(), message: "503".into() };
        let held = PauseReason::Operator { by: "bob".into(), reason: "lunch".into(), over: Some(Box::new(inner)) };
        assert!(held.is_failure() && !why().is_failure());
        assert_eq!(held.to_string(), "paused by bob: lunch; it stood still already: the check \"door\" failed: 503");
        let phases = [
            RolloutPhase::Running,
            RolloutPhase::Paused { why: why() },
            RolloutPhase::Paused { why: held },
            RolloutPhase::Paused { why: PauseReason::NothingToGoBackTo { why: Box::new(why()) } },
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
                from_proved: false,
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
                whole: true,
                full: false,
                skipped: BTreeSet::new(),
                released: BTreeSet::new(),
                retry: BTreeSet::new(),
                retry_before: None,
                forgiven: Some(FailureCutoff::than(7, Revision(3), at)),
                said: vec!["s".into()],
                healthy: 0,
                progress: at,
                idle: None,
                grants: 0,
                seen: Revision(9),
            };
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<RolloutRecord>(&text).unwrap(), record, "{text}");
        }
    }
}
