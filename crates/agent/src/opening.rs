//! What a stream is opened with.

use muster_core::generation::Generation;
use muster_core::lookups::Lookups;
use muster_core::standing::Activity;
use muster_wire::sync::SyncOpen;

use crate::ledger::Ledger;

/// The part of the ledger that the server needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    pub incarnation: Option<u64>,
    pub generation: Option<Generation>,
    pub lookups: Lookups,
    pub has_snapshot: bool,
}

impl Opening {
    pub fn new(ledger: &Ledger, has_snapshot: bool) -> Self {
        Self {
            incarnation: ledger.incarnation,
            generation: ledger.desired.as_ref().map(|desired| desired.generation),
            lookups: ledger.last.as_ref().map(|last| last.lookups.clone()).unwrap_or_default(),
            has_snapshot,
        }
    }

    pub fn with(self, activity: Activity, boot: Option<String>, away: bool) -> SyncOpen {
        let Self { incarnation, generation, lookups, has_snapshot } = self;
        SyncOpen { incarnation, generation, lookups, has_snapshot, activity, boot, away, ..SyncOpen::default() }
    }
}
