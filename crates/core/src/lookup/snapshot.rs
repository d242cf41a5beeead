//! Snapshot of everything that a node may look up, at one revision. A run reads the snapshot and never the network.
//! The difference of two snapshots at a key describes the cause of a run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::lookup::config_data::Datum;
use crate::lookup::self_values::{self, SelfValues};
use crate::lookup::services::{self, Service};
use crate::lookup::{LookupKey, RoleTags, Tag, all_roles_tag, interface_in_key, leader_tag, published, stable_text};
use crate::names::{DataKey, NodeName, Role, ServiceName};
use crate::report::reason::Need;
use crate::report::summary::clip;
use crate::report::{Interfaces, LookupChange};
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
    /// service → node → address, port and tags, of active nodes.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, BTreeMap<String, Service>>)]
    pub services: BTreeMap<ServiceName, BTreeMap<NodeName, Service>>,
    /// Values of this node in the applied design, resolved.
    #[serde(rename = "self", default)]
    #[schema(value_type = BTreeMap<String, Value>)]
    pub self_values: SelfValues,
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
        let of_nodes = |nodes: &BTreeMap<NodeName, Interfaces>| {
            let mut tags = RoleTags::default();
            nodes.iter().for_each(|(node, interfaces)| tags.add(node, interfaces));
            tags
        };
        let tags = |role: &str| self.active_roles.get(role).map(of_nodes);
        match LookupKey::parse(key) {
            LookupKey::ActiveRoles => {
                Some(all_roles_tag(self.active_roles.iter().map(|(role, nodes)| (role, of_nodes(nodes).role()))))
            }
            LookupKey::ActiveRole { role } => tags(role).map(|tags| tags.role()),
            LookupKey::ActiveRoleInterface { role, interface } => tags(role).map(|tags| tags.interface(interface)),
            LookupKey::Leader { role } => self.leaders.get(role).map(LeaderInfo::tag),
            LookupKey::Published { key } => Some(published::tag_of(self.published.get(key).into_iter().flatten())),
            LookupKey::Service { name } => Some(services::tag_of(self.services.get(name).into_iter().flatten())),
            LookupKey::Datum { key } => self.data.get(key).map(Datum::tag),
            LookupKey::SelfValue { path } => self_values::tag_at(&self.self_values, path),
            LookupKey::Unknown => None,
        }
        .unwrap_or_else(Tag::absent)
    }

    /// Keeps the values of secrets that this node has and the server cannot open now.
    pub fn keep_secrets_of(&mut self, before: &Snapshot) {
        for (key, datum) in self.data.iter_mut().filter(|(_, datum)| datum.unavailable.is_some()) {
            let kept = before.data.get(key).filter(|kept| kept.unavailable.is_none() && kept.tag.is_some());
            if let Some(kept) = kept.filter(|kept| kept.tag == datum.tag) {
                datum.value = kept.value.clone();
                datum.unavailable = None;
            }
        }
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

/// Maximum number of nodes to name. The others are counted.
const MAX_NAMED: usize = 3;
/// Maximum length of a value to show, in bytes.
const MAX_VALUE: usize = 60;

/// Change of a key between two snapshots.
pub fn describe_change(key: &str, before: &Snapshot, after: &Snapshot) -> LookupChange {
    let what = match LookupKey::parse(key) {
        LookupKey::ActiveRoles => {
            let all = |snapshot: &Snapshot| {
                let roles = snapshot.active_roles.iter();
                Some(
                    roles
                        .flat_map(|(role, nodes)| {
                            nodes.iter().map(move |(node, all)| (node.clone(), (role.clone(), all.clone())))
                        })
                        .collect(),
                )
            };
            members(all(before), all(after), "a role")
        }
        LookupKey::Service { name } => {
            let nodes = |snapshot: &Snapshot| Some(snapshot.services.get(name).cloned().unwrap_or_default());
            members(nodes(before), nodes(after), "the service")
        }
        LookupKey::ActiveRole { role } => {
            let nodes = |snapshot: &Snapshot| snapshot.active_roles.get(role).cloned();
            members(nodes(before), nodes(after), "the role")
        }
        LookupKey::ActiveRoleInterface { role, interface } => {
            let nodes = |snapshot: &Snapshot| {
                let nodes = snapshot.active_roles.get(role)?.iter();
                Some(nodes.filter_map(|(node, all)| Some((node.clone(), address(all, interface)?))).collect())
            };
            members(nodes(before), nodes(after), "the role")
        }
        LookupKey::Published { key } => {
            let nodes = |snapshot: &Snapshot| Some(snapshot.published.get(key).cloned().unwrap_or_default());
            members(nodes(before), nodes(after), "the key")
        }
        LookupKey::Leader { role } => match (before.leaders.get(role), after.leaders.get(role)) {
            (Some(old), Some(new)) if old.node != new.node => {
                format!("{} replaces {}, epoch {}", new.node, old.node, new.epoch)
            }
            (Some(old), Some(new)) if old.epoch != new.epoch => {
                format!("{} elected again, epoch {}", new.node, new.epoch)
            }
            (Some(_), Some(new)) => format!("{} has new addresses", new.node),
            (None, Some(new)) => format!("{}, epoch {}", new.node, new.epoch),
            (Some(old), None) => format!("{} lost, no leader", old.node),
            (None, None) => String::new(),
        },
        LookupKey::Datum { key } => match (before.data.get(key), after.data.get(key)) {
            (_, Some(new)) if new.secret => format!("a secret of layer {}", new.layer),
            (_, Some(new)) => format!("{} ({})", clip(&stable_text(&new.value), MAX_VALUE), new.layer),
            (Some(_), None) => "removed".to_owned(),
            (None, None) => String::new(),
        },
        LookupKey::SelfValue { path } => match self_values::at_path(&after.self_values, path) {
            Some(value) => clip(&stable_text(&value), MAX_VALUE),
            None => "removed".to_owned(),
        },
        LookupKey::Unknown => String::new(),
    };
    LookupChange { key: key.to_owned(), what }
}

fn address(interfaces: &Interfaces, wanted: &str) -> Option<Value> {
    let found = interfaces.iter().find(|(name, _)| interface_in_key(name) == wanted);
    found.map(|(_, address)| Value::from(address))
}

/// Nodes that were added, removed or changed. `None`: the role or key did not exist.
fn members<T: PartialEq>(
    before: Option<BTreeMap<NodeName, T>>,
    after: Option<BTreeMap<NodeName, T>>,
    name: &str,
) -> String {
    let appeared = match (&before, &after) {
        (None, Some(_)) => Some(format!("{name} appeared")),
        (Some(_), None) => Some(format!("{name} is gone")),
        (None, None) | (Some(_), Some(_)) => None,
    };
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let added = after.keys().filter(|node| !before.contains_key(*node)).collect();
    let gone = before.keys().filter(|node| !after.contains_key(*node)).collect();
    let moved = after.iter().filter(|(node, value)| before.get(*node).is_some_and(|old| old != *value));
    let moved = moved.map(|(node, _)| node).collect();
    let parts = [named(&added, "added"), named(&gone, "gone"), named(&moved, "changed")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { appeared.unwrap_or_default() } else { parts.join(", ") }
}

fn named(nodes: &BTreeSet<&NodeName>, verb: &str) -> Option<String> {
    let mut sorted: Vec<&NodeName> = nodes.iter().copied().collect();
    sorted.sort_by_key(|node| node.natural());
    let names: Vec<&str> = sorted.iter().take(MAX_NAMED).map(|node| node.as_str()).collect();
    match nodes.len().checked_sub(MAX_NAMED) {
        _ if nodes.is_empty() => None,
        Some(more) if more > 0 => Some(format!("{} and {more} more {verb}", names.join(", "))),
        Some(_) | None => Some(format!("{} {verb}", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::config_data::{Datum, Layer};
    use crate::lookup::snapshot::LeaderInfo;
    use crate::names::{DataKey, Role};

    fn dbs(nodes: &[(&str, &str)]) -> Snapshot {
        let interfaces = |address: &str| Interfaces::from([("eth0".to_owned(), address.to_owned())]);
        let nodes = nodes.iter().map(|(node, at)| (NodeName::new(*node).unwrap(), interfaces(at))).collect();
        Snapshot { active_roles: BTreeMap::from([(Role::new("db").unwrap(), nodes)]), ..Snapshot::default() }
    }

    fn leader_snapshot(node: &str, epoch: u64) -> Snapshot {
        let node = NodeName::new(node).unwrap();
        let leader = LeaderInfo { host: node.host(), node, epoch, interfaces: Interfaces::new() };
        Snapshot { leaders: BTreeMap::from([(Role::new("db").unwrap(), leader)]), ..Snapshot::default() }
    }

    #[test]
    fn secret_that_cannot_be_opened_keeps_its_known_value() {
        let key = DataKey::new("db::password").unwrap();
        let snapshot = |value: &str, tag: u64, unavailable: Option<&str>| {
            let (value, tag, unavailable) =
                (Value::from(value), Some(Tag::of_secret(tag)), unavailable.map(str::to_owned));
            let datum = Datum { value, secret: true, tag, unavailable, layer: Layer::Global };
            Snapshot { data: BTreeMap::from([(key.clone(), datum)]), ..Snapshot::default() }
        };
        for (tag, expected) in [(1, "hunter2"), (2, "")] {
            let mut now = snapshot("", tag, Some("no key"));
            now.keep_secrets_of(&snapshot("hunter2", 1, None));
            assert_eq!(
                (now.data[&key].value.as_str(), now.data[&key].unavailable.is_none()),
                (Some(expected), tag == 1)
            );
        }
    }

    #[test]
    fn snapshot_changes_are_described() {
        let one = dbs(&[("db1", "a")]);
        let data = |value: &str, secret| {
            let (value, layer) = (Value::from(value), Layer::Global);
            let datum = Datum { value, secret, tag: None, unavailable: None, layer };
            Snapshot { data: BTreeMap::from([(DataKey::new("ntp").unwrap(), datum)]), ..Snapshot::default() }
        };
        for (key, before, after, description) in [
            ("active_roles::db", &one, &dbs(&[("db1", "a"), ("db2", "b")]), "db2 added"),
            ("active_roles::db", &one, &dbs(&[("db2", "b")]), "db2 added, db1 gone"),
            ("active_roles::db::eth0", &one, &dbs(&[("db1", "c")]), "db1 changed"),
            ("active_roles::db", &Snapshot::default(), &dbs(&[]), "the role appeared"),
            ("active_roles::db", &one, &Snapshot::default(), "db1 gone"),
            (
                "active_roles::db",
                &dbs(&[]),
                &dbs(&[("db10", "a"), ("db2", "b"), ("db1", "c"), ("db3", "d"), ("db4", "e")]),
                "db1, db2, db3 and 2 more added",
            ),
            ("leader::db", &leader_snapshot("db1", 1), &leader_snapshot("db2", 2), "db2 replaces db1, epoch 2"),
            ("leader::db", &leader_snapshot("db1", 1), &Snapshot::default(), "db1 lost, no leader"),
            ("data::ntp", &data("x", false), &data("y", false), "\"y\" (global)"),
            ("data::ntp", &data("x", false), &data("y", true), "a secret of layer global"),
            ("data::ntp", &data("x", false), &Snapshot::default(), "removed"),
            ("published::a", &one, &one, ""),
        ] {
            assert_eq!(describe_change(key, before, after).what, description, "{key}");
        }
        assert_eq!(
            describe_change("leader::db", &one, &leader_snapshot("db1", 1)).to_string(),
            "leader::db changed: db1, epoch 1"
        );
    }
}
