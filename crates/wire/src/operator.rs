//! Request and response types of the operator API: environments, nodes and versions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::design::DesignRevision;
use muster_core::fleet::DestroyRecord;
use muster_core::lookup::published::Publication;
use muster_core::lookup::services::{Service, ServiceOffer};
use muster_core::names::{EnvName, HostName, NodeName, Role, RunId, ServiceName, Version};
use muster_core::node::agent::AgentInfo;
use muster_core::node::evidence::NotCounted;
use muster_core::node::liveness::{Link, SilentDomain};
use muster_core::node::pause::NodePause;
use muster_core::node::policy::{NodePolicyRow, PolicyRecord};
use muster_core::node::record::{MachineRecord, NodeRecord};
use muster_core::node::service_state::ServiceState;
use muster_core::node::status::{Activity, NodeState, Reason};
use muster_core::replica::RefusedAgent;
use muster_core::report::record::{LastRun, PastRun};
use muster_core::report::{Facts, Interfaces, Report, ResourceError};
use muster_core::rollout::RolloutId;
use muster_core::rollout::progress::Hold;
use muster_core::txn::{Generation, Revision};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::drift::NodeDrift;

use crate::rollout::RolloutBrief;

/// Header that requires a response at least as new as a revision.
pub const MIN_REVISION: &str = "muster-min-revision";

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Value of `after` for the next page. None on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    pub revision: Revision,
}

/// An environment in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentRow {
    pub env: EnvName,
    pub nodes: usize,
    pub current_version: Option<Version>,
    #[serde(default)]
    pub design: DesignRevisions,
    #[serde(default)]
    pub destroying: bool,
}

/// Design revisions of an environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesignRevisions {
    /// Newest revision.
    pub head: Option<DesignRevision>,
    /// Applied revision.
    pub applied: Option<DesignRevision>,
}

/// One environment: design, roles and node counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentDetail {
    pub env: EnvName,
    pub nodes: usize,
    pub current_version: Option<Version>,
    pub design: DesignRevisions,
    /// In the order of the design.
    pub roles: Vec<RoleRow>,
    /// Number of nodes by state.
    #[schema(value_type = BTreeMap<String, usize>)]
    pub counts: BTreeMap<NodeState, usize>,
    pub releases: usize,
    /// Set while the environment is being destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroying: Option<DestroyRecord>,
    pub revision: Revision,
}

/// One role of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleRow {
    pub role: Role,
    pub nodes: usize,
    #[schema(value_type = BTreeMap<String, usize>)]
    pub counts: BTreeMap<NodeState, usize>,
}

/// Response to destroying an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestroyResponse {
    pub env: EnvName,
    /// Number of nodes that it had.
    pub nodes: usize,
    /// True if everything is deleted. False if it takes longer than the server waits; it continues in the background.
    #[serde(rename = "gone")]
    pub completed: bool,
    pub revision: Revision,
}

/// Position in the changes of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentChange {
    /// To be sent as `after` of the next request. Only the server that returned it understands it.
    pub cursor: String,
    pub revision: Revision,
}

/// Status of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentStatus {
    pub env: EnvName,
    pub revision: Revision,
    /// Version that the environment should run.
    pub desired: Option<Version>,
    pub generation: Option<Generation>,
    pub nodes: usize,
    /// Number of nodes by state.
    #[schema(value_type = BTreeMap<String, usize>)]
    pub counts: BTreeMap<NodeState, usize>,
    #[schema(value_type = BTreeMap<String, usize>)]
    pub running: BTreeMap<Version, usize>,
    /// Nodes that are not at their desired version, the worst first. At most [`MAX_BLOCKERS`].
    pub blockers: Vec<NodeRow>,
    /// Total number of blockers.
    pub blocked: usize,
    /// Number of nodes that are validated with 0 checks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unchecked: usize,
    /// First leaving nodes, with the nodes that they wait for. They are counted in `counts` only.
    #[serde(default)]
    pub leaving: Vec<NodeRow>,
    /// Pauses in effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<NodePause>,
    /// Cordoned and retired nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<NodePolicyRow>,
    /// Failure domains in which no node is declared lost, since more than half of their nodes are unreachable.
    pub held_domains: Vec<SilentDomain>,
    /// Keys whose value cannot be read, with the error.
    pub unreadable: BTreeMap<String, String>,
    /// Start of an outage of the store. None while it is reachable. The response is as of `revision`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub store_unreachable_since: Option<Timestamp>,
    /// The active rollout, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutBrief>,
    /// Filter of the counted and listed nodes. None: all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Maximum number of blockers in a status.
pub const MAX_BLOCKERS: usize = 20;

/// One node in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRow {
    pub node: NodeName,
    pub role: Role,
    /// Host name in the design.
    #[serde(default)]
    pub host: String,
    pub state: NodeState,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Version that it has validated last.
    #[serde(rename = "version")]
    pub running: Option<Version>,
    /// Reason why `version` does not count as running now. None if it counts, or if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_counted: Option<NotCounted>,
    pub desired: Option<Version>,
    /// Reason why it is not validated at its desired version. None if it is.
    #[serde(rename = "why")]
    pub reason: Option<Reason>,
    /// True if it is in `active_roles`.
    pub active: bool,
    /// Version, protocol and interval of its agent. None before it connected, or for an older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentInfo>,
    pub link: Link,
    /// Pause that applies to it, whether or not a run is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<NodePause>,
    /// Set while an operator has cordoned or retired it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRecord>,
    /// Number of checks of the validation, if the node is validated and the number is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<u32>,
}

