//! Values that nodes can look up: active roles, leaders, published values and configuration data.

use std::collections::{BTreeMap, BTreeSet};

use crate::lookup::config_data::ConfigData;
use crate::lookup::published::Publications;
use crate::lookup::self_values::{self, SelfValues};
use crate::lookup::services::{ServiceIndex, ServiceOffer};
use crate::lookup::snapshot::{LeaderInfo, Snapshot};
use crate::lookup::{LookupKey, Tag, all_roles_tag};
use crate::names::{DataKey, NodeName, Role};
use crate::node::leaders::LeaderRecord;
use crate::txn::Revision;

use super::{Fleet, Node};

impl Fleet {
    /// Nodes whose last run may have looked a role up.
    pub fn role_readers(&self, role: &Role) -> impl Iterator<Item = &NodeName> {
        self.index.role_readers.get(role).into_iter().flatten().chain(&self.index.wide_readers)
    }

    /// Number of active nodes of a role.
    pub fn active_count(&self, role: &Role) -> u32 {
        self.index.roles.get(role).map_or(0, |role| u32::try_from(role.active.len()).unwrap_or(u32::MAX))
    }

    /// Number of nodes that publish under a key.
    pub fn published_count(&self, key: &DataKey) -> u32 {
        self.published.at(key.as_str()).map_or(0, |nodes| u32::try_from(nodes.len()).unwrap_or(u32::MAX))
    }

    pub fn published(&self) -> &Publications {
        &self.published
    }

    pub fn services(&self) -> &ServiceIndex {
        &self.index.services
    }

    /// Nodes that offer a service, in natural order of their names.
    pub fn offers(&self, service: &str) -> Vec<ServiceOffer> {
        let mut offers: Vec<ServiceOffer> =
            self.index.services.at(service).into_iter().flatten().map(ServiceOffer::new).collect();
        offers.sort_by(|one, other| one.node.natural().cmp(&other.node.natural()));
        offers
    }

    pub fn data(&self) -> &ConfigData {
        &self.data
    }

    /// Leader of each role, with the revision of its key. A record without a node is kept for its epoch.
    pub fn leaders(&self) -> &BTreeMap<Role, (LeaderRecord, Revision)> {
        &self.leaders
    }

    /// Roles of the environment with their active nodes.
    pub fn roles(&self) -> impl Iterator<Item = (&Role, &BTreeSet<NodeName>)> {
        self.index.roles.iter().map(|(role, members)| (role, &members.active))
    }

    /// Leader of a role, as nodes look it up.
    pub fn leader(&self, role: &str) -> Option<LeaderInfo> {
        let (record, _) = self.leaders.get(role)?;
        let node = record.node.clone()?;
        let observed = self.nodes.get(&node).and_then(|node| node.observed.as_ref());
        let interfaces = observed.map(|(observed, _)| observed.interfaces.clone()).unwrap_or_default();
        Some(LeaderInfo { host: self.host_of(&node), node, epoch: record.epoch, interfaces })
    }

    /// Tag of the value that a node would look up. Without a node, configuration data and values of the node have no value.
    pub fn tag(&self, key: &str, node: Option<&NodeName>) -> Tag {
        match LookupKey::parse(key) {
            LookupKey::ActiveRoles => {
                Some(all_roles_tag(self.index.roles.iter().map(|(role, members)| (role, members.tags.role()))))
            }
            LookupKey::ActiveRole { role } => self.index.roles.get(role).map(|role| role.tags.role()),
            LookupKey::ActiveRoleInterface { role, interface } => {
                self.index.roles.get(role).map(|role| role.tags.interface(interface))
            }
            LookupKey::Leader { role } => self.leader(role).map(|leader| leader.tag()),
            LookupKey::Published { key } => Some(self.published.tag(key)),
            LookupKey::Service { name } => Some(self.index.services.tag(name)),
            LookupKey::Datum { key } => node.and_then(|name| {
                let role = &self.nodes.get(name)?.record.as_ref()?.role;
                let (_, (datum, _)) = self.data.layers_for(name, role, key).next()?;
                Some(datum.tag())
            }),
            LookupKey::SelfValue { path } => {
                node.and_then(|name| self_values::tag_at(&self.nodes.get(name)?.self_values(), path))
            }
            LookupKey::Unknown => None,
        }
        .unwrap_or_else(Tag::absent)
    }

    /// Everything that every node may look up, without configuration data and values of one node.
    pub fn snapshot(&self) -> Snapshot {
        let address = |name: &NodeName| Some((name.clone(), self.nodes.get(name)?.active()?.interfaces.clone()));
        let roles = self.index.roles.iter();
        let active_roles =
            roles.map(|(role, members)| (role.clone(), members.active.iter().filter_map(address).collect()));
        let leaders = self.leaders.keys().filter_map(|role| Some((role.clone(), self.leader(role.as_str())?)));
        Snapshot {
            revision: self.revision,
            tag: None,
            active_roles: active_roles.collect(),
            leaders: leaders.collect(),
            published: self.published.by_key(),
            services: self.index.services.iter().map(|(name, nodes)| (name.clone(), nodes.clone())).collect(),
            self_values: SelfValues::new(),
            data: BTreeMap::new(),
        }
    }

    /// Everything that a node may look up. Sealed values stay sealed.
    pub fn snapshot_for(&self, name: &NodeName) -> Snapshot {
        let role = self.nodes.get(name).and_then(|node| node.record.as_ref()).map(|record| &record.role);
        let data = role.map(|role| self.data.unopened_for(name, role)).unwrap_or_default();
        let self_values = self.nodes.get(name).map(Node::self_values).unwrap_or_default();
        Snapshot { data, self_values, ..self.snapshot() }
    }
}
