//! What a stream is opened with.

use muster_core::lookup::snapshot::Snapshot;
use muster_core::lookup::{Lookups, Tag};
use muster_core::node::pause::NodePause;
use muster_core::node::status::Activity;
use muster_core::txn::Generation;
use muster_wire::sync::SyncOpen;

use crate::ledger::Ledger;

/// The part of the ledger that the server needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    pub incarnation: Option<u64>,
    pub generation: Option<Generation>,
    pub lookups: Lookups,
    pub has_snapshot: bool,
    pub snapshot: Option<Tag>,
    pub pause: Option<NodePause>,
    pub asked: Option<String>,
}

impl Opening {
    pub fn new(ledger: &Ledger, snapshot: Option<&Snapshot>) -> Self {
        Self {
            incarnation: ledger.incarnation,
            generation: ledger.desired.as_ref().map(|desired| desired.generation),
            lookups: ledger.watched(snapshot),
            has_snapshot: snapshot.is_some(),
            snapshot: snapshot.and_then(|snapshot| snapshot.tag.clone()),
            pause: ledger.pause.clone(),
            asked: ledger.asked.clone(),
        }
    }

    pub fn with(self, activity: Activity, boot: Option<String>, away: bool) -> SyncOpen {
        let Self { incarnation, generation, lookups, has_snapshot, snapshot, pause, asked } = self;
        let open = SyncOpen { incarnation, generation, lookups, has_snapshot, snapshot, ..SyncOpen::default() };
        SyncOpen { pause, asked, activity, boot, away, ..open }
    }
}
