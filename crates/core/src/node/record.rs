//! The values of the keys, as JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::Role;

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
    pub leaving: Option<Decommission>,
}

impl NodeRecord {
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }
}

/// A node leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decommission {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Until then its machine goes on, so that those who looked it up can run without it first.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
}

/// `asked/<node>`: the last run that a person asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunRequest {
    pub id: String,
    /// Only to say what would change.
    #[serde(default)]
    pub noop: bool,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
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
