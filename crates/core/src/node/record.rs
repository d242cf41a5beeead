//! Records of a node in the store: `nodes/…`, `asked/…` and `machines/…`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{HostName, NodeName, Role};
use crate::report::RunOptions;

/// `nodes/<node>`: the node in the design. An agent cannot change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRecord {
    pub role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Nodes of one failure domain are likely to fail together.
    pub failure_domain: String,
    /// Position in the design, for listing nodes in the author's order.
    #[serde(default)]
    pub position: u32,
    /// Kind of machine, as named in the design.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<String>,
    /// Host name, if it is not the name of the node with `-` for `_`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<HostName>,
    /// Set when the node was removed from the design. It leaves service and its machine is released. Its keys stay
    /// until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Decommission>,
    /// Time at which the node was registered. None if an older server did that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created: Option<Timestamp>,
}

impl NodeRecord {
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// This record of a design, for a node that is registered already and stays.
    #[must_use]
    pub fn registered_as(&self, known: &NodeRecord) -> NodeRecord {
        NodeRecord { leaving: None, created: known.created, ..self.clone() }
    }

    /// Host name of the node with this record.
    pub fn host(&self, node: &NodeName) -> String {
        self.host_name.as_ref().map_or_else(|| node.host(), HostName::to_string)
    }
}

/// Decommissioning of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decommission {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// The machine runs until then at most, so that nodes that looked it up can run without it first.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
}

/// `asked/<node>`: the last run that an operator requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunRequest {
    pub id: String,
    /// Preview only: report what would change.
    #[serde(default)]
    pub noop: bool,
    #[serde(flatten)]
    pub options: RunOptions,
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
    /// Attempt to provision or release the machine, from 1. It counts across phases: a machine that fails at its third
    /// step again and again has that many failed attempts.
    #[serde(default = "first_attempt")]
    pub attempt: u32,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

fn first_attempt() -> u32 {
    1
}

/// Phase of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum MachinePhase {
    Declared,
    Allocating,
    Deploying,
    Booting,
    /// The machine runs. Its agent has not connected yet.
    Bootstrapping,
    Provisioned,
    /// The stage `during` failed.
    Failed {
        during: MachineStage,
        cause: String,
        /// Time of the next attempt. None: an operator has to act.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        retry: Option<Timestamp>,
    },
    /// The node leaves: its machine is being released with everything on it. Then all its keys are deleted, this one
    /// too.
    Releasing,
}

impl MachinePhase {
    /// Returns whether the machine is being released, or its release failed.
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

    /// The words of all phases.
    pub const WORDS: [&'static str; 8] = [
        "declared",
        MachineStage::Allocating.word(),
        MachineStage::Deploying.word(),
        MachineStage::Booting.word(),
        MachineStage::Bootstrapping.word(),
        "provisioned",
        "failed",
        MachineStage::Releasing.word(),
    ];

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

/// Phases with work in progress, which can fail.
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

    pub const fn word(self) -> &'static str {
        match self {
            MachineStage::Allocating => "allocating",
            MachineStage::Deploying => "deploying",
            MachineStage::Booting => "booting",
            MachineStage::Bootstrapping => "bootstrapping",
            MachineStage::Releasing => "releasing",
        }
    }

    /// Phase in which the work is in progress.
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
    fn machine_record_is_flat() {
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
    fn machine_stage_matches_its_phase() {
        for stage in MachineStage::ALL {
            assert_eq!(stage.phase().word(), stage.word());
            assert_eq!(serde_json::to_value(stage).unwrap(), stage.word());
        }
    }
}
