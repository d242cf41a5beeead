//! The values of the keys, as JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::departure::LookedUp;
use crate::generation::Generation;
use crate::lookups::Tag;
use crate::names::{NodeName, Role, RunId, Version};
use crate::reason::Reason;
use crate::release_manifest::SignedManifest;
use crate::report::{Cause, Counts, FirstFailure, Interfaces, Outcome, ResourceError};
use crate::service_state::ServiceState;

/// `nodes/<node>`: what the design says of a node. A node cannot change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRecord {
    pub role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Nodes that are likely to fail together.
    pub failure_domain: String,
    /// Its place in the design, for showing nodes in the order that their author chose.
    #[serde(default)]
    pub position: u32,
    /// What machine it needs, in the design's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<String>,
    /// The design does not want it any more: it is taken out of service, and its machine is released. Its keys stay until
    /// that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Leaving>,
}

impl NodeRecord {
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }
}

/// A node leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Leaving {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Until then its machine goes on, so that those who looked it up can run without it first.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
}

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
pub struct Observed {
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
    #[serde(default, skip_serializing_if = "LookedUp::is_empty")]
    pub looked_up: LookedUp,
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
    pub reason: Option<Reason>,
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
pub struct History(pub Vec<PastRun>);

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

/// `releases/<version>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseRecord {
    /// Of the bundle, which is the blob of this name.
    pub digest: String,
    /// Grows with each release: a node goes to a lower one only if somebody allows it.
    pub serial: u64,
    /// Of the bundle, in bytes.
    pub size: u64,
    /// The digest of what is in it.
    pub content: String,
    /// What its builder signed. Nodes believe this, and nothing else here.
    pub signed: SignedManifest,
    #[schema(value_type = String, format = DateTime)]
    pub pushed: Timestamp,
    pub by: String,
}

/// `allow_older`: written with `current_version` when somebody sends nodes back to an earlier release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllowOlder {
    pub version: Version,
    pub by: String,
}

/// `leaders/<role>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaderRecord {
    /// None while nobody can lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Grows with each election, and never goes back.
    pub epoch: u64,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// `asked/<node>`: the last run that a person asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Asked {
    pub id: String,
    /// Only to say what would change.
    #[serde(default)]
    pub noop: bool,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// `restoring`: the environment is being restored from a backup, or a restore of it was cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Restoring {
    /// Digest of the backup's file: only the same one completes what it began.
    pub digest: String,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Who restores: a program on a machine.
    pub by: String,
}

/// `machines/<node>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineRecord {
    pub driver: String,
    #[serde(flatten)]
    pub phase: MachinePhase,
    /// Which attempt at becoming provisioned, or at being released, this is, from 1. It outlives the phases: a machine that fails at its third
    /// step again and again has failed so many times, not once so many times over.
    #[serde(default = "first_attempt")]
    pub attempt: u32,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

fn first_attempt() -> u32 {
    1
}

/// How far a machine has come. Named for what has been achieved or is being done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum MachinePhase {
    Declared,
    Allocating,
    Deploying,
    Booting,
    /// The machine runs; its agent has not said hello yet.
    Bootstrapping,
    Provisioned,
    /// What began in `during` did not end well.
    Failed {
        during: MachineStage,
        cause: String,
        /// When the next attempt is made. None: not by itself, somebody has to look at it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        retry: Option<Timestamp>,
    },
    /// The node leaves: its machine is being given back, with all that is on it. Then its keys go, this one too.
    Releasing,
}

impl MachinePhase {
    /// Whether the machine is being given back, or could not be.
    pub fn is_releasing(&self) -> bool {
        match self {
            MachinePhase::Releasing | MachinePhase::Failed { during: MachineStage::Releasing, .. } => true,
            MachinePhase::Declared
            | MachinePhase::Allocating
            | MachinePhase::Deploying
            | MachinePhase::Booting
            | MachinePhase::Bootstrapping
            | MachinePhase::Provisioned
            | MachinePhase::Failed { .. } => false,
        }
    }

    pub fn word(&self) -> &'static str {
        match self {
            MachinePhase::Declared => "declared",
            MachinePhase::Allocating => MachineStage::Allocating.word(),
            MachinePhase::Deploying => MachineStage::Deploying.word(),
            MachinePhase::Booting => MachineStage::Booting.word(),
            MachinePhase::Bootstrapping => MachineStage::Bootstrapping.word(),
            MachinePhase::Provisioned => "provisioned",
            MachinePhase::Failed { .. } => "failed",
            MachinePhase::Releasing => MachineStage::Releasing.word(),
        }
    }
}

/// The phases in which something is being done, and can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MachineStage {
    Allocating,
    Deploying,
    Booting,
    Bootstrapping,
    Releasing,
}

impl MachineStage {
    pub const ALL: [MachineStage; 5] = [
        MachineStage::Allocating,
        MachineStage::Deploying,
        MachineStage::Booting,
        MachineStage::Bootstrapping,
        MachineStage::Releasing,
    ];

    pub fn word(self) -> &'static str {
        match self {
            MachineStage::Allocating => "allocating",
            MachineStage::Deploying => "deploying",
            MachineStage::Booting => "booting",
            MachineStage::Bootstrapping => "bootstrapping",
            MachineStage::Releasing => "releasing",
        }
    }

    /// The phase in which this is being done.
    pub fn phase(self) -> MachinePhase {
        match self {
            MachineStage::Allocating => MachinePhase::Allocating,
            MachineStage::Deploying => MachinePhase::Deploying,
            MachineStage::Booting => MachinePhase::Booting,
            MachineStage::Bootstrapping => MachinePhase::Bootstrapping,
            MachineStage::Releasing => MachinePhase::Releasing,
        }
    }
}

impl std::fmt::Display for MachineStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_stored_as_one_flat_object() {
        let failed = MachineRecord {
            driver: "local".into(),
            phase: MachinePhase::Failed {
                during: MachineStage::Booting,
                cause: "no such program".into(),
                retry: Some("2026-11-15T10:00:05Z".parse().unwrap()),
            },
            attempt: 2,
            since: "2026-11-15T10:00:00Z".parse().unwrap(),
        };
        let text = r#"{"driver":"local","phase":"failed","during":"booting","cause":"no such program","retry":"2026-11-15T10:00:05Z","attempt":2,"since":"2026-11-15T10:00:00Z"}"#;
        assert_eq!(serde_json::to_string(&failed).unwrap(), text);
        assert_eq!(serde_json::from_str::<MachineRecord>(text).unwrap(), failed);

        let short = r#"{"driver":"local","phase":"booting","since":"2026-11-15T10:00:00Z"}"#;
        let record: MachineRecord = serde_json::from_str(short).unwrap();
        assert_eq!((record.phase, record.attempt), (MachinePhase::Booting, 1));
    }

    #[test]
    fn every_stage_is_the_phase_of_its_name() {
        for stage in MachineStage::ALL {
            assert_eq!(stage.phase().word(), stage.word());
            assert_eq!(serde_json::to_value(stage).unwrap(), stage.word());
        }
    }
}
