//! Configuration data in layers: for all nodes, for a role, or for one node.
//!
//! A node sees one value for a key: from its own layer, else from its role, else the global one. Values of different
//! layers are not merged, so each value has one source.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::lookup::{Tag, datum_tag};
use crate::names::{DataKey, NodeName, Role, SecretKeyId};
use crate::txn::Revision;

/// Scope of a datum. The narrower layer wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(tag = "layer", rename_all = "snake_case")]
pub enum Layer {
    Global,
    Role { role: Role },
    Host { node: NodeName },
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::Global => f.write_str("global"),
            Layer::Role { role } => write!(f, "role {role}"),
            Layer::Host { node } => write!(f, "host {node}"),
        }
    }
}

/// Shown in place of a secret.
pub const SECRET: &str = "[secret]";

/// A secret as it is stored. Servers have the keys in a file; the store and backups have none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SealedValue {
    /// Id of the key that opens it.
    pub key: SecretKeyId,
    /// Nonce and ciphertext of the value's JSON text, in base64.
    pub text: String,
    /// Stands for the value in lookups. It is random: a hash of the value would tell short secrets. Sealing the same value with
    /// another key keeps it, so that no node runs again.
    pub tag: Tag,
}

/// `data/…/<key>`: the value, or the sealed value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DatumContent {
    Value(Value),
    Sealed(SealedValue),
}

/// `data/…/<key>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DatumRecord {
    #[serde(flatten)]
    pub content: DatumContent,
    /// Shown to nodes only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Reason for setting it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl DatumRecord {
    /// The value as shown to operators.
    pub fn redacted(&self) -> Value {
        match &self.content {
            DatumContent::Value(value) if !self.secret => value.clone(),
            DatumContent::Value(_) | DatumContent::Sealed(_) => Value::from(SECRET),
        }
    }

    /// The sealed value of a secret. None for plain data, and for secrets of servers that did not seal them.
    pub fn sealed(&self) -> Option<&SealedValue> {
        match &self.content {
            DatumContent::Value(_) => None,
            DatumContent::Sealed(sealed) => Some(sealed),
        }
    }

    pub fn tag(&self) -> Tag {
        match &self.content {
            DatumContent::Value(value) => datum_tag(value, self.secret),
            DatumContent::Sealed(sealed) => sealed.tag.clone(),
        }
    }

    /// The datum as a node looks it up, without opening a sealed value.
    fn unopened(&self, layer: Layer) -> Datum {
        let (value, tag, unavailable) = match &self.content {
            DatumContent::Value(value) => (value.clone(), None, None),
            DatumContent::Sealed(sealed) => {
                (Value::Null, Some(sealed.tag.clone()), Some("the value is sealed".to_owned()))
            }
        };
        Datum { value, secret: self.secret, tag, unavailable, layer }
    }
}

/// A datum as a node looks it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Datum {
    /// Missing if `unavailable` says why.
    #[serde(default)]
    pub value: Value,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    /// Stands for the value of a secret in lookups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    /// Reason why the server could not open a secret. A run that looks it up is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    #[serde(flatten)]
    pub layer: Layer,
}

impl Datum {
    pub fn tag(&self) -> Tag {
        match &self.tag {
            _ if self.unavailable.is_some() => Tag::absent(),
            Some(tag) => tag.clone(),
            None => datum_tag(&self.value, self.secret),
        }
    }
}

/// All configuration data of an environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigData {
    layers: BTreeMap<Layer, BTreeMap<DataKey, (DatumRecord, Revision)>>,
}

impl ConfigData {
    /// Sets or removes a datum.
    pub fn set(&mut self, layer: Layer, key: DataKey, datum: Option<(DatumRecord, Revision)>) {
        match datum {
            Some(datum) => {
                self.layers.entry(layer).or_default().insert(key, datum);
            }
            None => {
                if let Some(data) = self.layers.get_mut(&layer) {
                    data.remove(&key);
                    if data.is_empty() {
                        self.layers.remove(&layer);
                    }
                }
            }
        }
    }

    pub fn get(&self, layer: &Layer, key: &DataKey) -> Option<&(DatumRecord, Revision)> {
        self.layers.get(layer)?.get(key)
    }

    /// All data, the widest layers first.
    pub fn all(&self) -> impl Iterator<Item = (&Layer, &DataKey, &(DatumRecord, Revision))> {
        self.layers.iter().flat_map(|(layer, data)| data.iter().map(move |(key, datum)| (layer, key, datum)))
    }

