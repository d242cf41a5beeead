//! What an agent says of a run.

pub mod failure_groups;
pub mod group_commit;
pub mod intake;
pub mod reason;
pub mod record;
pub mod status_move;
pub mod summary;

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::lookup::Lookups;
use crate::lookup::published::Publication;
use crate::names::{NodeName, RunId, Version};
use crate::report::reason::RunReason;
use crate::txn::Generation;

/// Interface name → address.
pub type Interfaces = BTreeMap<String, String>;

/// One report. A run makes two, after the applier and after the validation; a validation on its own makes one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    pub node: NodeName,
    /// Given out by the server when the agent said hello.
    pub incarnation: u64,
    /// Counts the reports of an incarnation, from 1.
    pub seq: u64,
    pub run: RunId,
    #[serde(flatten)]
    pub outcome: Outcome,
    pub version: Version,
    /// The digest of the content that ran; empty if the run did not get that far.
    pub digest: String,
    pub generation: Generation,
    /// Why the run was made; the causes that arrived while it waited are merged.
    pub causes: Vec<Cause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<RunReason>,
    /// How many runs in a row have failed at this generation, this one included; 0 if this one did not.
    #[serde(default)]
    pub attempt: u32,
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub ended: Timestamp,
    #[serde(default)]
    pub counts: Counts,
    #[serde(default)]
    pub errors: Vec<ResourceError>,
    /// What was changed, or would be; the agent bounds it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ResourceChange>,
    /// The first failure of the streak that `attempt` counts; none if this run did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<FirstFailure>,
    #[serde(default)]
    pub checks: Vec<CheckResult>,
    /// The hooks that ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookResult>,
    /// What the run publishes for others, all of it; none if it says nothing about that, and what was published stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub published: Option<Publication>,
    pub facts: Facts,
    /// What the run looked up, found or not, and what it saw there.
    #[serde(default)]
    pub lookups: Lookups,
    /// The run's log; the agent bounds its size.
    #[serde(default)]
    pub log: String,
}

/// What part of a run is reported, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "phase", content = "result", rename_all = "snake_case")]
pub enum Outcome {
    Configured(RunResult),
    Validated(Verdict),
    /// Nothing was applied: what a run would do.
    Previewed(RunResult),
}

/// How the applier ended. An exit code that is not understood is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunResult {
    Unchanged,
    Changed,
    Failed,
    Pending,
}

/// How the validation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Passed,
    Failed,
}

impl Outcome {
    pub fn phase(self) -> &'static str {
        match self {
            Outcome::Configured(_) => "configured",
            Outcome::Validated(_) => "validated",
            Outcome::Previewed(_) => "previewed",
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Outcome::Configured(result) | Outcome::Previewed(result) => result.word(),
            Outcome::Validated(Verdict::Failed) => "failed",
            Outcome::Validated(Verdict::Passed) => "passed",
        }
    }
}

impl RunResult {
    pub fn word(self) -> &'static str {
        match self {
            RunResult::Unchanged => "unchanged",
            RunResult::Changed => "changed",
            RunResult::Failed => "failed",
            RunResult::Pending => "pending",
        }
    }
}

/// Why a run was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// The agent started, and cannot know what happened to the node before.
    AgentStarted,
    /// The node should run another version.
    Version { version: Version },
    /// Something that the last run looked up has changed.
    LookedUp {
        #[serde(default)]
        changes: Vec<LookupChange>,
    },
    /// The last run failed.
    Retry { attempt: u32 },
    /// An earlier run was cut off.
    Interrupted { run: RunId },
    /// A person asked for it.
    Operator {
        #[serde(default)]
        id: String,
        #[serde(default)]
        by: String,
    },
    /// It was time to validate again.
    Schedule,
    /// The node was brought to this version, and nothing that it said of it was taken in time: it goes back by itself to
    /// what it ran before.
    WentBack {
        version: Version,
        #[schema(value_type = String, format = Duration)]
        within: SignedDuration,
    },
}

/// Something that was looked up is different now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LookupChange {
    pub key: String,
    /// In a few words: `db2 added`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub what: String,
}

impl fmt::Display for LookupChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changed", self.key)?;
        if self.what.is_empty() { Ok(()) } else { write!(f, ": {}", self.what) }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::AgentStarted => f.write_str("agent started"),
            Cause::Version { version } => write!(f, "version {version}"),
            Cause::LookedUp { changes } => {
                f.write_str(&changes.iter().map(LookupChange::to_string).collect::<Vec<_>>().join(", "))
            }
            Cause::Retry { attempt } => write!(f, "retry {attempt}"),
            Cause::Interrupted { run } => write!(f, "run {run} was interrupted"),
            Cause::Operator { by, .. } if by.is_empty() => f.write_str("operator"),
            Cause::Operator { by, .. } => write!(f, "operator {by}"),
            Cause::Schedule => f.write_str("schedule"),
            Cause::WentBack { version, within } => {
                write!(f, "went back from {version}: no server took a report of it within {within:#}")
            }
        }
    }
}

/// How many resources the applier looked after, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    pub total: u32,
    pub changed: u32,
    pub failed: u32,
    pub skipped: u32,
}

/// One thing that went wrong, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceError {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    pub message: String,
}

impl fmt::Display for ResourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(resource) = &self.resource {
            write!(f, "{resource}: ")?;
        }
        f.write_str(&self.message)?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " ({file}:{line})"),
            (Some(file), None) => write!(f, " ({file})"),
            (None, _) => Ok(()),
        }
    }
}

/// One property of a resource that was changed, or would be. Secrets are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceChange {
    pub resource: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub property: Option<String>,
    #[serde(default)]
    pub old: String,
    #[serde(default)]
    pub new: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// It was not made, since the run was a preview.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub noop: bool,
}

/// When and how a streak of failures began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FirstFailure {
    pub run: RunId,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub error: ResourceError,
}

/// What became of a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HookResult {
    pub name: String,
    /// The keys whose change made it run.
    pub keys: Vec<String>,
    pub verdict: Verdict,
    /// What it said, or why it counts as failed.
    pub message: String,
    pub millis: u64,
}

/// The result of one check of the validation. All are kept, not only the first that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckResult {
    pub name: String,
    pub verdict: Verdict,
    /// What the check said, or why it counts as failed.
    pub message: String,
    pub millis: u64,
}

/// What the agent sees of its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Facts {
    pub interfaces: Interfaces,
    /// Which start of the machine this is from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    #[serde(default)]
    pub agent: String,
}
