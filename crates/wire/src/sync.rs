//! The agents' side of the API: one long-lived stream to each node, and short messages back.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::fleet::Fleet;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::lookup::{Lookups, Tag};
use muster_core::names::{NodeName, Role, Version};
use muster_core::node::pause::NodePause;
use muster_core::node::status::Activity;
use muster_core::release::manifest::{SignedManifest, SignedTrust};
use muster_core::txn::{Generation, Revision};

/// What an agent opens its stream with: everything that the server needs to know to tell it what is new, and no more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SyncOpen {
    /// None for an agent that has lost its memory, or never had one: it is given the next.
    #[serde(default)]
    pub incarnation: Option<u64>,
    /// The newest desired state that it has written down.
    #[serde(default)]
    pub generation: Option<Generation>,
    /// What its last run looked up, and saw.
    #[serde(default)]
    pub lookups: Lookups,
    /// Whether it has a snapshot at all.
    #[serde(default)]
    pub has_snapshot: bool,
    /// The tag of its snapshot: it is not sent what it has already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Tag>,
    #[serde(default)]
    pub activity: Activity,
    /// The pause that it keeps to.
    #[serde(default)]
    pub pause: Option<NodePause>,
    /// The last run that a person asked it for.
    #[serde(default)]
    pub asked: Option<String>,
    /// The serial of the newest list of trusted keys that it has taken; 0 if it never took one.
    #[serde(default)]
    pub trust: u64,
    /// Which start of the machine the agent runs in.
    #[serde(default)]
    pub boot: Option<String>,
    /// Whether it would rather be at another server: it came here because that one did not answer.
    #[serde(default)]
    pub away: bool,
}

/// What the server tells an agent. On the stream, the name of an event is its `event:` and the rest its `data:`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SyncEvent {
    /// The first event of each stream.
    Hello {
        incarnation: u64,
        role: Role,
        /// The server's time: an agent whose clock is wrong can tell by how much.
        #[schema(value_type = String, format = DateTime)]
        now: Timestamp,
    },
    Desired(DesiredState),
    /// Something that the last run looked up is different now; or the agent is to run another version, or has no snapshot
    /// yet, and this is not the one that it has.
    Snapshot {
        changed: Vec<String>,
        snapshot: Snapshot,
    },
    /// The node is not to run, or may again: what it keeps to is another pause now.
    Pause {
        pause: Option<NodePause>,
    },
    /// A person asks for a run.
    Run {
        id: String,
        /// Only to say what would change.
        #[serde(default)]
        noop: bool,
        #[serde(default)]
        by: String,
    },
    /// Other keys sign the releases from now on. The agent believes it only if a key that it trusts says so.
    Trust {
        trust: SignedTrust,
    },
    /// Nothing has happened; the connection is alive.
    Ping,
    /// This server has more than its share of the agents: one that knows another server goes there.
    Move,
}

/// What a node should run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredState {
    pub generation: Generation,
    pub version: Version,
    pub digest: String,
    pub serial: u64,
    /// Whether the node may go to a release with a lower serial than it has.
    #[serde(default)]
    pub allow_older: bool,
    /// How long the node waits after applying for the server to take a report of that run. When none is taken, it goes back
    /// to the release that it ran before, by itself. None: it stays, whatever happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Duration)]
    pub confirm_within: Option<SignedDuration>,
    /// What the release's builder signed: the agent goes by this.
    pub manifest: SignedManifest,
}

impl DesiredState {
    /// What a node is told to run: the version that was chosen for it, with what its builder signed. None before a version
    /// was chosen, or while its release is not registered.
    pub fn of(fleet: &Fleet, node: &NodeName) -> Option<Self> {
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
}

/// What a node is told that asks, without a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredResponse {
    /// What it should run; none before a version was chosen.
    #[serde(default)]
    pub desired: Option<DesiredState>,
    /// Whether it is to wait.
    #[serde(default)]
    pub pause: Option<NodePause>,
    /// The server's time.
    #[schema(value_type = String, format = DateTime)]
    pub now: Timestamp,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportResult {
    /// It moved the node's status.
    Applied,
    /// It was applied before.
    AlreadyApplied,
    /// It is older than what is known, and changed nothing.
    Outdated,
}

/// The answer to a report. The agent forgets the report, unless it is outdated: then it asks for another incarnation and
/// sends it again, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportAck {
    pub taken: ReportResult,
    /// The revision at which it is visible.
    pub revision: Revision,
}
