//! Explains a lookup: the value that a node would get for a key, and its source.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::fleet::Fleet;
use crate::keys::Keys;
use crate::lookup::config_data::{DatumRecord, Layer};
use crate::lookup::{LookupKey, interface_in_key, self_values};
use crate::names::{DataKey, NodeName, Role, ServiceName};
use crate::spelling::nearest;
use crate::txn::Revision;

/// Prefix of Hiera keys that are not configuration data. Only the names of lookups follow it: all other keys that begin
/// with it, such as parameters of a class named `muster`, are configuration data.
pub const PREFIX: &str = "muster::";
/// Older prefix, which stays.
pub const ALIAS: &str = "etcdlookup::";
/// First parts of keys after the prefix.
const LOOKUPS: [&str; 5] = ["active_roles", "leader", "published", "services", "self"];

/// The key without its prefix, if it is not configuration data. Runs record it in this form, so that both prefixes are one
/// key.
pub fn without_prefix(asked: &str) -> Option<&str> {
    let is_lookup = |key: &&str| {
        ["active_roles", "self"].contains(key) || key.split_once("::").is_some_and(|(name, _)| LOOKUPS.contains(&name))
    };
    asked.strip_prefix(ALIAS).or_else(|| asked.strip_prefix(PREFIX).filter(is_lookup))
}

/// Value of a lookup key, with its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LookupResult {
    /// As content gets it. `[secret]` for a secret.
    pub value: Value,
    #[serde(flatten)]
    pub source: LookupSource,
}

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum LookupSource {
    /// Set by an operator.
    Data {
        #[serde(flatten)]
        set: DatumSource,
        /// Wider layers that it overrides, the narrowest first.
        #[serde(rename = "hides", default, skip_serializing_if = "Vec::is_empty")]
        overrides: Vec<DatumSource>,
    },
    /// Active nodes of all roles.
    ActiveRoles { nodes: Vec<NodeKey> },
    /// Active nodes of a role.
    ActiveRole { role: Role, nodes: Vec<NodeKey> },
    Leader {
        role: Role,
        store_key: String,
        epoch: u64,
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
        changed_at: Revision,
    },
    /// Offered by active nodes.
    Service { nodes: Vec<NodeKey> },
    /// Published by nodes.
    Published { nodes: Vec<NodeKey> },
    /// The applied design.
    Design { store_key: String },
}

/// A datum in its layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatumSource {
    #[serde(flatten)]
    pub layer: Layer,
    pub store_key: String,
    /// `[secret]` for a secret.
    pub is: Value,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub changed_at: Revision,
}

/// A node, and the store key that its value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeKey {
    pub node: NodeName,
    pub store_key: String,
}

/// The key as runs record it: without the Hiera prefix, and with `data::` for configuration data.
pub fn recorded_key(asked: &str) -> String {
    match without_prefix(asked) {
        Some(key) => key.to_owned(),
        None => format!("data::{asked}"),
    }
}

/// Value that a node would get for a key. None for nodes outside the design.
pub fn resolve(fleet: &Fleet, node: &NodeName, asked: &str) -> Option<LookupResult> {
    let keys = Keys::new(&fleet.env);
    match LookupKey::parse(&recorded_key(asked)) {
        LookupKey::ActiveRoles => {
            let nodes = fleet.roles().flat_map(|(_, nodes)| nodes).filter_map(|name| node_key(fleet, &keys, name));
            let value = fleet.roles().map(|(role, nodes)| (role.to_string(), interfaces_of(fleet, nodes)));
            Some(LookupResult {
                value: Value::Object(value.collect()),
                source: LookupSource::ActiveRoles { nodes: nodes.collect() },
            })
        }
        LookupKey::ActiveRole { role } => {
            let (role, nodes) = fleet.roles().find(|(known, _)| known.as_str() == role)?;
            Some(LookupResult { value: interfaces_of(fleet, nodes), source: active(fleet, &keys, role, nodes.iter()) })
        }
        LookupKey::ActiveRoleInterface { role, interface } => {
            let (role, nodes) = fleet.roles().find(|(known, _)| known.as_str() == role)?;
            let address = |name: &NodeName| {
                let interfaces = &fleet.get(name)?.active()?.interfaces;
                let found = interfaces.iter().find(|(known, _)| interface_in_key(known) == interface);
                found.map(|(_, address)| address)
            };
            let with = || nodes.iter().filter(|name| address(name).is_some());
            let value = with().filter_map(address).collect::<Vec<_>>();
            Some(LookupResult { value: json!(value), source: active(fleet, &keys, role, with()) })
        }
        LookupKey::Leader { role } => {
            let role = Role::new(role).ok()?;
            let (record, changed_at) = fleet.leaders().get(&role)?;
            let value = json!(fleet.leader(role.as_str())?);
            let (epoch, since, changed_at) = (record.epoch, record.since, *changed_at);
            Some(LookupResult {
                value,
                source: LookupSource::Leader { store_key: keys.leader(&role), role, epoch, since, changed_at },
            })
        }
        LookupKey::Published { key } => {
            DataKey::new(key).ok()?;
            let values = fleet.published().at(key);
            let nodes = values.into_iter().flat_map(|values| values.keys());
            let nodes = nodes.map(|node| NodeKey { node: node.clone(), store_key: keys.published(node) }).collect();
            // A key without publishers has an empty value, not an absent one.
            let value = values.map_or_else(|| json!({}), |values| json!(values));
            Some(LookupResult { value, source: LookupSource::Published { nodes } })
        }
        LookupKey::Service { name } => {
            ServiceName::new(name).ok()?;
            let offers = fleet.offers(name);
            let nodes = offers.iter().filter_map(|offer| node_key(fleet, &keys, &offer.node)).collect();
            Some(LookupResult { value: json!(offers), source: LookupSource::Service { nodes } })
        }
        LookupKey::Datum { key } => {
            let role = &fleet.get(node)?.record.as_ref()?.role;
            let key = DataKey::new(key).ok()?;
            let mut layers = fleet
                .data()
                .layers_for(node, role, key.as_str())
                .map(|(layer, datum)| place(&keys, layer, &key, datum));
            let set = layers.next()?;
            Some(LookupResult {
                value: set.is.clone(),
                source: LookupSource::Data { set, overrides: layers.collect() },
            })
        }
        LookupKey::SelfValue { path } => {
            let value = self_values::at_path(&fleet.get(node)?.self_values(), path)?;
            Some(LookupResult { value, source: LookupSource::Design { store_key: keys.self_values(node) } })
        }
        LookupKey::Unknown => None,
    }
}

