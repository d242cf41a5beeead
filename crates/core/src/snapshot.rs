//! Everything that a node may look up, at one revision. A run reads this and never the network.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::lookups::{LookupKey, RoleTags, Tag};
use crate::names::{NodeName, Role};
use crate::reason::Need;
use crate::report::Interfaces;
use crate::txn::Revision;

/// role → node → interface → address. Every role of the environment is there, also one without active nodes.
pub type ActiveRoles = BTreeMap<Role, BTreeMap<NodeName, Interfaces>>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    pub revision: Revision,
    #[schema(value_type = BTreeMap<String, BTreeMap<String, Interfaces>>)]
    pub active_roles: ActiveRoles,
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
            LookupKey::Unknown => None,
        }
        .unwrap_or_else(Tag::absent)
    }

    /// Whether a need is still unmet for sure. What cannot be judged from here may have been met.
    pub fn still_lacks(&self, need: &Need) -> bool {
        match need {
            Need::Role { role, want, .. } => self.active_roles.get(role).map_or(0, BTreeMap::len) < *want as usize,
            Need::Other { .. } => false,
        }
    }
}
