//! What runs looked up, and whom a change of it concerns: each distinct set is kept once.
//!
//! A run may look up thousands of keys, and the nodes of a role look up the same ones and see the same there. So the keys of
//! a run are one set that all of those nodes share, and so is what they saw; the way from a key to nodes goes through the
//! sets. What a node costs does not grow with how much it looked up.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use muster_core::fleet::{Fleet, Node};
use muster_core::lookup::{LookupKey, Lookups, Tag};
use muster_core::names::{EnvName, NodeName, Role};
use muster_core::txn::Revision;

/// Looked-up keys, in their order.
type KeySet = Arc<[Box<str>]>;

/// What a run looked up, and the tag of what it saw there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    keys: KeySet,
    tags: Box<[Tag]>,
}

impl Seen {
    fn of(lookups: Lookups) -> Self {
        let (keys, tags): (Vec<Box<str>>, Vec<Tag>) =
            lookups.into_iter().map(|(key, tag)| (key.into_boxed_str(), tag)).unzip();
        Self { keys: keys.into(), tags: tags.into() }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| &**key)
    }

    /// The same keys, with what is there now.
    pub(crate) fn now(&self, tag: impl Fn(&str) -> Tag) -> Self {
        Self { keys: self.keys.clone(), tags: self.keys.iter().map(|key| tag(key)).collect() }
    }

    /// The keys at which another one saw something else.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let pairs = self.keys.iter().zip(self.tags.iter().zip(&other.tags));
        pairs.filter(|(_, (here, there))| here != there).map(|(key, _)| key.to_string()).collect()
    }
}

/// The interests of one environment's nodes.
#[derive(Debug, Default)]
pub(super) struct Interests {
    /// What was seen, and how many nodes share it.
    seen: HashMap<Arc<Seen>, usize>,
    /// Who has looked exactly these keys up.
    sets: HashMap<KeySet, HashSet<NodeName>>,
    /// In which sets a key is.
    by_key: HashMap<Box<str>, HashSet<KeySet>>,
}

impl Interests {
    /// A node has looked something up. What it had looked up before must be forgotten first.
    pub(super) fn note(&mut self, node: &NodeName, lookups: Lookups) -> Arc<Seen> {
        let mut seen = Seen::of(lookups);
        if let Some((known, _)) = self.sets.get_key_value(&seen.keys) {
            seen.keys = known.clone();
        }
        self.share(node, Arc::new(seen))
    }

    /// As above, for what is in the form that is kept.
    pub(super) fn share(&mut self, node: &NodeName, seen: Arc<Seen>) -> Arc<Seen> {
        if !self.sets.contains_key(&seen.keys) {
            for key in seen.keys.iter() {
                self.by_key.entry(key.clone()).or_default().insert(seen.keys.clone());
            }
        }
        self.sets.entry(seen.keys.clone()).or_default().insert(node.clone());
        let seen = self.seen.get_key_value(&seen).map_or(seen, |(known, _)| known.clone());
        *self.seen.entry(seen.clone()).or_default() += 1;
        seen
    }

