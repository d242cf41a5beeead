//! Messages, requests and responses of the agent API: the sync stream of each node, and short requests of its agent.
//! Replicas exchange the activities of agents.

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::lookup::{Lookups, Tag};
use muster_core::names::{HostName, NodeName, Role, Version};
use muster_core::node::agent::{AgentInfo, CallInterval, FIRST_PROTOCOL};
use muster_core::node::pause::NodePause;
use muster_core::node::status::Activity;
use muster_core::release::manifest::{KeyId, SignedManifest, SignedTrust};
use muster_core::report::RunOptions;
use muster_core::txn::{Generation, Revision};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Header of an agent's other requests: the same id as [`SyncOpen::holder`].
pub const AGENT_HOLDER: &str = "muster-agent-holder";
/// Header of an agent's requests: the protocol that it speaks.
pub const AGENT_PROTOCOL: &str = "muster-agent-protocol";

/// Upgrade of the connection of a sync stream: after the response with status 101 the server sends events, and the agent sends its
/// activity as events. Without the upgrade events are the body of the response, and the agent sends its activity in requests.
pub const UPGRADE: &str = "muster-sync";

/// First message of an agent: what the server needs to send only news.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SyncOpen {
    /// None for an agent without state. It gets the next incarnation.
    #[serde(default)]
    pub incarnation: Option<u64>,
    /// Newest desired state that it has stored.
    #[serde(default)]
    pub generation: Option<Generation>,
    /// Lookups of its last run.
    #[serde(default)]
    pub lookups: Lookups,
    /// True if it has a snapshot.
    #[serde(default)]
    pub has_snapshot: bool,
    /// Tag of its snapshot, which is not sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Tag>,
    #[serde(default)]
    pub activity: Activity,
    /// Pause that it obeys.
    #[serde(default)]
    pub pause: Option<NodePause>,
    /// Last run request that it received.
    #[serde(default)]
    pub asked: Option<String>,
    /// Serial of its trust list. 0 without one.
    #[serde(default)]
    pub trust: u64,
    /// Ids of the keys that it trusts now. Empty for an older agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted: Vec<KeyId>,
    /// Boot id of the machine.
    #[serde(default)]
    pub boot: Option<String>,
    /// True if it prefers another server that did not respond.
    #[serde(default)]
    pub away: bool,
    /// Id of the agent: of its state directory and boot. While one agent is connected, a different one with the same node
    /// name is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Protocol of the agent. None for an older agent, which speaks protocol 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u32>,
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Interval at which cron starts the agent. None: it runs all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<CallInterval>,
}

impl SyncOpen {
    /// What the agent says of itself. None for an older agent.
    pub fn agent(&self) -> Option<AgentInfo> {
        AgentInfo::new(self.version.as_deref(), self.protocol.unwrap_or(FIRST_PROTOCOL), self.every)
    }
}

/// Event for an agent. On the stream, its name is the `event:` and the rest the `data:`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SyncEvent {
    /// First event of each stream. It is sent again when the role or the host name changes.
    Hello {
        incarnation: u64,
        role: Role,
        /// Host name in the design. None: the name of the node with `-` for `_`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host_name: Option<HostName>,
        /// Time of the server. The agent computes its clock offset from it.
        #[schema(value_type = String, format = DateTime)]
        now: Timestamp,
        /// Protocol of the server. None for an older server, which speaks protocol 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        protocol: Option<u32>,
    },
    Desired(DesiredState),
    /// New snapshot: a value that the last run looked up has changed, the desired version has changed, or the agent has
    /// no snapshot.
    Snapshot {
        changed: Vec<String>,
        snapshot: Snapshot,
    },
    /// The pause of the node has changed or ended.
    Pause {
        pause: Option<NodePause>,
    },
    Run(RequestedRun),
    /// New trust list. The agent accepts it only if a key that it trusts has signed it.
    Trust {
        trust: SignedTrust,
    },
    /// Roots and URLs of the servers, for an agent with a certificate.
    Identity {
        /// Trusted root certificates, in PEM.
        roots: String,
        servers: Vec<String>,
        /// The agent has to renew its certificate, at a random time within these milliseconds: its own is of a replaced authority,
        /// or the servers do not know yet that it has stored the roots.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        renew_within_ms: Option<u32>,
    },
    /// Keep-alive.
    Ping,
    /// The server has more than its share of agents. An agent that knows another server moves there.
    Move,
}

/// Run requested by an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestedRun {
    pub id: String,
    /// Preview only.
    #[serde(default)]
    pub noop: bool,
    #[serde(default)]
    pub by: String,
    #[serde(flatten)]
    pub options: RunOptions,
    /// The release of [`RunOptions::version`]. Its generation is that of the desired state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Box<DesiredState>>,
}

/// Desired state of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredState {
    pub generation: Generation,
    pub version: Version,
    pub digest: String,
    pub serial: u64,
    /// True if the node may move to a release with a lower serial.
    #[serde(default)]
    pub allow_older: bool,
    /// Time after applying within which the server must take a report. After that the node rolls back to its previous
    /// release. None: no automatic rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Duration)]
    pub confirm_within: Option<SignedDuration>,
    /// Signed manifest. The agent trusts this field only.
    pub manifest: SignedManifest,
}

impl DesiredState {
    /// Desired state of a node with its signed manifest. None without a version, or if its release is not registered.
    pub fn for_node(fleet: &Fleet, node: &NodeName) -> Option<Self> {
        let desired = fleet.desired_of(node)?;
        let release = fleet.releases().get(&desired.version)?;
        Some(Self {
            generation: desired.generation,
            version: desired.version,
            digest: release.digest.clone(),
            serial: release.serial,
            allow_older: desired.allow_older,
            confirm_within: desired.confirm_within,
            manifest: release.signed.clone(),
        })
    }

    /// A registered release for a preview in place of the desired one. None if it is not registered, or if the node has no
    /// desired state.
    pub fn for_preview(fleet: &Fleet, node: &NodeName, version: &Version) -> Option<Self> {
        let release = fleet.releases().get(version)?;
        Some(Self {
            generation: fleet.desired_of(node)?.generation,
            version: version.clone(),
            digest: release.digest.clone(),
            serial: release.serial,
            allow_older: true,
            confirm_within: None,
            manifest: release.signed.clone(),
        })
    }
}

/// Desired state and pause, for a request without a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredResponse {
    /// None before a version was chosen.
    #[serde(default)]
    pub desired: Option<DesiredState>,
    /// Pause of the node.
    #[serde(default)]
    pub pause: Option<NodePause>,
    /// Time of the server.
    #[schema(value_type = String, format = DateTime)]
    pub now: Timestamp,
    /// Protocol of the server. None for an older server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u32>,
}

/// Result of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportResult {
    /// The report moved the node's status.
    Applied,
    /// Duplicate: the report was applied before.
    AlreadyApplied,
    /// Stale: older than the last applied report. No-op.
    Outdated,
}

/// Response to a report. The agent deletes the report. If it is stale, the agent gets a new incarnation and sends it
/// again once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportAck {
    pub taken: ReportResult,
    /// Revision at which it is visible.
    pub revision: Revision,
}

/// Activity of an agent that is connected to the responding replica. Idle agents may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentActivity {
    pub node: NodeName,
    pub doing: Activity,
    /// Keys that its last run looked up. Only in a response about one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lookups: Vec<String>,
    /// Ids of the run requests that the current run serves. Only in a response about one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<String>,
}
