//! The operators' side of the API: what is asked and answered about an environment.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::lookup::published::Publication;
use muster_core::names::{EnvName, NodeName, Role, RunId, Version};
use muster_core::node::liveness::{Link, SilentDomain};
use muster_core::node::pause::NodePause;
use muster_core::node::record::{MachineRecord, NodeRecord};
use muster_core::node::service_state::ServiceState;
use muster_core::node::status::{Activity, NodeState, Reason};
use muster_core::report::record::{LastRun, PastRun};
use muster_core::report::{Interfaces, Report};
use muster_core::rollout::RolloutId;
use muster_core::rollout::progress::Hold;
use muster_core::txn::{Generation, Revision};

use crate::design::DesignRevisions;
use crate::rollout::RolloutBrief;

/// The header by which a reader demands an answer that is at least as new as a revision.
pub const MIN_REVISION: &str = "muster-min-revision";

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// What to pass as `after` for the next page; none on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    pub revision: Revision,
}

/// An environment in the list of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentRow {
    pub env: EnvName,
    pub nodes: usize,
    pub current_version: Option<Version>,
    /// Where its design stands.
    #[serde(default)]
    pub design: DesignRevisions,
    /// It is on its way out.
    #[serde(default)]
    pub destroying: bool,
}

/// One screen of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentStatus {
    pub env: EnvName,
    pub revision: Revision,
    /// What the environment should run.
    pub desired: Option<Version>,
    pub generation: Option<Generation>,
    pub nodes: usize,
    /// How many nodes stand where.
    #[schema(value_type = BTreeMap<String, usize>)]
    pub counts: BTreeMap<NodeState, usize>,
    #[schema(value_type = BTreeMap<String, usize>)]
    pub running: BTreeMap<Version, usize>,
    /// Nodes that do not run what they should, the worst first; at most [`BLOCKERS`] of them.
    pub blockers: Vec<NodeRow>,
    /// How many there are in all.
    pub blocked: usize,
    /// The first nodes that leave, with what they wait for. They count for nothing else here but `counts`.
    #[serde(default)]
    pub leaving: Vec<NodeRow>,
    /// What keeps nodes from running, by whose word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<NodePause>,
    /// Failure domains in which so many are silent that nobody is declared lost.
    pub held_domains: Vec<SilentDomain>,
    /// Keys whose value cannot be read, with the reason.
    pub unreadable: BTreeMap<String, String>,
    /// Since when the store has not answered the server; none while it does. Everything here is as of `revision`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub store_unreachable_since: Option<Timestamp>,
    /// The rollout that decides what nodes run, if there ever was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutBrief>,
    /// The nodes that are counted and shown; none if it is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// How many blockers a status shows.
pub const BLOCKERS: usize = 20;

/// One node in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRow {
    pub node: NodeName,
    pub role: Role,
    #[serde(rename = "standing")]
    pub state: NodeState,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// What it has proved to run.
    pub running: Option<Version>,
    pub desired: Option<Version>,
    /// Why it is not validated at what it should run; none if it is.
    #[serde(rename = "why")]
    pub reason: Option<Reason>,
    /// Whether others may count on it.
    pub active: bool,
    pub link: Link,
    /// What keeps it from running, whether or not it should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<NodePause>,
}

/// One node, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeDetail {
    #[serde(flatten)]
    pub row: NodeRow,
    pub record: NodeRecord,
    pub machine: Option<MachineRecord>,
    /// More than one is a violated invariant, and is shown as it is.
    pub states: Vec<ServiceState>,
    pub activity: Activity,
    /// Where others find it.
    pub interfaces: Interfaces,
    pub incarnation: u64,
    pub last: Option<LastRun>,
    pub history: Vec<PastRun>,
    /// What it publishes for others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub published: Publication,
    /// What the last run looked up; known while the agent is connected.
    pub lookups: Vec<String>,
    /// The end of the last run's log.
    pub log: Option<String>,
    /// What it waits for in the rollout that is under way, if it is its turn to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    pub revision: Revision,
}

/// One run, with its reports as the agent sent them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunDetail {
    pub node: NodeName,
    pub run: RunId,
    pub reports: Vec<Report>,
    /// Reports whose text is no longer there.
    pub missing: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CurrentVersion {
    pub version: Option<Version>,
    pub generation: Option<Generation>,
    pub revision: Revision,
}

/// Asks for a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TriggerUpdate {
    pub version: Version,
    /// Whether nodes may go there from a release with a higher serial. Without it, going back is refused.
    #[serde(default)]
    pub allow_older: bool,
    /// Everybody in one transaction, in place of whatever is under way: without waves, budgets and gates.
    #[serde(default)]
    pub at_once: bool,
    /// Who asks.
    #[serde(default)]
    pub by: String,
}

impl TriggerUpdate {
    /// To a version, in the environment's own way.
    pub fn to(version: Version) -> Self {
        Self { version, allow_older: false, at_once: false, by: String::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpdateResponse {
    pub from: Option<Version>,
    pub to: Version,
    /// False if the environment should run this version already.
    pub changed: bool,
    /// The rollout that moves the nodes there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutId>,
    /// The revision at which the change is visible.
    pub revision: Revision,
}

/// A version that nodes have proved to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunningVersionRow {
    pub version: Version,
    pub nodes: usize,
}

/// Asks whether hosts have proved to run a version. Node names and host names are both understood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifyHostsRequest {
    pub version: Version,
    pub hosts: Vec<String>,
    /// Wait this long for it to become true; at most [`LONGEST_WAIT`]. The answer comes as soon as it is.
    #[serde(default)]
    pub wait_seconds: u64,
}

/// The longest that the server keeps a question open; whoever waits longer asks again.
pub const LONGEST_WAIT: u64 = 60;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifyHostsResponse {
    pub verified: bool,
    pub hosts: usize,
    pub missing: Vec<MissingHost>,
    pub revision: Revision,
    /// How long the server took to decide, without waiting.
    pub micros: u64,
}

/// A host that has not proved to run the version, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingHost {
    pub host: String,
    /// None if the host is not in the design.
    #[serde(rename = "standing")]
    pub state: Option<NodeState>,
    pub running: Option<Version>,
    #[serde(rename = "why")]
    pub reason: Option<Reason>,
}
