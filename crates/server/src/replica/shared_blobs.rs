//! Checks that all replicas use the same blobs: a replica with its own would not find the logs of the others.
//!
//! Each replica writes a mark, the note `.replicas/<id>` with a nonce that is also in its key in the store. A server that starts
//! looks for the marks of all live replicas. It continues to look for the marks of replicas that join later: two that start
//! at the same moment do not see each other at first.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use muster_core::names::ReplicaId;
use muster_core::replica::ReplicaRecord;
use tokio::time::{sleep, timeout};

use crate::App;
use crate::blobs::{BlobPlace, BlobStore};
use crate::server::ServerStartError;
use crate::view::View;

/// Time beyond the lease TTL until a replica without a mark counts as alive.
const MARGIN: Duration = Duration::from_secs(1);
/// The folder of the marks.
const MARKS: &str = ".replicas";

/// The marks beside the blobs.
#[derive(Clone, Debug)]
pub struct BlobMarks {
    place: Arc<dyn BlobStore>,
}

impl BlobMarks {
    pub(crate) fn new(place: Arc<dyn BlobStore>) -> Self {
        Self { place }
    }

    /// Writes the mark of a replica.
    pub(crate) fn put(&self, id: &ReplicaId, nonce: &str) -> io::Result<()> {
        self.place.put_note(&name(id.as_str()), nonce)
    }

    /// Removes the mark of a replica. A missing mark is no error, and one that stays is swept later.
    pub(crate) fn remove(&self, id: &ReplicaId) {
        if let Err(error) = self.place.remove_note(&name(id.as_str())) {
            tracing::warn!(%error, "the mark of this replica cannot be removed");
        }
    }

    /// Returns whether the mark of a replica is here; an error if that cannot be told now.
    pub fn shows(&self, id: &ReplicaId, record: &ReplicaRecord) -> io::Result<bool> {
        Ok(self.place.note(&name(id.as_str()))?.is_some_and(|nonce| nonce == record.blobs.nonce))
    }

    /// Removes old marks of dead replicas.
    pub(crate) fn sweep(&self, before: SystemTime, lives: impl Fn(&str) -> bool) -> io::Result<()> {
        let marks = self.place.notes(MARKS)?;
        marks
            .iter()
            .filter(|mark| mark.modified < before && !lives(&mark.name))
            .try_for_each(|mark| self.place.remove_note(&name(&mark.name)))
    }
}

fn name(id: &str) -> String {
    format!("{MARKS}/{id}")
}

/// Waits until each other replica has a mark here, or is gone. Returns a replica without a mark that is alive: it is still in
/// the store after the TTL of a lease.
pub(crate) async fn unseen(
    view: &View,
    marks: &BlobMarks,
    me: &ReplicaId,
    lease: Duration,
) -> Option<(ReplicaId, ReplicaRecord)> {
    let mut servers = view.subscribe_servers();
    let all_seen = async {
        loop {
            servers.mark_unchanged();
            if first_unshared(view, marks, me).await.is_none() || servers.changed().await.is_err() {
                return;
            }
        }
    };
    match timeout(lease + MARGIN, all_seen).await {
        Ok(()) => None,
        Err(_) => first_unshared(view, marks, me).await,
    }
}

async fn first_unshared(view: &View, marks: &BlobMarks, me: &ReplicaId) -> Option<(ReplicaId, ReplicaRecord)> {
    for (id, record) in others(view, me) {
        if !matches!(shows(marks, &id, &record).await, Ok(true)) {
            return Some((id, record));
        }
    }
    None
}

/// In a blocking task: a shared file system may hang.
async fn shows(marks: &BlobMarks, id: &ReplicaId, record: &ReplicaRecord) -> io::Result<bool> {
    let (marks, id, record) = (marks.clone(), id.clone(), record.clone());
    let shown = tokio::task::spawn_blocking(move || marks.shows(&id, &record)).await.map_err(io::Error::other)?;
    shown.inspect_err(|error| tracing::warn!(%error, "the mark of a replica cannot be read"))
}

/// The other replicas that the view shows.
fn others(view: &View, me: &ReplicaId) -> Vec<(ReplicaId, ReplicaRecord)> {
    let fleets = view.fleets();
    let replicas = fleets.values().flat_map(|fleet| fleet.replicas());
    let others = replicas.filter(|(id, _)| *id != me);
    others.map(|(id, (record, _))| (id.clone(), record.clone())).collect()
}

/// Watches the marks of other replicas while the server runs.
#[derive(Debug)]
pub(crate) struct BlobMarkWatch {
    pub(crate) marks: BlobMarks,
    pub(crate) place: BlobPlace,
    pub(crate) lease: Duration,
}

impl BlobMarkWatch {
    /// Looks for the mark of every replica that joins, forever. Returns an error when this replica must stop: of two that do
    /// not share their blobs, the older one stays.
    pub(crate) async fn run(&self, app: &App) -> ServerStartError {
        let me = (app.replica.membership.record().since, app.replica.membership.id());
        let mut servers = app.view.subscribe_servers();
        // Replicas whose marks were found, and those that were reported.
        let mut known: BTreeSet<ReplicaId> = BTreeSet::new();
        loop {
            servers.mark_unchanged();
            let Some((replica, record)) = self.find_unmarked(app, &mut known).await else {
                if servers.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                continue;
            };
            // The replica may be dead, or its mark may be delayed by a slow file system.
            sleep(self.lease + MARGIN).await;
            // Blobs that cannot be read now prove nothing.
            if !is_alive(app, &replica).await || !matches!(shows(&self.marks, &replica, &record).await, Ok(false)) {
                continue;
            }
            let must_stop = me > (record.since, &replica);
            let (host, theirs, ours) = (record.host, record.blobs.directory, self.place.clone());
            let error =
                ServerStartError::BlobsNotShared { replica: replica.clone(), host, theirs, ours: Box::new(ours) };
            if must_stop {
                return error;
            }
            tracing::error!(%error, "the blob directories differ: this replica is older and stays, the other one stops");
            known.insert(replica);
        }
    }

    /// A replica without a mark here.
    async fn find_unmarked(&self, app: &App, known: &mut BTreeSet<ReplicaId>) -> Option<(ReplicaId, ReplicaRecord)> {
        let others = others(&app.view, app.replica.membership.id());
        known.retain(|known| others.iter().any(|(id, _)| id == known));
        for (id, record) in others {
            if known.contains(&id) {
                continue;
            }
            if !matches!(shows(&self.marks, &id, &record).await, Ok(true)) {
                return Some((id, record));
            }
            known.insert(id);
        }
        None
    }
}

/// Returns whether a replica is certainly alive. A view that lags, or a store that does not answer, proves nothing.
async fn is_alive(app: &App, replica: &ReplicaId) -> bool {
    let Ok(newest) = app.latest_revision.read().await else { return false };
    app.view.reach(newest).await.is_ok()
        && others(&app.view, app.replica.membership.id()).iter().any(|(id, _)| id == replica)
}