/// Suggestion for a key without a value.
pub fn suggest(fleet: &Fleet, node: &NodeName, asked: &str) -> Option<String> {
    let roles = || fleet.roles().map(|(role, _)| role.as_str());
    let key = recorded_key(asked);
    match LookupKey::parse(&key) {
        LookupKey::ActiveRole { role } => nearest(role, roles()).map(|role| format!("{PREFIX}active_roles::{role}")),
        LookupKey::ActiveRoleInterface { role, interface } => {
            nearest(role, roles()).map(|role| format!("{PREFIX}active_roles::{role}::{interface}"))
        }
        LookupKey::Leader { role } => {
            nearest(role, roles()).filter(|near| *near != role).map(|role| format!("{PREFIX}leader::{role}"))
        }
        LookupKey::SelfValue { path } => {
            let values = fleet.get(node)?.self_values();
            let near = nearest(path.split("::").next()?, values.keys().map(String::as_str))?;
            Some(format!("{PREFIX}self::{near}"))
        }
        LookupKey::Published { .. } | LookupKey::ActiveRoles => None,
        LookupKey::Service { name } => {
            let known = fleet.services().iter().map(|(name, _)| name.as_str());
            nearest(name, known).filter(|near| *near != name).map(|name| format!("{PREFIX}services::{name}"))
        }
        LookupKey::Datum { key } => {
            // The prefix was forgotten.
            let forgotten = format!("{PREFIX}{key}");
            if resolve(fleet, node, &forgotten).is_some() {
                return Some(forgotten);
            }
            if let Some(misspelt) = key.strip_prefix(PREFIX).and_then(nearest_lookup) {
                return Some(misspelt);
            }
            let role = fleet.get(node).and_then(|node| node.record.as_ref()).map(|record| &record.role)?;
            let seen = fleet.data().effective_for(node, role);
            nearest(key, seen.keys().map(|key| key.as_str())).map(str::to_owned)
        }
        LookupKey::Unknown => nearest_lookup(&key),
    }
}

fn nearest_lookup(key: &str) -> Option<String> {
    let (name, rest) = key.split_once("::").unwrap_or((key, ""));
    let name = nearest(name, LOOKUPS)?;
    Some(format!("{PREFIX}{name}::{}", if rest.is_empty() { "…" } else { rest }))
}

fn active<'a>(fleet: &Fleet, keys: &Keys, role: &Role, nodes: impl Iterator<Item = &'a NodeName>) -> LookupSource {
    let nodes = nodes.filter_map(|name| node_key(fleet, keys, name));
    LookupSource::ActiveRole { role: role.clone(), nodes: nodes.collect() }
}

/// Store key of an active node. The newest entry counts.
fn node_key(fleet: &Fleet, keys: &Keys, name: &NodeName) -> Option<NodeKey> {
    let (version, _) = fleet.get(name)?.active.iter().max_by_key(|(_, (_, at))| *at)?;
    Some(NodeKey { node: name.clone(), store_key: keys.active_role(version, name) })
}

/// node → interface → address.
fn interfaces_of(fleet: &Fleet, nodes: &BTreeSet<NodeName>) -> Value {
    let of_node = |name: &NodeName| Some((name.to_string(), json!(fleet.get(name)?.active()?.interfaces)));
    Value::Object(nodes.iter().filter_map(of_node).collect())
}

fn place(keys: &Keys, layer: Layer, key: &DataKey, (datum, at): &(DatumRecord, Revision)) -> DatumSource {
    DatumSource {
        store_key: keys.datum(&layer, key),
        layer,
        is: datum.redacted(),
        secret: datum.secret,
        by: datum.by.clone(),
        at: datum.at,
        message: datum.message.clone(),
        changed_at: *at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_prefixes_are_recorded_as_one_key() {
        for (asked, recorded) in [
            ("muster::active_roles", "active_roles"),
            ("muster::active_roles::db::eth0", "active_roles::db::eth0"),
            ("muster::leader::db", "leader::db"),
            ("muster::published::db::binlog", "published::db::binlog"),
            ("muster::services::http", "services::http"),
        ] {
            assert_eq!(recorded_key(asked), recorded);
            assert_eq!(recorded_key(&asked.replace(PREFIX, ALIAS)), recorded);
            assert!(DataKey::new(asked).is_err(), "{asked} would never be found");
        }
        // Parameters of a class named `muster`, and of its subclasses.
        for asked in ["muster::port", "muster::leader", "muster::data::port", "muster::services_list", "muster"] {
            assert_eq!(recorded_key(asked), format!("data::{asked}"));
            assert!(DataKey::new(asked).is_ok(), "{asked}");
        }
    }
}
