//! State that a sync stream is opened with, and the request for a new incarnation.

use tokio::sync::watch;

use muster_core::lookup::snapshot::Snapshot;
use muster_core::lookup::{Lookups, Tag};
use muster_core::node::agent::{CallInterval, FIRST_PROTOCOL, IncompatibleProtocol, PROTOCOL, is_compatible};
use muster_core::node::pause::NodePause;
use muster_core::node::status::Activity;
use muster_core::txn::Generation;
use muster_wire::sync::SyncOpen;

use crate::state::ledger::Ledger;

/// The part of the ledger that the server needs when a stream is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncState {
    pub incarnation: Option<u64>,
    pub generation: Option<Generation>,
    pub lookups: Lookups,
    pub has_snapshot: bool,
    pub snapshot: Option<Tag>,
    pub pause: Option<NodePause>,
    /// Id of the last run request that the agent accepted.
    pub run_request: Option<String>,
}

impl SyncState {
    pub fn new(ledger: &Ledger, snapshot: Option<&Snapshot>) -> Self {
        Self {
            incarnation: ledger.incarnation,
            generation: ledger.desired.as_ref().map(|desired| desired.generation),
            lookups: ledger.watched(snapshot),
            has_snapshot: snapshot.is_some(),
            snapshot: snapshot.and_then(|snapshot| snapshot.tag.clone()),
            pause: ledger.pause.clone(),
            run_request: ledger.run_request.clone(),
        }
    }

    /// The opening message of a stream. `away`: the server is not the first in this agent's order.
    pub fn open_message(self, activity: Activity, boot: Option<String>, away: bool) -> SyncOpen {
        let Self { incarnation, generation, lookups, has_snapshot, snapshot, pause, run_request } = self;
        let open = SyncOpen { incarnation, generation, lookups, has_snapshot, snapshot, ..SyncOpen::default() };
        SyncOpen { pause, asked: run_request, activity, boot, away, ..open }
    }
}

/// Adds to an opening message what the agent says of itself. `every`: the interval at which cron starts it.
pub fn introduce(open: SyncOpen, every: Option<CallInterval>) -> SyncOpen {
    let (protocol, version) = (Some(PROTOCOL), Some(env!("CARGO_PKG_VERSION").to_owned()));
    SyncOpen { protocol, version, every, ..open }
}

/// The problem with the protocol of a server. None if this agent supports it.
pub fn incompatible(server: Option<u32>) -> Option<IncompatibleProtocol> {
    let server = server.unwrap_or(FIRST_PROTOCOL);
    (!is_compatible(server)).then_some(IncompatibleProtocol { agent: PROTOCOL, server })
}

/// Request for a new incarnation while the agent runs.
///
/// After its state directory was restored from a backup, an agent reuses the sequence numbers of reports, and the server
/// rejects those reports as outdated. The report sender then requests a new incarnation. The next stream is opened
/// without an incarnation, and the server assigns the next one. When that is in the ledger, the queue ends the request
/// and reports are sent again. The request is not stored: after a restart the first report in the outbox causes it again.
///
/// Meanwhile the ledger keeps the old incarnation, and the node continues with it while the server is unreachable.
#[derive(Clone, Debug)]
pub struct IncarnationRenewal {
    requested: watch::Sender<bool>,
}

/// Receiver of [`IncarnationRenewal`] requests, for the task that opens streams.
#[derive(Debug)]
pub struct RenewalRequests {
    requested: watch::Receiver<bool>,
}

impl IncarnationRenewal {
    pub fn new() -> (Self, RenewalRequests) {
        let (requested, receiver) = watch::channel(false);
        (Self { requested }, RenewalRequests { requested: receiver })
    }

    pub fn request(&self) {
        self.requested.send_replace(true);
    }

    pub fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Ends the request: the new incarnation is stored and published.
    pub fn complete(&self) {
        self.requested.send_replace(false);
    }
}

impl RenewalRequests {
    /// True if a stream that is opened now must request a new incarnation.
    pub fn is_requested(&mut self) -> bool {
        *self.requested.borrow_and_update()
    }

    /// Waits for a request that is newer than the last call of [`RenewalRequests::is_requested`].
    pub async fn next_request(&mut self) {
        loop {
            if self.requested.changed().await.is_err() {
                // The report sender has ended.
                std::future::pending::<()>().await;
            }
            if *self.requested.borrow() {
                return;
            }
        }
    }
}
