//! The servers themselves, in the store: which replicas there are, who holds a controller, who has which agent.
//!
//! `replicas/<id>` and `controllers/<name>` go with the replica's lease, so what is there is held by somebody who lives.
//! `presence/<node>` has no lease: it counts only while its replica is there, and a lease with thousands of keys would
//! stall an etcd cluster at the moment at which it ends.

pub mod controller_lock;
pub mod links;
pub mod presence;

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::ReplicaId;

/// `replicas/<id>`: one server that lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaRecord {
    /// Where the other replicas reach it.
    pub url: String,
    /// The machine that it runs on, and its process there, for people.
    pub host: String,
    pub pid: u32,
    pub version: String,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    pub blobs: BlobsMark,
}

/// How another replica recognises that it sees the same directory of blobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlobsMark {
    /// The directory, as the replica calls it.
    pub directory: String,
    /// What stands in the file `.replicas/<id>` in it.
    pub nonce: String,
}

/// A part of the server that acts on its own, at one replica at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControllerName {
    /// Makes the nodes follow the design that was applied.
    Design,
    /// Sees to it that each role has one leader, and ends pauses whose time is over.
    Leaders,
    /// Takes lost nodes out of their roles.
    Liveness,
    /// Brings machines up, and keeps them so.
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

    /// Its word, which is also its key.
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

/// `controllers/<name>`: who holds a controller. Its revision fences every write of that controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ControllerRecord {
    pub replica: ReplicaId,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// `presence/<node>`: which replica a node's agent is connected to, since when; or that it is to none, since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PresenceRecord {
    /// Counts only while `replicas/<id>` is there.
    pub replica: Option<ReplicaId>,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_stored_under_its_word() {
        for name in ControllerName::ALL {
            assert_eq!(serde_json::to_value(name).unwrap(), name.word());
            assert_eq!(ControllerName::parse(name.word()), Some(name));
        }
        assert_eq!(ControllerName::parse("audit"), None);
    }

    #[test]
    fn the_values_are_those_of_the_table() {
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
