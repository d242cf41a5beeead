//! Snapshot of everything that a node may look up, at one revision. A run reads the snapshot and never the network.

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

/// role → node → interface → address. Contains every role of the environment, also without active nodes.
pub type ActiveRoles = BTreeMap<Role, BTreeMap<NodeName, Interfaces>>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    pub revision: Revision,
    /// Tag of the content without the revision. The server does not send a snapshot that the agent already has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    #[schema(value_type = BTreeMap<String, BTreeMap<String, Interfaces>>)]
    pub active_roles: ActiveRoles,
    /// Roles without a leader are missing.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, LeaderInfo>)]
    pub leaders: BTreeMap<Role, LeaderInfo>,
    /// key → node → value.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, BTreeMap<String, Value>>)]
    pub published: BTreeMap<DataKey, BTreeMap<NodeName, Value>>,
    /// Configuration data that apply to this node.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, Datum>)]
    pub data: BTreeMap<DataKey, Datum>,
}

/// Leader of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaderInfo {
    pub node: NodeName,
    pub host: String,
    /// Grows with each election. Content can use it as a fencing token.
    pub epoch: u64,
    pub interfaces: Interfaces,
}

impl LeaderInfo {
    pub fn tag(&self) -> Tag {
        leader_tag(&self.node, self.epoch, &self.interfaces)
    }
}

impl Snapshot {
    /// Tag of the value that a run would look up.
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

    /// Returns whether a need is certainly unmet. A need that cannot be decided from the snapshot may be met.
    pub fn still_lacks(&self, need: &Need) -> bool {
        match need {
            Need::Role { role, want, .. } => self.active_roles.get(role).map_or(0, BTreeMap::len) < *want as usize,
            Need::Leader { role } => !self.leaders.contains_key(role),
            Need::Published { key, want, .. } => self.published.get(key).map_or(0, BTreeMap::len) < *want as usize,
            Need::Other { .. } => false,
        }
    }
}
