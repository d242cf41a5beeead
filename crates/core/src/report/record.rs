//! Records that a report leaves in the store: status leaves, `observed/<node>` and `history/<node>/<run>`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::lookup::Tag;
use crate::lookup::services::{Service, Services};
use crate::names::{Role, RunId, Version};
use crate::node::decommission::RoleLookups;
use crate::node::service_state::ServiceState;
use crate::report::drift::{DriftRecord, RepairedDrift};
use crate::report::reason::RunReason;
use crate::report::{Cause, Counts, FirstFailure, Interfaces, Outcome, ResourceError, Verdict};
use crate::txn::Generation;

/// `status/{configured,validated}/…/<node>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusLeaf {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    pub run: RunId,
    /// Path of the log in the URL of a server. Earlier versions wrote the digest of its blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// `running_version/<version>/<node>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunningVersion {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    pub run: RunId,
}

/// `active_roles/<version>/<node>/address`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActiveRole {
    pub role: Role,
    pub interfaces: Interfaces,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Service>)]
    pub services: Services,
}

impl ActiveRole {
    /// Entry of a node, from its last report.
    pub fn new(role: Role, observed: &ObservedRecord) -> Self {
        Self { role, interfaces: observed.interfaces.clone(), services: observed.services.clone() }
    }
}

/// `observed/<node>`: summary of the last report. Its revision fences each move of the node's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObservedRecord {
    /// Newest incarnation. Reports of earlier incarnations are ignored.
    pub incarnation: u64,
    /// Last applied report of the incarnation. 0 before the first.
    pub seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ServiceState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Begin of the present failure: the first failed run or validation since the last validation that passed. A retry
    /// that only applied, or waits for another node, does not end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub failed_since: Option<Timestamp>,
    /// Number of checks of the last passed validation. None if the last one failed, and in records of older servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<u32>,
    /// Boot id of the machine when its agent last connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// The machine was restarted since its last passed validation. What ran then may not run now.
    #[serde(default)]
    pub rebooted: bool,
    /// The agent got a new incarnation since the last passed validation. That validation is of an earlier one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renewed: bool,
    /// Version in `running_version/…/<node>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Version>,
    /// Version of the last passed validation. None if the last one failed. `active_roles` follows this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<Version>,
    #[serde(default, skip_serializing_if = "Interfaces::is_empty")]
    pub interfaces: Interfaces,
    /// Services that the last passed validation proved. Empty if the last one failed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Service>)]
    pub services: Services,
    /// Role lookups of the last run that was applied. Decommissioning waits for readers of a role. A failed or pending
    /// run leaves this unchanged.
    #[serde(default, skip_serializing_if = "RoleLookups::is_empty")]
    pub looked_up: RoleLookups,
    /// Tag of `published/<node>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Tag>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastRun>,
    /// The last run, while the report of its validation is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<OpenRun>,
    /// The last failed run, if the node has failed and `last` is another run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<PastFailure>,
    /// Milliseconds that the last complete run took, if `last` is another run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_millis: Option<u64>,
}

impl ObservedRecord {
    /// The run that is not in the history yet.
    pub fn open_run(&self) -> Option<PastRun> {
        let open = self.open.as_ref()?;
        let last = self.last.as_ref().filter(|last| last.run == open.run)?;
        Some(PastRun {
            run: last.run.clone(),
            version: last.version.clone(),
            outcome: last.outcome,
            causes: last.causes.clone(),
            started: last.started,
            ended: last.ended,
            reason: last.reason.as_ref().map(ToString::to_string),
            checks: None,
            repaired: open.repaired.clone(),
            logs: open.logs.iter().chain(&last.log).cloned().collect(),
        })
    }

    /// Begin of the present failure. Records of older servers have only the begin of a failed state.
    pub fn failing_since(&self) -> Option<Timestamp> {
        self.failed_since.or_else(|| self.state.as_ref().filter(|state| state.is_failure()).and(self.since))
    }
}

/// Summary of the last reported run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastRun {
    pub run: RunId,
    #[serde(flatten)]
    pub outcome: Outcome,
    pub version: Version,
    pub digest: String,
    pub generation: Generation,
    pub causes: Vec<Cause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<RunReason>,
    #[serde(default)]
    pub attempt: u32,
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub ended: Timestamp,
    pub counts: Counts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<FirstFailure>,
    /// First errors. The blob has all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ResourceError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

impl LastRun {
    /// Time from the start of a complete run to its validation. None for a run that was not validated, and for timed runs.
    pub fn run_time(&self) -> Option<SignedDuration> {
        complete_run_time(self.outcome, &self.causes, self.started, self.ended)
    }
}

fn complete_run_time(
    outcome: Outcome,
    causes: &[Cause],
    started: Timestamp,
    ended: Timestamp,
) -> Option<SignedDuration> {
    let is_complete =
        outcome == Outcome::Validated(Verdict::Passed) && causes.iter().any(|cause| *cause != Cause::Schedule);
    is_complete.then(|| ended.duration_since(started).max(SignedDuration::ZERO))
}

/// A run whose validation is not reported yet. `last` has the rest of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenRun {
    pub run: RunId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired: Option<RepairedDrift>,
    /// Places of its earlier reports. That of the last one is in `last`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<String>,
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastFailure {
    pub run: RunId,
    /// Short reason, as in the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Place of its last report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// `history/<node>` of earlier versions: the last runs in one value, the newest first. The next report of the node moves each
/// run to its own key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunList(pub Vec<PastRun>);

/// `history/<node>/<run>`: summary of one run, written when it is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastRun {
    pub run: RunId,
    pub version: Version,
    #[serde(flatten)]
    pub outcome: Outcome,
    pub causes: Vec<Cause>,
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub ended: Timestamp,
    /// Short reason, if the run was not successful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of checks, if the run was validated. None in records of older servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired: Option<RepairedDrift>,
    /// Places of its reports in blobs: the digest of the blob, and after `:` the number of the report if it has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<String>,
}

impl PastRun {
    /// As [`LastRun::run_time`].
    pub fn run_time(&self) -> Option<SignedDuration> {
        complete_run_time(self.outcome, &self.causes, self.started, self.ended)
    }
}
