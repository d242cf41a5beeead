//! Index from looked-up keys to the nodes that a change of them wakes, and the comparison of lookups with the view.
//!
//! A run may look up thousands of keys, and the nodes of a role usually look up the same keys and see the same values. Each
//! distinct set of keys, and each distinct set of values, is stored once and shared. The memory of a session does not grow
//! with the number of its lookups.
//!
//! One change may wake a thousand nodes of a role. All of them share their lookups, and see the same data unless they have
//! data of their own: one comparison is enough for all ([`Comparisons`]).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use muster_core::fleet::{Fleet, Node};
use muster_core::lookup::{LookupKey, Lookups, Tag};
use muster_core::names::{EnvName, NodeName, Role};
use muster_core::txn::Revision;

/// Looked-up keys, in their order.
type KeySet = Arc<[Box<str>]>;

/// Lookups of a run: the keys, and the tags of the values that it saw.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SeenLookups {
    keys: KeySet,
    tags: Box<[Tag]>,
}

impl SeenLookups {
    fn new(lookups: Lookups) -> Self {
        let (keys, tags): (Vec<Box<str>>, Vec<Tag>) =
            lookups.into_iter().map(|(key, tag)| (key.into_boxed_str(), tag)).unzip();
        Self { keys: keys.into(), tags: tags.into() }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| &**key)
    }

    /// Returns whether the run looked up values of the node itself. The keys are sorted.
    fn has_self_keys(&self) -> bool {
        let first = self.keys.partition_point(|key| &**key < "self");
        let is_self = |key: &str| key == "self" || key.starts_with("self::");
        self.keys.iter().skip(first).take_while(|key| key.starts_with("self")).any(|key| is_self(key))
    }

    /// The same keys with the tags of their current values.
    pub(crate) fn with_current_tags(&self, tag: impl Fn(&str) -> Tag) -> Self {
        Self { keys: self.keys.clone(), tags: self.keys.iter().map(|key| tag(key)).collect() }
    }

    /// The keys with different tags.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let pairs = self.keys.iter().zip(self.tags.iter().zip(&other.tags));
        pairs.filter(|(_, (here, there))| here != there).map(|(key, _)| key.to_string()).collect()
    }
}

/// Lookups of the nodes of one environment.
#[derive(Debug, Default)]
pub(super) struct LookupIndex {
    /// Distinct lookups, and the number of nodes that share them.
    lookups: HashMap<Arc<SeenLookups>, usize>,
    /// The nodes that looked up exactly these keys.
    sets: HashMap<KeySet, HashSet<NodeName>>,
    /// The sets that contain a key.
    by_key: HashMap<Box<str>, HashSet<KeySet>>,
}

impl LookupIndex {
    /// Adds the lookups of a node. Its former lookups must be removed first.
    pub(super) fn add(&mut self, node: &NodeName, lookups: Lookups) -> Arc<SeenLookups> {
        let mut seen = SeenLookups::new(lookups);
        if let Some((known, _)) = self.sets.get_key_value(&seen.keys) {
            seen.keys = known.clone();
        }
        self.add_shared(node, Arc::new(seen))
    }

    /// Like [`Self::add`], for lookups in the shared form.
    pub(super) fn add_shared(&mut self, node: &NodeName, seen: Arc<SeenLookups>) -> Arc<SeenLookups> {
        if !self.sets.contains_key(&seen.keys) {
            for key in seen.keys.iter() {
                self.by_key.entry(key.clone()).or_default().insert(seen.keys.clone());
            }
        }
        self.sets.entry(seen.keys.clone()).or_default().insert(node.clone());
        let seen = self.lookups.get_key_value(&seen).map_or(seen, |(known, _)| known.clone());
        *self.lookups.entry(seen.clone()).or_default() += 1;
        seen
    }

