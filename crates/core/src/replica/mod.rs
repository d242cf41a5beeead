//! Server replicas in the store: live replicas, holders of controllers, and connections of agents.
//!
//! `replicas/<id>` and `controllers/<name>` are bound to the replica's lease and vanish with it. `presence/<node>` has
//! no lease and counts only while its replica exists: a lease with thousands of keys would stall an etcd cluster when
//! it ends.

pub mod controller_lock;
pub mod links;
pub mod presence;

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::authority::AuthorityPin;
use crate::names::{ReplicaId, SecretKeyId};
use crate::node::agent::AgentInfo;

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
    /// Keys with which the replica opens secrets, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_keys: Vec<SecretKeyId>,
    /// Pins of the certificate authorities that the replica has the keys of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authorities: Vec<AuthorityPin>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PresenceRecord {
    /// Counts only while `replicas/<id>` exists.
    pub replica: Option<ReplicaId>,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Id of the agent: of its state directory and boot. Another agent with the name of the node has another one. None for
    /// an older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Another agent with the name of the node, refused while this one is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedAgent>,
    /// What the agent said of itself when it connected last, or was refused because of its protocol. None for an older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentInfo>,
}

/// An agent that was refused because another one with the same node name is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedAgent {
    /// Time of the first refusal.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Time of a recent refusal. It is updated once a minute.
    #[schema(value_type = String, format = DateTime)]
    pub last: Timestamp,
    /// True if it has the same incarnation: its state directory is a copy.
    #[serde(default)]
    pub is_copy: bool,
}

impl RefusedAgent {
    /// Interval at which `last` is updated. A refused agent tries at least twice as often.
    pub const UPDATE: SignedDuration = SignedDuration::from_mins(1);
    /// Age of `last` after which the other agent is gone.
    const FORGET: SignedDuration = SignedDuration::from_mins(3);

    /// True if the other agent still tried a short time ago.
    pub fn is_current(&self, now: Timestamp) -> bool {
        now.duration_since(self.last) < Self::FORGET
    }

    /// The record after a refusal; none if the known one is recent enough.
    #[must_use]
    pub fn after_refusal(known: Option<Self>, is_copy: bool, now: Timestamp) -> Option<Self> {
        let known = known.filter(|known| known.is_current(now) && known.is_copy == is_copy);
        match known {
            Some(known) if now.duration_since(known.last) < Self::UPDATE => None,
            Some(known) => Some(Self { last: now, ..known }),
            None => Some(Self { since: now, last: now, is_copy }),
        }
    }
}

impl fmt::Display for RefusedAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = if self.is_copy {
            "an agent with the same state directory (a copy of it, or this machine before a restart)"
        } else {
            "another agent with the name of this node"
        };
        write!(f, "{other} is refused since {}", self.since.strftime("%F %T UTC"))
    }
}

/// True if two agents with the name of one node are different agents. Older agents have no id and are never refused.
pub fn are_different_agents(one: Option<&str>, other: Option<&str>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one != other)
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
            serde_json::to_string(&PresenceRecord {
                replica: Some(replica),
                since,
                holder: Some("a1".into()),
                refused: RefusedAgent::after_refusal(None, true, since),
                agent: AgentInfo::new(Some("0.1.0"), 2, SignedDuration::from_mins(30).try_into().ok()),
            })
            .unwrap(),
            serde_json::to_string(&PresenceRecord { since, ..PresenceRecord::default() }).unwrap(),
        ];
        assert_eq!(
            texts,
            [
                r#"{"replica":"ctl1-0a1b2c","since":"2026-11-15T10:00:00Z"}"#,
                concat!(
                    r#"{"replica":"ctl1-0a1b2c","since":"2026-11-15T10:00:00Z","holder":"a1","#,
                    r#""refused":{"since":"2026-11-15T10:00:00Z","last":"2026-11-15T10:00:00Z","is_copy":true},"#,
                    r#""agent":{"version":"0.1.0","protocol":2,"every":"PT30M"}}"#
                ),
                r#"{"replica":null,"since":"2026-11-15T10:00:00Z"}"#,
            ]
        );
    }

    #[test]
    fn refusals_are_recorded_once_a_minute_and_forgotten() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = RefusedAgent::after_refusal(None, false, at(0)).unwrap();
        assert_eq!(RefusedAgent::after_refusal(Some(first), false, at(59)), None);
        let second = RefusedAgent::after_refusal(Some(first), false, at(60)).unwrap();
        assert_eq!((second.since, second.last), (at(0), at(60)));
        assert!(second.is_current(at(239)) && !second.is_current(at(240)));
        let later = RefusedAgent::after_refusal(Some(second), false, at(240)).unwrap();
        assert_eq!(later.since, at(240), "another agent, or the same one again");
        assert!(RefusedAgent::after_refusal(Some(first), true, at(1)).is_some_and(|copy| copy.is_copy));
    }
}
