//! Reports of agents: results, causes, errors and facts of a run.

pub mod drift;
pub mod failure_groups;
pub mod group_commit;
pub mod history;
pub mod intake;
mod interfaces;
pub mod log_time;
pub mod reason;
pub mod record;
pub mod shorten;
pub mod status_move;
pub mod summary;

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::lookup::Lookups;
use crate::lookup::published::Publication;
use crate::lookup::services::{Service, Services};
use crate::names::{HostName, NodeName, Role, RunId, Version};
use crate::report::reason::RunReason;
use crate::txn::Generation;

pub use interfaces::Interfaces;

/// One report. A run sends two: after the applier and after the validation. A validation between runs sends one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    pub node: NodeName,
    /// Assigned by the server when the agent connects.
    pub incarnation: u64,
    /// Sequence number within the incarnation, from 1.
    pub seq: u64,
    pub run: RunId,
    #[serde(flatten)]
    pub outcome: Outcome,
    pub version: Version,
    /// Digest of the content that ran. Empty if the run failed before.
    pub digest: String,
    pub generation: Generation,
    /// Causes of the run. Causes that arrived while it waited are merged.
    pub causes: Vec<Cause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<RunReason>,
    /// Number of failed runs in a row at this generation, including this one. 0 if this run did not fail.
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
    /// Changes made, or planned in a preview. The agent bounds their number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ResourceChange>,
    /// First failure in a row of `attempt` failures. None if this run did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<FirstFailure>,
    #[serde(default)]
    pub checks: Vec<CheckResult>,
    /// Hooks that ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookResult>,
    /// All values that the run publishes. None: the published values stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub published: Option<Publication>,
    /// Services that the node offers, if this is a validation that passed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Service>)]
    pub services: Services,
    pub facts: Facts,
    /// Keys that the run looked up, found or not, with the tags of their values.
    #[serde(default)]
    pub lookups: Lookups,
    /// Log of the run. The agent bounds its size.
    #[serde(default)]
    pub log: String,
}

impl Report {
    /// Number of checks of a validation. None if the report is of something else.
    pub fn check_count(&self) -> Option<u32> {
        match self.outcome {
            Outcome::Validated(_) => Some(u32::try_from(self.checks.len()).unwrap_or(u32::MAX)),
            Outcome::Configured(_) | Outcome::Previewed(_) => None,
        }
    }

    /// All errors: those of resources, then of failed checks and hooks.
    pub fn all_errors(&self) -> Vec<ResourceError> {
        let checks = self.checks.iter().filter_map(CheckResult::error);
        let hooks = self.hooks.iter().filter_map(HookResult::error);
        self.errors.iter().cloned().chain(checks).chain(hooks).collect()
    }
}

/// Reported part of a run, with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "phase", content = "result", rename_all = "snake_case")]
pub enum Outcome {
    Configured(RunResult),
    Validated(Verdict),
    /// Preview: what a run would do. Nothing was applied.
    Previewed(RunResult),
}

/// Result of the applier. An unknown exit code is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunResult {
    Unchanged,
    Changed,
    Failed,
    Pending,
}

/// Result of the validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Passed,
    Failed,
}

impl Outcome {
    /// True for a failed run or validation.
    pub fn is_failure(self) -> bool {
        match self {
            Outcome::Configured(RunResult::Failed) | Outcome::Validated(Verdict::Failed) => true,
            Outcome::Configured(RunResult::Unchanged | RunResult::Changed | RunResult::Pending)
            | Outcome::Validated(Verdict::Passed)
            | Outcome::Previewed(_) => false,
        }
    }

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

/// Cause of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// The agent started and does not know what happened to the node before.
    AgentStarted,
    /// The desired version changed.
    Version { version: Version },
    /// A value that the last run looked up has changed.
    LookedUp {
        #[serde(default)]
        changes: Vec<LookupChange>,
    },
    /// The design gave the node another role or host name.
    Identity { role: Role, host: String },
    /// The last run failed.
    Retry { attempt: u32 },
    /// An earlier run was interrupted.
    Interrupted { run: RunId },
    /// Requested by an operator.
    Operator {
        #[serde(default)]
        id: String,
        #[serde(default)]
        by: String,
        #[serde(flatten)]
        options: RunOptions,
    },
    /// Timed: a run that finds drift, or a periodic validation.
    Schedule,
    /// Automatic rollback: the server took no report of this version in time, so the node returns to what it ran
    /// before.
    #[serde(rename = "went_back")]
    AutoRollback {
        version: Version,
        #[schema(value_type = String, format = Duration)]
        within: SignedDuration,
    },
}

impl Cause {
    /// A request of an operator, without options.
    pub fn operator(id: impl Into<String>, by: impl Into<String>) -> Self {
        Self::Operator { id: id.into(), by: by.into(), options: RunOptions::default() }
    }

    /// Options of a run with these causes. Requests that share a run have the same tags and version, and one of them is
    /// enough for debug messages.
    pub fn options(causes: &[Cause]) -> &RunOptions {
        static NONE: RunOptions = RunOptions { version: None, tags: Vec::new(), debug: false };
        let mut all = causes.iter().filter_map(Cause::own_options);
        let first = all.next().unwrap_or(&NONE);
        if first.debug { first } else { all.find(|options| options.debug).unwrap_or(first) }
    }

    /// The options of an operator's request. None for other causes.
    pub fn own_options(&self) -> Option<&RunOptions> {
        self.request().map(|(_, options)| options)
    }