    /// Removes the lookups of a node that has disconnected, or has made other lookups.
    pub(super) fn remove(&mut self, node: &NodeName, seen: &Arc<SeenLookups>) {
        if let Some(sharers) = self.lookups.get_mut(seen) {
            *sharers = sharers.saturating_sub(1);
            if *sharers == 0 {
                self.lookups.remove(seen);
            }
        }
        let Some(nodes) = self.sets.get_mut(&seen.keys) else { return };
        nodes.remove(node);
        if !nodes.is_empty() {
            return;
        }
        self.sets.remove(&seen.keys);
        for key in seen.keys.iter() {
            if let Some(sets) = self.by_key.get_mut(key) {
                sets.remove(&seen.keys);
                if sets.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
    }

    /// The nodes that looked up a key.
    pub(super) fn by_key<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a NodeName> + use<'a> {
        self.by_key.get(key).into_iter().flatten().filter_map(|set| self.sets.get(set)).flatten()
    }

    /// The nodes that looked up the active nodes of some roles. Scans all keys: roles appear and disappear only with a
    /// change of the design.
    pub(super) fn by_role(&self, is_concerned: impl Fn(&str) -> bool) -> impl Iterator<Item = &NodeName> {
        let of_role = move |key: &str| match LookupKey::parse(key) {
            LookupKey::ActiveRole { role } | LookupKey::ActiveRoleInterface { role, .. } => is_concerned(role),
            LookupKey::ActiveRoles => true,
            LookupKey::Leader { .. }
            | LookupKey::Published { .. }
            | LookupKey::Service { .. }
            | LookupKey::Datum { .. }
            | LookupKey::SelfValue { .. }
            | LookupKey::Unknown => false,
        };
        let sets = self.by_key.iter().filter(move |(key, _)| of_role(key)).flat_map(|(_, sets)| sets);
        sets.filter_map(|set| self.sets.get(set)).flatten()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lookups.is_empty() && self.sets.is_empty() && self.by_key.is_empty()
    }
}

/// Result of comparing lookups with the view.
#[derive(Debug)]
pub(crate) struct LookupDiff {
    pub(crate) changed: Vec<String>,
    pub(crate) now: Arc<SeenLookups>,
    /// Keeps the allocation alive whose address is the cache key.
    _before: Arc<SeenLookups>,
}

/// Nodes that see the same data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum DataScope {
    Role(Option<Role>),
    /// A node with data of its own, or one that looked up values of its own design.
    Node(NodeName),
}

/// Key: the nodes that see the same data, and the address of their lookups.
type DiffCache = HashMap<(EnvName, DataScope, usize), Arc<LookupDiff>>;

/// Cache of the comparisons at the latest revision.
#[derive(Debug, Default)]
pub(super) struct Comparisons {
    cache: Mutex<(Revision, DiffCache)>,
}

impl Comparisons {
    /// Compares the lookups of a node with the view.
    pub(super) fn compare(
        &self,
        fleet: &Fleet,
        name: &NodeName,
        node: Option<&Node>,
        seen: &Arc<SeenLookups>,
    ) -> Arc<LookupDiff> {
        let scope = if fleet.data().has_own_layer(name) || seen.has_self_keys() {
            DataScope::Node(name.clone())
        } else {
            DataScope::Role(node.and_then(|node| node.record.as_ref()).map(|record| record.role.clone()))
        };
        let key = (fleet.env.clone(), scope, Arc::as_ptr(seen).addr());
        {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            if cache.0 != fleet.revision {
                *cache = (fleet.revision, DiffCache::new());
            }
            if let Some(known) = cache.1.get(&key) {
                return known.clone();
            }
        }
        let now = seen.with_current_tags(|key| fleet.tag(key, Some(name)));
        let changed = seen.differences(&now);
        let diff = Arc::new(LookupDiff { changed, now: Arc::new(now), _before: seen.clone() });
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.0 == fleet.revision {
            cache.1.insert(key, diff.clone());
        }
        diff
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn lookups(keys: &[&str], value: &str) -> Lookups {
        let tag = muster_core::lookup::datum_tag(&Value::from(value), false);
        keys.iter().map(|key| ((*key).to_owned(), tag.clone())).collect()
    }

    fn names<'a>(nodes: impl Iterator<Item = &'a NodeName>) -> Vec<&'a str> {
        let mut names: Vec<&str> = nodes.map(NodeName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn equal_lookups_are_shared_and_unused_ones_removed() {
        let mut index = LookupIndex::default();
        let web1 = index.add(&node("web1"), lookups(&["data::a", "data::b"], "x"));
        let web2 = index.add(&node("web2"), lookups(&["data::a", "data::b"], "x"));
        let web3 = index.add(&node("web3"), lookups(&["data::a", "data::b"], "y"));
        let db1 = index.add(&node("db1"), lookups(&["data::b", "active_roles::web::eth0"], "x"));
        assert!(Arc::ptr_eq(&web1, &web2));
        assert!(Arc::ptr_eq(&web1.keys, &web3.keys), "the same keys, with another value");
        assert_eq!(names(index.by_key("data::a")), ["web1", "web2", "web3"]);
        assert_eq!(names(index.by_key("data::b")), ["db1", "web1", "web2", "web3"]);
        assert_eq!(names(index.by_key("data::c")), [""; 0]);
        assert_eq!(names(index.by_role(|role| role == "web")), ["db1"]);
        assert_eq!(web1.differences(&web3), ["data::a", "data::b"]);

        for (name, seen) in [("web1", &web1), ("web3", &web3)] {
            index.remove(&node(name), seen);
        }
        assert_eq!(names(index.by_key("data::a")), ["web2"]);
        index.remove(&node("web2"), &web2);
        assert_eq!(names(index.by_key("data::b")), ["db1"]);
        index.remove(&node("db1"), &db1);
        assert!(index.is_empty());
    }
}
