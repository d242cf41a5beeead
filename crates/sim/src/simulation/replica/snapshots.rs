//! What nodes may look up, made once for all who see the same: as the server does it with its texts.

use std::sync::Arc;

use muster_core::fleet::{Effects, Fleet};
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::NodeName;

/// The one of those that have no data of their own. It stays what it is until something changes that can be looked up.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshots(Option<Arc<Snapshot>>);

impl Snapshots {
    pub(super) fn of(&mut self, fleet: &Fleet, node: &NodeName) -> Arc<Snapshot> {
        let shared = self.0.get_or_insert_with(|| Arc::new(fleet.snapshot()));
        let role = fleet.get(node).and_then(|node| node.record.as_ref()).map(|record| &record.role);
        match role.map(|role| fleet.data().effective_for(node, role)).filter(|data| !data.is_empty()) {
            Some(data) => Arc::new(Snapshot { data, ..(**shared).clone() }),
            None => Arc::clone(shared),
        }
    }

    pub(super) fn view_moved(&mut self, effects: &Effects) {
        if !effects.lookups.is_empty() || !effects.roles.is_empty() {
            self.0 = None;
        }
    }
}
