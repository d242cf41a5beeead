//! Index of the values that nodes publish for each other, with a hash (tag) per key to detect changes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::lookup::{Sum, Tag, hash, stable_text};
use crate::names::{DataKey, NodeName};

/// Maximum size of what a node publishes, in bytes of JSON.
pub const PUBLISHED_LIMIT: usize = 4 * 1024;

/// `published/<node>`: values that the node's last run published. The next run replaces all of them.
pub type Publication = BTreeMap<DataKey, Value>;

/// Size in bytes of JSON.
pub fn size(publication: &Publication) -> usize {
    serde_json::to_vec(publication).map_or(usize::MAX, |text| text.len())
}

/// Tag of a publication.
pub fn tag(publication: &Publication) -> Tag {
    let mut sum = Sum::default();
    publication.iter().for_each(|(key, value)| sum.add(hash(&[key.as_str(), &stable_text(value)])));
    sum.tag()
}

/// Publications of all nodes of an environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Publications {
    nodes: BTreeMap<NodeName, Publication>,
    keys: BTreeMap<DataKey, Values>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Values {
    by_node: BTreeMap<NodeName, Value>,
    tag: Sum,
}

impl Publications {
    /// Replaces the publication of a node. Returns the keys whose value changed for other nodes.
    pub fn replace(&mut self, node: &NodeName, now: Publication) -> Vec<DataKey> {
        let before = self.nodes.remove(node).unwrap_or_default();
        let mut changed = Vec::new();
        for (key, value) in &before {
            if now.get(key) != Some(value) {
                changed.push(key.clone());
                if let Some(values) = self.keys.get_mut(key) {
                    values.by_node.remove(node);
                    values.tag.remove(part(node, value));
                    if values.by_node.is_empty() {
                        self.keys.remove(key);
                    }
                }
            }
        }
        for (key, value) in &now {
            if before.get(key) != Some(value) {
                if !before.contains_key(key) {
                    changed.push(key.clone());
                }
                let values = self.keys.entry(key.clone()).or_default();
                values.by_node.insert(node.clone(), value.clone());
                values.tag.add(part(node, value));
            }
        }
        if !now.is_empty() {
            self.nodes.insert(node.clone(), now);
        }
        changed
    }

    pub fn of_node(&self, node: &NodeName) -> Option<&Publication> {
        self.nodes.get(node)
    }

    /// Tag of the values under a key. A key without publishers is empty, not absent.
    pub fn tag(&self, key: &str) -> Tag {
        self.keys.get(key).map_or_else(Sum::default, |values| values.tag).tag()
    }

    pub fn by_key(&self) -> BTreeMap<DataKey, BTreeMap<NodeName, Value>> {
        self.keys.iter().map(|(key, values)| (key.clone(), values.by_node.clone())).collect()
    }

    pub fn at(&self, key: &str) -> Option<&BTreeMap<NodeName, Value>> {
        self.keys.get(key).map(|values| &values.by_node)
    }
}

/// Tag of values that are not stored here.
pub fn tag_of<'a>(values: impl Iterator<Item = (&'a NodeName, &'a Value)>) -> Tag {
    let mut sum = Sum::default();
    values.for_each(|(node, value)| sum.add(part(node, value)));
    sum.tag()
}

fn part(node: &NodeName, value: &Value) -> u64 {
    hash(&[node.as_str(), &stable_text(value)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn publication(entries: &[(&str, Value)]) -> Publication {
        entries.iter().map(|(key, value)| (DataKey::new(*key).unwrap(), value.clone())).collect()
    }

    #[test]
    fn publications_report_changed_keys_only() {
        let (db1, db2) = (NodeName::new("db1").unwrap(), NodeName::new("db2").unwrap());
        let mut published = Publications::default();
        let empty = published.tag("a");
        assert_eq!(published.replace(&db1, publication(&[("a", json!(1)), ("b", json!({"x": 1, "y": 2}))])).len(), 2);
        published.replace(&db2, publication(&[("a", json!(2))]));
        let both = published.tag("a");
        assert_eq!(both, tag_of(published.at("a").unwrap().iter()));
        let changed = published.replace(&db1, publication(&[("a", json!(3)), ("b", json!({"y": 2, "x": 1}))]));
        assert_eq!(changed, [DataKey::new("a").unwrap()]);
        assert_ne!(published.tag("a"), both);
        published.replace(&db1, Publication::new());
        published.replace(&db2, Publication::new());
        assert_eq!(published, Publications::default());
        assert_eq!(published.tag("a"), empty);
    }
}
