//! Lookups: keys that a run can look up, and tags that detect changed values. A changed tag is the only reason to wake
//! a node.
//!
//! A tag stands for a value. Server and agent compute it from their own data in the same way. After a disconnect,
//! restart or lost message one comparison shows whether the node has seen the current value. The tag of a role is a sum
//! over its nodes, so the server updates it at a cost that does not depend on the size of the fleet.

pub mod config_data;
pub mod explain;
pub mod published;
pub mod self_values;
pub mod services;
pub mod snapshot;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::names::{NodeName, Role};
use crate::report::Interfaces;

/// Looked-up key → tag of the observed value.
pub type Lookups = BTreeMap<String, Tag>;

/// Tag of a value. Equal values have equal tags.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Tag(String);

impl Tag {
    /// Tag of a key without a value.
    pub fn absent() -> Self {
        Tag("-".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tag of a secret, from random digits.
    pub fn of_secret(digits: u64) -> Self {
        Tag(format!("s{digits:016x}"))
    }
}

/// A parsed lookup key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LookupKey<'a> {
    /// `active_roles`: all roles.
    ActiveRoles,
    /// `active_roles::<role>`
    ActiveRole { role: &'a str },
    /// `active_roles::<role>::<interface>`
    ActiveRoleInterface { role: &'a str, interface: &'a str },
    /// `leader::<role>`
    Leader { role: &'a str },
    /// `published::<key>`; the key may hold `::`.
    Published { key: &'a str },
    /// `services::<name>`
    Service { name: &'a str },
    /// `data::<key>`: configuration data, which content looks up by its plain key.
    Datum { key: &'a str },
    /// `self`, `self::<path>`: values of the node itself in the design; the path may hold `::`.
    SelfValue { path: &'a str },
    /// A key without values in this version of Muster.
    Unknown,
}

impl<'a> LookupKey<'a> {
    pub fn parse(key: &'a str) -> Self {
        match key.split_once("::") {
            Some(("published", key)) if !key.is_empty() => return LookupKey::Published { key },
            Some(("data", key)) if !key.is_empty() => return LookupKey::Datum { key },
            Some(("self", path)) if !path.is_empty() => return LookupKey::SelfValue { path },
            _ => {}
        }
        let mut parts = key.split("::");
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("active_roles"), None, None, None) => LookupKey::ActiveRoles,
            (Some("self"), None, None, None) => LookupKey::SelfValue { path: "" },
            (Some("active_roles"), Some(role), None, None) => LookupKey::ActiveRole { role },
            (Some("active_roles"), Some(role), Some(interface), None) => {
                LookupKey::ActiveRoleInterface { role, interface }
            }
            (Some("leader"), Some(role), None, None) => LookupKey::Leader { role },
            (Some("services"), Some(name), None, None) => LookupKey::Service { name },
            _ => LookupKey::Unknown,
        }
    }
}

/// JSON text that is equal for equal values: members are sorted.
pub fn stable_text(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let sorted: BTreeMap<&String, &Value> = members.iter().collect();
            let members = sorted
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), stable_text(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(stable_text).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// Tag of a datum: its value, and whether it is a secret (Puppet treats secrets differently).
pub fn datum_tag(value: &Value, secret: bool) -> Tag {
    Tag(format!("d{:x}", hash(&[&stable_text(value), if secret { "secret" } else { "" }])))
}

/// Tag of a leader. Content passes the epoch on, so another epoch is another value.
pub fn leader_tag(node: &NodeName, epoch: u64, interfaces: &Interfaces) -> Tag {
    Tag(format!("l{:x}", hash(&[node.as_str(), &epoch.to_string(), &canonical(interfaces)])))
}

/// Tag of a text in parts.
pub fn text_tag(parts: &[&str]) -> Tag {
    Tag(format!("t{:x}", hash(parts)))
}

/// Interface name in a lookup key. Hiera reads `.` as access into a hash.
pub fn interface_in_key(interface: &str) -> String {
    interface.replace('.', "_")
}

/// Tags of the active nodes of one role, updated node by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleTags {
    all: Sum,
    interfaces: BTreeMap<String, Sum>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    count: u64,
    total: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, part: u64) {
        self.count += 1;
        self.total = self.total.wrapping_add(part);
    }

    pub(crate) fn remove(&mut self, part: u64) {
        self.count = self.count.saturating_sub(1);
        self.total = self.total.wrapping_sub(part);
    }

    pub(crate) fn tag(self) -> Tag {
        Tag(format!("{}.{:x}", self.count, self.total))
    }
}

impl RoleTags {
    pub fn add(&mut self, node: &NodeName, interfaces: &Interfaces) {
        self.all.add(hash(&[node.as_str(), &canonical(interfaces)]));
        for (interface, address) in interfaces.iter() {
            let sum = self.interfaces.entry(interface_in_key(interface)).or_default();
            sum.add(hash(&[node.as_str(), interface, address]));
        }
    }

    pub fn remove(&mut self, node: &NodeName, interfaces: &Interfaces) {
        self.all.remove(hash(&[node.as_str(), &canonical(interfaces)]));
        for (interface, address) in interfaces.iter() {
            let key = interface_in_key(interface);
            if let Some(sum) = self.interfaces.get_mut(&key) {
                sum.remove(hash(&[node.as_str(), interface, address]));
                if sum.count == 0 {
                    self.interfaces.remove(&key);
                }
            }
        }
    }

    pub fn role(&self) -> Tag {
        self.all.tag()
    }

    /// Tag of an interface. An interface that no node has is an empty list, not an absent value.
    pub fn interface(&self, interface: &str) -> Tag {
        self.interfaces.get(interface).copied().unwrap_or_default().tag()
    }
}

/// Tag of all roles of an environment, from their tags in the order of their names.
pub fn all_roles_tag<'a>(roles: impl Iterator<Item = (&'a Role, Tag)>) -> Tag {
    let parts: Vec<String> = roles.flat_map(|(role, Tag(tag))| [role.to_string(), tag]).collect();
    text_tag(&parts.iter().map(String::as_str).collect::<Vec<_>>())
}

fn canonical(interfaces: &Interfaces) -> String {
    interfaces.iter().map(|(name, address)| format!("{name}={address}\n")).collect()
}

/// Hashes each part with its length, so that different lists of parts never hash the same bytes.
pub fn hash(parts: &[&str]) -> u64 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let digest = hasher.finalize();
    digest.iter().take(8).fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn eth0(address: &str) -> Interfaces {
        Interfaces::from([("eth0".into(), address.into())])
    }

    #[test]
    fn role_tags_are_order_free_and_reversible() {
        let mut one = RoleTags::default();
        one.add(&node("db1"), &eth0("10.0.0.1"));
        let only_first = one.clone();
        one.add(&node("db2"), &eth0("10.0.0.2"));
        let mut other = RoleTags::default();
        other.add(&node("db2"), &eth0("10.0.0.2"));
        other.add(&node("db1"), &eth0("10.0.0.1"));
        assert_eq!(one, other);
        other.remove(&node("db2"), &eth0("10.0.0.2"));
        assert_eq!(other, only_first);
        other.remove(&node("db1"), &eth0("10.0.0.1"));
        assert_eq!(other, RoleTags::default());
    }

    #[test]
    fn interface_has_its_own_tag() {
        let mut before = RoleTags::default();
        before.add(&node("db1"), &Interfaces::from([("eth0".into(), "a".into()), ("eth1.5".into(), "b".into())]));
        let mut after = RoleTags::default();
        after.add(&node("db1"), &Interfaces::from([("eth0".into(), "a".into()), ("eth1.5".into(), "c".into())]));
        assert_ne!(before.role(), after.role());
        assert_eq!(before.interface("eth0"), after.interface("eth0"));
        assert_ne!(before.interface("eth1_5"), after.interface("eth1_5"));
        assert_eq!(before.interface("eth9"), RoleTags::default().interface("eth9"));
        assert_ne!(before.interface("eth9"), Tag::absent());
    }

    #[test]
    fn stable_text_ignores_member_order() {
        let text = |json: &str| stable_text(&serde_json::from_str(json).unwrap());
        assert_eq!(text(r#"{"b": [1, {"d": null, "c": "x"}], "a": true}"#), r#"{"a":true,"b":[1,{"c":"x","d":null}]}"#);
        assert_ne!(text("[1,2]"), text("[2,1]"));
        assert_ne!(datum_tag(&Value::from("x"), true), datum_tag(&Value::from("x"), false));
    }

    #[test]
    fn lookup_keys_are_parsed() {
        assert_eq!(LookupKey::parse("active_roles::db"), LookupKey::ActiveRole { role: "db" });
        let with_interface = LookupKey::ActiveRoleInterface { role: "db", interface: "eth0_5" };
        assert_eq!(LookupKey::parse("active_roles::db::eth0_5"), with_interface);
        assert_eq!(LookupKey::parse("leader::db"), LookupKey::Leader { role: "db" });
        assert_eq!(LookupKey::parse("published::db::binlog"), LookupKey::Published { key: "db::binlog" });
        assert_eq!(LookupKey::parse("data::nova::port"), LookupKey::Datum { key: "nova::port" });
        assert_eq!(LookupKey::parse("active_roles"), LookupKey::ActiveRoles);
        assert_eq!(LookupKey::parse("self"), LookupKey::SelfValue { path: "" });
        assert_eq!(LookupKey::parse("self::dns::domain"), LookupKey::SelfValue { path: "dns::domain" });
        assert_eq!(LookupKey::parse("services::http"), LookupKey::Service { name: "http" });
        for unknown in [
            "",
            "services",
            "services::a::b",
            "active_roles::a::b::c",
            "leader",
            "leader::a::b",
            "data::",
            "self::",
            "published",
        ] {
            assert_eq!(LookupKey::parse(unknown), LookupKey::Unknown, "{unknown:?}");
        }
    }
}