    /// The id and the options of an operator's request. None for other causes.
    pub fn request(&self) -> Option<(&str, &RunOptions)> {
        match self {
            Cause::Operator { id, options, by: _ } => Some((id, options)),
            Cause::AgentStarted
            | Cause::Version { .. }
            | Cause::LookedUp { .. }
            | Cause::Identity { .. }
            | Cause::Retry { .. }
            | Cause::Interrupted { .. }
            | Cause::Schedule
            | Cause::AutoRollback { .. } => None,
        }
    }
}

/// Options of a run that an operator requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunOptions {
    /// Release to preview in place of the desired one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// Only resources with one of these tags of Puppet. Empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// With debug messages in the log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
}

impl RunOptions {
    const MAX_TAGS: usize = 20;
    const MAX_TAG: usize = 100;

    /// Checks the tags: they become an argument of Puppet.
    pub fn check(&self) -> Result<(), String> {
        if self.tags.len() > Self::MAX_TAGS {
            return Err(format!("{} tags are too many; at most {} are possible", self.tags.len(), Self::MAX_TAGS));
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || "_:.-".contains(c);
        let valid = |tag: &String| {
            tag.len() <= Self::MAX_TAG
                && tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                && tag.chars().all(legal)
        };
        match self.tags.iter().find(|tag| !valid(tag)) {
            None => Ok(()),
            Some(tag) => Err(format!(
                "{tag:?} is no tag: tags consist of letters, digits, `_`, `:`, `.` and `-`, begin with a letter, digit or \
                 `_`, and have at most {} characters",
                Self::MAX_TAG
            )),
        }
    }
}

/// Written after the operator's name.
impl fmt::Display for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version.as_ref().map(|version| format!("version {version}"));
        let tags = (!self.tags.is_empty()).then(|| format!("tags {}", self.tags.join(",")));
        let debug = self.debug.then(|| "debug".to_owned());
        let all: Vec<String> = [version, tags, debug].into_iter().flatten().collect();
        if all.is_empty() { Ok(()) } else { write!(f, " ({})", all.join(", ")) }
    }
}

/// A changed lookup value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LookupChange {
    pub key: String,
    /// Short description, such as `db2 added`.
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
            Cause::Identity { role, host } => write!(f, "role {role}, host name {host}"),
            Cause::Retry { attempt } => write!(f, "retry {attempt}"),
            Cause::Interrupted { run } => write!(f, "run {run} was interrupted"),
            Cause::Operator { by, options, .. } => {
                let by = if by.is_empty() { String::new() } else { format!(" {by}") };
                write!(f, "operator{by}{options}")
            }
            Cause::Schedule => f.write_str("schedule"),
            Cause::AutoRollback { version, within } => {
                write!(f, "rolled back from {version}: no server took a report of it within {within:#}")
            }
        }
    }
}

/// Number of resources by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    pub total: u32,
    pub changed: u32,
    pub failed: u32,
    pub skipped: u32,
}

/// One error, and its location.
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

/// One changed property of a resource. Secrets are left out.
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
    /// Not applied: the run was a preview.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub noop: bool,
    /// Repaired drift: the value has changed since an earlier run, and not by a run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub corrective: bool,
}

/// First of several failures in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FirstFailure {
    pub run: RunId,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub error: ResourceError,
}

/// Result of a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HookResult {
    pub name: String,
    /// Changed keys that triggered it.
    pub keys: Vec<String>,
    pub verdict: Verdict,
    /// Output of the hook, or reason of its failure.
    pub message: String,
    pub millis: u64,
}

/// Result of one check of the validation. All results are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckResult {
    pub name: String,
    pub verdict: Verdict,
    /// Output of the check, or reason of its failure.
    pub message: String,
    pub millis: u64,
}

impl CheckResult {
    /// The error of a failed check.
    pub fn error(&self) -> Option<ResourceError> {
        failure("check", &self.name, self.verdict, &self.message)
    }
}

impl HookResult {
    /// The error of a failed hook.
    pub fn error(&self) -> Option<ResourceError> {
        failure("hook", &self.name, self.verdict, &self.message)
    }
}

fn failure(kind: &str, name: &str, verdict: Verdict, message: &str) -> Option<ResourceError> {
    let error = || ResourceError {
        resource: Some(format!("{kind} {name}")),
        message: message.to_owned(),
        ..Default::default()
    };
    (verdict == Verdict::Failed).then(error)
}

/// Facts about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Facts {
    pub interfaces: Interfaces,
    /// Id of the machine's current boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    #[serde(default)]
    pub agent: String,
    /// Host name and name for Puppet in the configuration of the agent, which precede the design.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certname: Option<HostName>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_name_the_options_of_a_request() {
        let request = |by: &str, options| Cause::Operator { id: "1".into(), by: by.into(), options };
        let version = Some(Version::new("v9").unwrap());
        let tags = vec!["web".to_owned(), "profile::db".to_owned()];
        for (cause, text) in [
            (Cause::operator("1", ""), "operator"),
            (Cause::operator("1", "ada"), "operator ada"),
            (request("ada", RunOptions { debug: true, ..RunOptions::default() }), "operator ada (debug)"),
            (
                request("ada", RunOptions { version, tags, debug: false }),
                "operator ada (version v9, tags web,profile::db)",
            ),
        ] {
            assert_eq!(cause.to_string(), text);
            let json = serde_json::to_string(&cause).unwrap();
            assert_eq!(serde_json::from_str::<Cause>(&json).unwrap(), cause, "{json}");
        }
        let old: Cause = serde_json::from_str(r#"{"kind":"operator","id":"1","by":"ada"}"#).unwrap();
        assert_eq!(old, Cause::operator("1", "ada"));
    }
}
