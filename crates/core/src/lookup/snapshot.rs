//! Everything that a node may look up, at one revision. A run reads this and never the network.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::lookup::config_data::Datum;
use crate::lookup::{LookupKey, RoleTags, Tag, datum_tag, leader_tag, published};
use crate::names::{DataKey, NodeName, Role};
use crate::report::Interfaces;
use crate::report::reason::Need;
use crate::txn::Revision;

/// role → node → interface → address. Every role of the environment is there, also one without active nodes.
pub type ActiveRoles = BTreeMap<Role, BTreeMap<NodeName, Interfaces>>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    pub revision: Revision,
    /// Stands for all that is in it but its revision: a server that is told it need not send the same again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    #[schema(value_type = BTreeMap<String, BTreeMap<String, Interfaces>>)]
    pub active_roles: ActiveRoles,
    /// A role without a leader is not there.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, LeaderInfo>)]
    pub leaders: BTreeMap<Role, LeaderInfo>,
    /// key → node → value.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, BTreeMap<String, Value>>)]
    pub published: BTreeMap<DataKey, BTreeMap<NodeName, Value>>,
    /// Configuration data, as this node sees them.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, Datum>)]
    pub data: BTreeMap<DataKey, Datum>,
}

/// The leader of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaderInfo {
    pub node: NodeName,
    pub host: String,
    /// Grows with each election: whoever passes it on can tell an old leader's word from a new one's.
    pub epoch: u64,
    pub interfaces: Interfaces,
}

impl LeaderInfo {
    pub fn tag(&self) -> Tag {
        leader_tag(&self.node, self.epoch, &self.interfaces)
    }
}

impl Snapshot {
    /// The tag of what a run would see at a key.
    pub fn tag(&self, key: &str) -> Tag {
        let tags = |role: &str| {
            let nodes = self.active_roles.get(role)?;
            let mut tags = RoleTags::default();
            nodes.iter().for_each(|(node, interfaces)| tags.add(node, interfaces));
            Some(tags)
        };
        match LookupKey::parse(key) {
            LookupKey::ActiveRole { role } => tags(role).map(|tags| tags.role()),
            LookupKey::ActiveRoleInterface { role, interface } => tags(role).map(|tags| tags.interface(interface)),
            LookupKey::Leader { role } => self.leaders.get(role).map(LeaderInfo::tag),
            LookupKey::Published { key } => Some(published::tag_of(self.published.get(key).into_iter().flatten())),
            LookupKey::Datum { key } => self.data.get(key).map(|datum| datum_tag(&datum.value, datum.secret)),
            LookupKey::Unknown => None,
        }
        .unwrap_or_else(Tag::absent)
    }

    /// Whether a need is still unmet for sure. What cannot be judged from here may have been met.
    pub fn still_lacks(&self, need: &Need) -> bool {
        match need {
            Need::Role { role, want, .. } => self.active_roles.get(role).map_or(0, BTreeMap::len) < *want as usize,
            Need::Leader { role } => !self.leaders.contains_key(role),
            Need::Published { key, want, .. } => self.published.get(key).map_or(0, BTreeMap::len) < *want as usize,
            Need::Other { .. } => false,
        }
    }
}
