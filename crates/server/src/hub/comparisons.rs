//! What nodes have seen, compared with what is there now: once for all that have seen the same and are shown the same.
//!
//! One change may wake a thousand nodes of a role, each of which has looked up thousands of keys. All of them share what
//! they have seen, and see the same data unless they have some of their own: one comparison is enough for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use muster_core::fleet::{Fleet, Node};
use muster_core::names::{EnvName, NodeName, Role};
use muster_core::txn::Revision;

use super::interests::Seen;

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
