//! Records that a report leaves in the store: status leaves, `observed/<node>` and `history/<node>`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::lookup::Tag;
use crate::names::{Role, RunId, Version};
use crate::node::decommission::RoleLookups;
use crate::node::service_state::ServiceState;
use crate::report::reason::RunReason;
use crate::report::{Cause, Counts, FirstFailure, Interfaces, Outcome, ResourceError};
use crate::txn::Generation;

/// `status/{configured,validated}/…/<node>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusLeaf {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    pub run: RunId,
    /// Digest of the blob that holds the report with its log.
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
}

/// `observed/<node>`: the last report in summary. Its revision fences every move of the node's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObservedRecord {
    /// The last incarnation that was given out. Reports of an earlier one change nothing.
    pub incarnation: u64,
    /// The last report of that incarnation that was applied; 0 before the first.
    pub seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ServiceState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Which start of the machine its agent last said hello from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// The machine was started again since its last validation passed: what ran on it then need not run now.
    #[serde(default)]
    pub rebooted: bool,
    /// Where `running_version/…/<node>` stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Version>,
    /// The version at which the last validation passed; none if it failed. `active_roles` follows this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<Version>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub interfaces: Interfaces,
    /// What the last run that was carried out looked up of roles: whoever leaves one waits for it. A run that failed or
    /// waits has left the node as it was before.
    #[serde(default, skip_serializing_if = "RoleLookups::is_empty")]
    pub looked_up: RoleLookups,
    /// Stands for what `published/<node>` holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Tag>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastRun>,
}

/// The last report's run, for people.
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
    /// The first errors; all of them are in the blob.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ResourceError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// `history/<node>`: the last runs in short, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct RunHistory(pub Vec<PastRun>);

/// One run in short: both of its reports make one entry.
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
    /// In a few words, if it did not end well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Digests of the blobs that hold its reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<String>,
}
