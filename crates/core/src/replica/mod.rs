//! Server replicas in the store: live replicas, holders of controllers, and connections of agents.
//!
//! `replicas/<id>` and `controllers/<name>` are bound to the replica's lease and vanish with it. `presence/<node>` has
//! no lease and counts only while its replica exists: a lease with thousands of keys would stall an etcd cluster when
//! it ends.

pub mod controller_lock;
pub mod links;
pub mod presence;

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::ReplicaId;

/// `replicas/<id>`: a live server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaRecord {
    /// URL for other replicas.
    pub url: String,
    /// Machine and process id, for operators.
    pub host: String,
    pub pid: u32,
    pub version: String,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    pub blobs: BlobsMark,
}

/// Marks a blob directory, so that another replica can check that it sees the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlobsMark {
    /// Path of the directory on the replica.
    pub directory: String,
    /// Content of the file `.replicas/<id>` in the directory.
    pub nonce: String,
}

/// A control loop of the server. One replica runs it at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControllerName {
    /// Makes the nodes follow the applied design.
    Design,
    /// Elects a leader for each role and deletes expired pauses.
    Leaders,
    /// Removes lost nodes from their roles.
    Liveness,
    /// Provisions and releases machines.
    Provision,
    /// Moves the environment from one version to the next.
    Rollout,
}

impl ControllerName {
    pub const ALL: [ControllerName; 5] = [
        ControllerName::Design,
        ControllerName::Leaders,
        ControllerName::Liveness,
        ControllerName::Provision,
        ControllerName::Rollout,
    ];

    /// Name in the key and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            ControllerName::Design => "design",
            ControllerName::Leaders => "leaders",
            ControllerName::Liveness => "liveness",
            ControllerName::Provision => "provision",
            ControllerName::Rollout => "rollout",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.word() == word)
    }
}

impl fmt::Display for ControllerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// `controllers/<name>`: holder of a controller. Its revision fences each write of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ControllerRecord {
    pub replica: ReplicaId,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// `presence/<node>`: replica that the agent is connected to, or none, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PresenceRecord {
    /// Counts only while `replicas/<id>` exists.
    pub replica: Option<ReplicaId>,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_name_matches_its_json() {
        for name in ControllerName::ALL {
            assert_eq!(serde_json::to_value(name).unwrap(), name.word());
            assert_eq!(ControllerName::parse(name.word()), Some(name));
        }
        assert_eq!(ControllerName::parse("audit"), None);
    }

    #[test]
    fn records_match_the_documented_json() {
        let since = "2026-11-15T10:00:00Z".parse().unwrap();
        let replica = ReplicaId::new("ctl1-0a1b2c").unwrap();
        let texts = [
            serde_json::to_string(&ControllerRecord { replica: replica.clone(), since }).unwrap(),
            serde_json::to_string(&PresenceRecord { replica: Some(replica), since }).unwrap(),
            serde_json::to_string(&PresenceRecord { replica: None, since }).unwrap(),
        ];
        assert_eq!(
            texts,
            [
                r#"{"replica":"ctl1-0a1b2c","since":"2026-11-15T10:00:00Z"}"#,
                r#"{"replica":"ctl1-0a1b2c","since":"2026-11-15T10:00:00Z"}"#,
                r#"{"replica":null,"since":"2026-11-15T10:00:00Z"}"#,
            ]
        );
    }
}