    /// A node has gone, or has looked up something else.
    pub(super) fn forget(&mut self, node: &NodeName, seen: &Arc<Seen>) {
        if let Some(sharers) = self.seen.get_mut(seen) {
            *sharers = sharers.saturating_sub(1);
            if *sharers == 0 {
                self.seen.remove(seen);
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

    /// Who has looked a key up.
    pub(super) fn in_key<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a NodeName> + use<'a> {
        self.by_key.get(key).into_iter().flatten().filter_map(|set| self.sets.get(set)).flatten()
    }

    /// Who has looked anything up of the active nodes of one of these roles. Goes through all keys: a role appears or goes
    /// with a change of the design, which is rare.
    pub(super) fn in_roles(&self, is_concerned: impl Fn(&str) -> bool) -> impl Iterator<Item = &NodeName> {
        let of_role = move |key: &str| match LookupKey::parse(key) {
            LookupKey::ActiveRole { role } | LookupKey::ActiveRoleInterface { role, .. } => is_concerned(role),
            LookupKey::Leader { .. } | LookupKey::Published { .. } | LookupKey::Datum { .. } | LookupKey::Unknown => {
                false
            }
        };
        let sets = self.by_key.iter().filter(move |(key, _)| of_role(key)).flat_map(|(_, sets)| sets);
        sets.filter_map(|set| self.sets.get(set)).flatten()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seen.is_empty() && self.sets.is_empty() && self.by_key.is_empty()
    }
}

/// What has changed since somebody looked.
#[derive(Debug)]
pub(crate) struct Compared {
    pub(crate) changed: Vec<String>,
    pub(crate) now: Arc<Seen>,
    /// Keeps the address that it is found by.
    _before: Arc<Seen>,
}

/// Who sees the same data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Eyes {
    Role(Option<Role>),
    Node(NodeName),
}

/// Found by whose eyes, and by the address of what they have seen.
type Made = HashMap<(EnvName, Eyes, usize), Arc<Compared>>;

/// The comparisons that were made at the newest revision.
#[derive(Debug, Default)]
pub(super) struct Comparisons {
    made: Mutex<(Revision, Made)>,
}

impl Comparisons {
    /// Compares what a node has seen with what it would see now.
    pub(super) fn compare(
        &self,
        fleet: &Fleet,
        name: &NodeName,
        node: Option<&Node>,
        seen: &Arc<Seen>,
    ) -> Arc<Compared> {
        let eyes = if fleet.data().is_of_its_own(name) {
            Eyes::Node(name.clone())
        } else {
            Eyes::Role(node.and_then(|node| node.record.as_ref()).map(|record| record.role.clone()))
        };
        let place = (fleet.env.clone(), eyes, Arc::as_ptr(seen).addr());
        {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            if made.0 != fleet.revision {
                *made = (fleet.revision, Made::new());
            }
            if let Some(known) = made.1.get(&place) {
                return known.clone();
            }
        }
        let now = seen.now(|key| fleet.tag(key, Some(name)));
        let changed = seen.differences(&now);
        let compared = Arc::new(Compared { changed, now: Arc::new(now), _before: seen.clone() });
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.0 == fleet.revision {
            made.1.insert(place, compared.clone());
        }
        compared
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
    fn what_is_equal_is_kept_once_and_what_nobody_needs_is_gone() {
        let mut interests = Interests::default();
        let web1 = interests.note(&node("web1"), lookups(&["data::a", "data::b"], "x"));
        let web2 = interests.note(&node("web2"), lookups(&["data::a", "data::b"], "x"));
        let web3 = interests.note(&node("web3"), lookups(&["data::a", "data::b"], "y"));
        let db1 = interests.note(&node("db1"), lookups(&["data::b", "active_roles::web::eth0"], "x"));
        assert!(Arc::ptr_eq(&web1, &web2));
        assert!(Arc::ptr_eq(&web1.keys, &web3.keys), "the same keys, with another value");
        assert_eq!(names(interests.in_key("data::a")), ["web1", "web2", "web3"]);
        assert_eq!(names(interests.in_key("data::b")), ["db1", "web1", "web2", "web3"]);
        assert_eq!(names(interests.in_key("data::c")), [""; 0]);
        assert_eq!(names(interests.in_roles(|role| role == "web")), ["db1"]);
        assert_eq!(web1.differences(&web3), ["data::a", "data::b"]);

        for (name, seen) in [("web1", &web1), ("web3", &web3)] {
            interests.forget(&node(name), seen);
        }
        assert_eq!(names(interests.in_key("data::a")), ["web2"]);
        interests.forget(&node("web2"), &web2);
        assert_eq!(names(interests.in_key("data::b")), ["db1"]);
        interests.forget(&node("db1"), &db1);
        assert!(interests.is_empty());
    }
}