impl NodeRow {
    /// The state for people. A validation without checks has proved nothing about the node, and says so.
    pub fn state_text(&self) -> &'static str {
        match (self.state, self.checks) {
            (NodeState::Validated, Some(0)) => "validated (0 checks)",
            (state, _) => state.label(),
        }
    }
}

/// A service that a node offers to other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeService {
    pub service: ServiceName,
    #[serde(flatten)]
    pub offer: Service,
    /// Time since which its check passes. None while the node changes its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub passing_since: Option<Timestamp>,
}

/// Names that the configuration of an agent sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentNames {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// Name for Puppet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certname: Option<HostName>,
}

impl AgentNames {
    /// Names in the facts of a report. None if the configuration sets none.
    pub fn of(facts: &Facts) -> Option<Self> {
        let names = Self { host: facts.host.clone(), certname: facts.certname.clone() };
        (names.host.is_some() || names.certname.is_some()).then_some(names)
    }
}

/// One node with all details.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeDetail {
    #[serde(flatten)]
    pub row: NodeRow,
    pub record: NodeRecord,
    pub machine: Option<MachineRecord>,
    /// Two states are a violated invariant and are shown as they are.
    pub states: Vec<ServiceState>,
    pub activity: Activity,
    /// Addresses that other nodes see.
    pub interfaces: Interfaces,
    pub incarnation: u64,
    pub last: Option<LastRun>,
    /// All errors of the last run: failed and skipped resources, failed checks and hooks. `last` has only the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ResourceError>,
    pub history: Vec<PastRun>,
    /// Values that it publishes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub published: Publication,
    /// Services that it offers to other nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<NodeService>,
    /// Drift that timed runs have found. None from a server of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<NodeDrift>,
    /// Keys that the last run looked up. Known while the agent is connected.
    pub lookups: Vec<String>,
    /// End of the last run's log.
    pub log: Option<String>,
    /// Names in the configuration of the agent, as of the last run. They precede the design.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_names: Option<AgentNames>,
    /// Another agent with the name of this node, which was refused in the last minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_agent: Option<RefusedAgent>,
    /// Reason why the rollout in progress does not move the node, if its wave has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    pub revision: Revision,
}

/// One run, with the reports of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunDetail {
    pub node: NodeName,
    pub run: RunId,
    pub reports: Vec<Report>,
    /// Number of reports whose blob is missing.
    pub missing: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CurrentVersion {
    pub version: Option<Version>,
    pub generation: Option<Generation>,
    pub revision: Revision,
}

/// Request to move the environment to a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TriggerUpdate {
    pub version: Version,
    /// Allow a release with a lower serial than the current one.
    #[serde(default)]
    pub allow_older: bool,
    /// Move all nodes in one transaction, without waves, budgets and gates. Replaces a rollout in progress.
    #[serde(default)]
    pub at_once: bool,
    /// Operator who requests it.
    #[serde(default)]
    pub by: String,
}

impl TriggerUpdate {
    /// Request for a version with the environment's strategy.
    pub fn to(version: Version) -> Self {
        Self { version, allow_older: false, at_once: false, by: String::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpdateResponse {
    pub from: Option<Version>,
    pub to: Version,
    /// False if the environment has this version already.
    pub changed: bool,
    /// Rollout that moves the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutId>,
    /// Revision at which the change is visible.
    pub revision: Revision,
}

/// A service of an active node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceRow {
    pub service: ServiceName,
    #[serde(flatten)]
    pub offer: ServiceOffer,
}

/// Versions that run now: validated by reachable nodes in their present incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunningVersions {
    pub items: Vec<RunningVersionRow>,
    /// Value of `after` for the next page. None on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Nodes whose last validation does not count, with the reason. Empty if recorded versions were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_counted: Vec<UncountedNode>,
    pub revision: Revision,
}

/// A node whose last passed validation does not count now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UncountedNode {
    pub node: NodeName,
    /// Version that it validated last.
    pub version: Version,
    #[serde(flatten)]
    pub reason: NotCounted,
}

/// A version that nodes have validated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunningVersionRow {
    pub version: Version,
    pub nodes: usize,
}

/// Request to verify that hosts have validated a version. Accepts node names and host names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifyHostsRequest {
    pub version: Version,
    pub hosts: Vec<String>,
    /// Maximum time to wait for a positive result in seconds, at most [`MAX_WAIT_SECONDS`].
    #[serde(default)]
    pub wait_seconds: u64,
    /// Count the version that each host validated last, although the host may be unreachable or restarted since.
    #[serde(default)]
    pub recorded: bool,
}

/// Longest wait of a request in seconds. Clients that wait longer repeat the request.
pub const MAX_WAIT_SECONDS: u64 = 60;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifyHostsResponse {
    pub verified: bool,
    pub hosts: usize,
    pub missing: Vec<MissingHost>,
    pub revision: Revision,
    /// Time of the decision in microseconds, without waiting.
    pub micros: u64,
}

/// A host that has not validated the version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingHost {
    pub host: String,
    /// None if the host is not in the design.
    pub state: Option<NodeState>,
    #[serde(rename = "version")]
    pub running: Option<Version>,
    #[serde(rename = "why")]
    pub reason: Option<Reason>,
    /// Reason why `version` does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_counted: Option<NotCounted>,
}