    /// Data of a key that apply to a node, the narrowest layer first. The first one is effective.
    pub fn layers_for<'a>(
        &'a self,
        node: &NodeName,
        role: &Role,
        key: &str,
    ) -> impl Iterator<Item = (Layer, &'a (DatumRecord, Revision))> + use<'a> {
        let layers = [Layer::Host { node: node.clone() }, Layer::Role { role: role.clone() }, Layer::Global];
        let found = layers.map(|layer| {
            let datum = self.layers.get(&layer).and_then(|data| data.get(key));
            datum.map(|datum| (layer, datum))
        });
        found.into_iter().flatten()
    }

    /// Returns whether a node has a layer of its own, so that its data differ from those of its role.
    pub fn has_own_layer(&self, node: &NodeName) -> bool {
        self.layers.contains_key(&Layer::Host { node: node.clone() })
    }

    /// All data that apply to a node.
    pub fn effective_for(&self, node: &NodeName, role: &Role) -> BTreeMap<&DataKey, (Layer, &DatumRecord)> {
        let mut seen = BTreeMap::new();
        for layer in [Layer::Global, Layer::Role { role: role.clone() }, Layer::Host { node: node.clone() }] {
            for (key, (datum, _)) in self.layers.get(&layer).into_iter().flatten() {
                seen.insert(key, (layer.clone(), datum));
            }
        }
        seen
    }

    /// All data that apply to a node, as it looks them up. Sealed values stay sealed.
    pub fn unopened_for(&self, node: &NodeName, role: &Role) -> BTreeMap<DataKey, Datum> {
        let seen = self.effective_for(node, role).into_iter();
        seen.map(|(key, (layer, datum))| (key.clone(), datum.unopened(layer))).collect()
    }

    /// Secrets that are not sealed with this key: those of other keys, and those of servers that did not seal them.
    pub fn not_sealed_with(
        &self,
        key: &SecretKeyId,
    ) -> impl Iterator<Item = (&Layer, &DataKey, &(DatumRecord, Revision))> {
        self.secrets().filter(move |(.., (datum, _))| datum.sealed().is_none_or(|sealed| sealed.key != *key))
    }

    pub fn secrets(&self) -> impl Iterator<Item = (&Layer, &DataKey, &(DatumRecord, Revision))> {
        self.all().filter(|(.., (datum, _))| datum.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datum(value: Value) -> Option<(DatumRecord, Revision)> {
        let at = "2026-11-15T10:00:00Z".parse().unwrap();
        let content = DatumContent::Value(value);
        Some((DatumRecord { content, secret: false, by: "ada".into(), at, message: None }, Revision(1)))
    }

    #[test]
    fn host_beats_role_beats_global() {
        let (web, db) = (Role::new("web").unwrap(), Role::new("db").unwrap());
        let (web1, web2) = (NodeName::new("web1").unwrap(), NodeName::new("web2").unwrap());
        let key = DataKey::new("ntp_servers").unwrap();
        let mut data = ConfigData::default();
        data.set(Layer::Global, key.clone(), datum(1.into()));
        data.set(Layer::Role { role: web.clone() }, key.clone(), datum(2.into()));
        data.set(Layer::Host { node: web1.clone() }, key.clone(), datum(3.into()));
        let values = |node: &NodeName, role: &Role| {
            let all: Vec<Value> =
                data.layers_for(node, role, "ntp_servers").map(|(_, (datum, _))| datum.redacted()).collect();
            assert_eq!(Some(&data.unopened_for(node, role)[&key].value), all.first());
            all
        };
        assert_eq!(values(&web1, &web), [3, 2, 1]);
        assert_eq!(values(&web2, &web), [2, 1]);
        assert_eq!(values(&web2, &db), [1]);
        assert!(data.has_own_layer(&web1) && !data.has_own_layer(&web2));
        data.set(Layer::Host { node: web1.clone() }, key.clone(), None);
        assert!(!data.has_own_layer(&web1));
        assert_eq!(data.all().count(), 2);
    }

    #[test]
    fn datum_is_flat_in_a_snapshot() {
        let layer = Layer::Role { role: Role::new("db").unwrap() };
        let seen = Datum { value: Value::from("x"), secret: false, tag: None, unavailable: None, layer };
        let text = serde_json::to_string(&seen).unwrap();
        assert_eq!(text, r#"{"value":"x","layer":"role","role":"db"}"#);
        assert_eq!(serde_json::from_str::<Datum>(&text).unwrap(), seen);
    }

    #[test]
    fn records_hold_a_value_or_a_sealed_value() {
        let plain = r#"{"value":null,"by":"ada","at":"2026-11-15T10:00:00Z"}"#;
        let key = "0123456789abcdef";
        let sealed = format!(
            r#"{{"sealed":{{"key":"{key}","text":"AAAA","tag":"s1"}},"secret":true,"by":"ada","at":"2026-11-15T10:00:00Z"}}"#
        );
        for text in [plain, &sealed] {
            let record: DatumRecord = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&record).unwrap(), text);
            assert_eq!(record.redacted(), if record.secret { Value::from(SECRET) } else { Value::Null });
            assert_eq!(record.sealed().map(|sealed| sealed.key.as_str()), record.secret.then_some(key));
        }
        assert!(serde_json::from_str::<DatumRecord>(r#"{"by":"ada","at":"2026-11-15T10:00:00Z"}"#).is_err());
    }

    #[test]
    fn unavailable_secret_is_no_value() {
        let text = r#"{"secret":true,"tag":"s1","unavailable":"no key","layer":"global"}"#;
        let datum: Datum = serde_json::from_str(text).unwrap();
        assert_eq!(datum.tag(), Tag::absent());
        assert_eq!(Datum { unavailable: None, ..datum }.tag().as_str(), "s1");
    }
}
