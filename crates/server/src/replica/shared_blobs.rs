//! Checks that all replicas use the same blob directory: a replica with its own would not find the logs of the others.
//!
//! Each replica writes a mark, the file `.replicas/<id>` with a nonce that is also in its key in the store. A server that starts
//! looks for the marks of all live replicas. It continues to look for the marks of replicas that join later: two that start
//! at the same moment do not see each other at first.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use muster_core::names::ReplicaId;
use muster_core::replica::ReplicaRecord;
use tokio::time::{sleep, timeout};

use crate::App;
use crate::private_files::{create_private_dir, private_file};
use crate::server::ServerStartError;
use crate::view::View;

/// Time beyond the lease TTL until a replica without a mark counts as alive.
const MARGIN: Duration = Duration::from_secs(1);
/// The directory of the marks, next to the blobs.
pub(crate) const MARKS: &str = ".replicas";

/// The marks in a blob directory.
#[derive(Clone, Debug)]
pub struct BlobMarks {
    directory: PathBuf,
}

impl BlobMarks {
    pub(crate) fn new(blobs: &Path) -> Self {
        Self { directory: blobs.join(MARKS) }
    }

    /// Writes the mark of a replica.
    pub(crate) fn put(&self, id: &ReplicaId, nonce: &str) -> io::Result<()> {
        create_private_dir(&self.directory)?;
        let mut mark = private_file().write(true).create(true).truncate(true).open(self.directory.join(id.as_str()))?;
        mark.write_all(nonce.as_bytes())
    }

    /// Removes the mark of a replica. A missing mark is no error, and one that stays is swept later.
    pub(crate) fn remove(&self, id: &ReplicaId) {
        if let Err(error) = std::fs::remove_file(self.directory.join(id.as_str()))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the mark of this replica cannot be removed");
        }
    }

    /// Returns whether the mark of a replica is in this directory.
    pub fn shows(&self, id: &ReplicaId, record: &ReplicaRecord) -> bool {
        std::fs::read_to_string(self.directory.join(id.as_str())).is_ok_and(|nonce| nonce == record.blobs.nonce)
    }

    /// Removes old marks of dead replicas.
    pub(crate) fn sweep(&self, before: SystemTime, lives: impl Fn(&str) -> bool) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            let old = entry.metadata().and_then(|found| found.modified()).is_ok_and(|at| at < before);
            if old && !entry.file_name().to_str().is_some_and(&lives) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
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
            if first_unshared(view, marks, me).is_none() || servers.changed().await.is_err() {
                return;
            }
        }
    };
    match timeout(lease + MARGIN, all_seen).await {
        Ok(()) => None,
        Err(_) => first_unshared(view, marks, me),
    }
}

fn first_unshared(view: &View, marks: &BlobMarks, me: &ReplicaId) -> Option<(ReplicaId, ReplicaRecord)> {
    others(view, me).into_iter().find(|(id, record)| !marks.shows(id, record))
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
    pub(crate) directory: PathBuf,
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
            if !is_alive(app, &replica).await || self.shows(&replica, &record).await {
                continue;
            }
            let must_stop = me > (record.since, &replica);
            let (host, theirs, ours) = (record.host, record.blobs.directory, self.directory.clone());
            let error = ServerStartError::BlobsNotShared { replica: replica.clone(), host, theirs, ours };
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
            if !self.shows(&id, &record).await {
                return Some((id, record));
            }
            known.insert(id);
        }
        None
    }

    /// In a blocking task: a shared file system may hang.
    async fn shows(&self, id: &ReplicaId, record: &ReplicaRecord) -> bool {
        let (marks, id, record) = (self.marks.clone(), id.clone(), record.clone());
        tokio::task::spawn_blocking(move || marks.shows(&id, &record)).await.unwrap_or(false)
    }
}

/// Returns whether a replica is certainly alive. A view that lags, or a store that does not answer, proves nothing.
async fn is_alive(app: &App, replica: &ReplicaId) -> bool {
    let Ok(newest) = app.latest_revision.read().await else { return false };
    app.view.reach(newest).await.is_ok()
        && others(&app.view, app.replica.membership.id()).iter().any(|(id, _)| id == replica)
}

#[cfg(test)]
mod tests {
    use muster_core::replica::BlobsMark;

    use super::*;

    #[test]
    fn marks_are_matched_by_nonce_and_swept_when_stale() {
        let dir = tempfile::tempdir().unwrap();
        let marks = BlobMarks::new(dir.path());
        let record = |nonce: &str| ReplicaRecord {
            url: String::new(),
            host: String::new(),
            pid: 1,
            version: String::new(),
            since: jiff::Timestamp::UNIX_EPOCH,
            blobs: BlobsMark { directory: String::new(), nonce: nonce.into() },
        };
        let (one, other) = (ReplicaId::new("one-1").unwrap(), ReplicaId::new("other-2").unwrap());
        assert!(!marks.shows(&one, &record("7")), "there is no mark");
        marks.put(&one, "7").unwrap();
        marks.put(&other, "8").unwrap();
        assert!(marks.shows(&one, &record("7")));
        assert!(!marks.shows(&one, &record("8")), "a copied directory, or another start");

        let written = std::fs::metadata(dir.path().join(MARKS).join("other-2")).unwrap().modified().unwrap();
        marks.sweep(written - Duration::from_secs(1), |_| false).unwrap();
        assert!(marks.shows(&one, &record("7")), "no mark is old");
        marks.sweep(written + Duration::from_secs(1), |id| id == "one-1").unwrap();
        assert!(marks.shows(&one, &record("7")) && !marks.shows(&other, &record("8")));
        marks.remove(&one);
        marks.remove(&one);
        assert!(!marks.shows(&one, &record("7")));
    }
}
