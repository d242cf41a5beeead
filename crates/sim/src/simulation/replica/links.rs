//! Connections of agents to all servers, as one server knows them: [`muster_core::replica::links`] decides. Results are
//! cached, and recomputed only for nodes that have changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use muster_core::fleet::{Effects, Fleet};
use muster_core::names::{NodeName, ReplicaId};
use muster_core::node::liveness::Link;
use muster_core::replica::links::LocalLink;

use super::Replica;

#[derive(Clone, Debug)]
pub(super) struct Links {
    /// Shared with the readers.
    known: Arc<HashMap<NodeName, Link>>,
    /// Nodes whose link may have changed.
    stale: BTreeSet<NodeName>,
    /// All links are unknown: at the start, and when servers join or leave.
    all_stale: bool,
    /// The live servers, by the view.
    servers: BTreeSet<ReplicaId>,
}

impl Default for Links {
    fn default() -> Self {
        Self { known: Arc::default(), stale: BTreeSet::new(), all_stale: true, servers: BTreeSet::new() }
    }
}

impl Links {
    pub(super) fn invalidate(&mut self, node: &NodeName) {
        if !self.all_stale {
            self.stale.insert(node.clone());
        }
    }

    /// Connections and live servers are also in the store.
    pub(super) fn view_moved(&mut self, effects: &Effects, fleet: &Fleet) {
        if effects.servers && !self.servers.iter().eq(fleet.replicas().keys()) {
            self.servers = fleet.replicas().keys().cloned().collect();
            self.all_stale = true;
        }
        effects.nodes.iter().for_each(|node| self.invalidate(node));
    }
}

impl Replica {
    fn here(&self, node: &NodeName) -> LocalLink {
        match self.connections.get(node).filter(|connection| connection.is_accepted()) {
            Some(connection) => LocalLink::Connected { since: connection.since },
            None => LocalLink::Not { since: self.silent_since.get(node).copied().unwrap_or(self.listening_since) },
        }
    }

    /// The current links. Empty before the view is built.
    pub(crate) fn links(&mut self, now: Timestamp) -> Arc<HashMap<NodeName, Link>> {
        let mut links = std::mem::take(&mut self.links);
        let (Some(fleet), Some(mut absences)) = (self.view.as_ref(), self.absences.take()) else {
            return Arc::default();
        };
        let mut link = |name: &NodeName| absences.link(fleet, name, self.here(name), now).0;
        if std::mem::take(&mut links.all_stale) {
            links.stale.clear();
            links.known = Arc::new(fleet.nodes().map(|(name, _)| (name.clone(), link(name))).collect());
        } else if !links.stale.is_empty() {
            let known = Arc::make_mut(&mut links.known);
            for name in std::mem::take(&mut links.stale) {
                match fleet.get(&name) {
                    Some(_) => drop(known.insert(name.clone(), link(&name))),
                    None => drop(known.remove(&name)),
                }
            }
        }
        let known = Arc::clone(&links.known);
        self.absences = Some(absences);
        self.links = links;
        known
    }
}
