//! Whether all replicas see the same directory of blobs: one that has its own would answer with logs that are not there.
//!
//! Each replica leaves a file `.replicas/<id>` with a number that its key in the store holds too. Whoever starts looks
//! for the files of all that live, and goes on looking for those of whoever comes later: two that start at the same
//! moment do not find each other before both are there, nor do those that wait for the first environment together.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use muster_core::names::ReplicaId;
use muster_core::replica::ReplicaRecord;
use tokio::time::{sleep, timeout};

use crate::App;
use crate::server::StartError;
use crate::view::View;

/// How much longer than its lease a replica is waited for that may be dead.
const MARGIN: Duration = Duration::from_secs(1);
/// The directory of the marks, beside the blobs.
pub(crate) const MARKS: &str = ".replicas";

/// A replica's file, and those of the others.
#[derive(Clone, Debug)]
pub struct BlobMarks {
    directory: PathBuf,
}

impl BlobMarks {
    pub(crate) fn new(blobs: &Path) -> Self {
        Self { directory: blobs.join(MARKS) }
    }

    /// Leaves a mark.
    pub(crate) fn put(&self, id: &ReplicaId, nonce: &str) -> io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        std::fs::write(self.directory.join(id.as_str()), nonce)
    }

    /// Takes the mark away. One that is gone already is no error, and one that stays is swept some day.
    pub(crate) fn remove(&self, id: &ReplicaId) {
        if let Err(error) = std::fs::remove_file(self.directory.join(id.as_str()))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the mark of this replica cannot be removed");
        }
    }

    /// Whether a replica has left its mark here.
    pub fn shows(&self, id: &ReplicaId, record: &ReplicaRecord) -> bool {
        std::fs::read_to_string(self.directory.join(id.as_str())).is_ok_and(|nonce| nonce == record.blobs.nonce)
    }

    /// Removes old marks of replicas that are gone.
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

/// Waits until the mark of every other replica is seen, or the replica is gone. Returns one that lives elsewhere: it has
/// been there for as long as a lease lives without a sign of life, so it does live.
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
            if first_unseen(view, marks, me).is_none() || servers.changed().await.is_err() {
                return;
            }
        }
    };
    match timeout(lease + MARGIN, all_seen).await {
        Ok(()) => None,
        Err(_) => first_unseen(view, marks, me),
    }
}

fn first_unseen(view: &View, marks: &BlobMarks, me: &ReplicaId) -> Option<(ReplicaId, ReplicaRecord)> {
    others(view, me).into_iter().find(|(id, record)| !marks.shows(id, record))
}

/// The other replicas that the view shows.
fn others(view: &View, me: &ReplicaId) -> Vec<(ReplicaId, ReplicaRecord)> {
    let fleets = view.fleets();
    let replicas = fleets.values().flat_map(|fleet| fleet.replicas());
    let others = replicas.filter(|(id, _)| *id != me);
    others.map(|(id, (record, _))| (id.clone(), record.clone())).collect()
}

/// What a server needs to look for the marks of others while it runs.
#[derive(Debug)]
pub(crate) struct BlobMarkWatch {
    pub(crate) marks: BlobMarks,
    pub(crate) directory: PathBuf,
    pub(crate) lease: Duration,
}

impl BlobMarkWatch {
    /// Looks for the mark of every replica that comes, for ever. Ends with the reason when this one has to go: of two
    /// that do not share their blobs, the one that came first stays.
    pub(crate) async fn run(&self, app: &App) -> StartError {
        let me = (app.membership.record().since, app.membership.id());
        let mut servers = app.view.subscribe_servers();
        // Those whose marks were found, and those that were complained about.
        let mut known: BTreeSet<ReplicaId> = BTreeSet::new();
        loop {
            servers.mark_unchanged();
            let Some((replica, record)) = self.stranger(app, &mut known).await else {
                if servers.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                continue;
            };
            // It may be dead, or its mark on its way through a file system that takes its time.
            sleep(self.lease + MARGIN).await;
            if !lives(app, &replica).await || self.shows(&replica, &record).await {
                continue;
            }
            let goes = me > (record.since, &replica);
            let (host, theirs, ours) = (record.host, record.blobs.directory, self.directory.clone());
            let error = StartError::BlobsNotShared { replica: replica.clone(), host, theirs, ours };
            if goes {
                return error;
            }
            tracing::error!(%error, "this replica came first and stays; the other one ends");
            known.insert(replica);
        }
    }

    /// A replica whose mark is not found here.
    async fn stranger(&self, app: &App, known: &mut BTreeSet<ReplicaId>) -> Option<(ReplicaId, ReplicaRecord)> {
        let others = others(&app.view, app.membership.id());
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

    /// Beside the runtime: a shared file system may hang.
    async fn shows(&self, id: &ReplicaId, record: &ReplicaRecord) -> bool {
        let (marks, id, record) = (self.marks.clone(), id.clone(), record.clone());
        tokio::task::spawn_blocking(move || marks.shows(&id, &record)).await.unwrap_or(false)
    }
}

/// Whether a replica is there now: a view that lags, or a store that does not answer, proves nothing.
async fn lives(app: &App, replica: &ReplicaId) -> bool {
    let Ok(newest) = app.latest_revision.read().await else { return false };
    app.view.reach(newest).await.is_ok() && others(&app.view, app.membership.id()).iter().any(|(id, _)| id == replica)
}

#[cfg(test)]
mod tests {
    use muster_core::replica::BlobsMark;

    use super::*;

    #[test]
    fn a_mark_is_seen_by_its_number_and_swept_when_it_is_old_and_its_replica_gone() {
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
        assert!(!marks.shows(&one, &record("7")), "nothing is there");
        marks.put(&one, "7").unwrap();
        marks.put(&other, "8").unwrap();
        assert!(marks.shows(&one, &record("7")));
        assert!(!marks.shows(&one, &record("8")), "another directory that was copied, or another start");

        let written = std::fs::metadata(dir.path().join(MARKS).join("other-2")).unwrap().modified().unwrap();
        marks.sweep(written - Duration::from_secs(1), |_| false).unwrap();
        assert!(marks.shows(&one, &record("7")), "nothing is old");
        marks.sweep(written + Duration::from_secs(1), |id| id == "one-1").unwrap();
        assert!(marks.shows(&one, &record("7")) && !marks.shows(&other, &record("8")));
        marks.remove(&one);
        marks.remove(&one);
        assert!(!marks.shows(&one, &record("7")));
    }
}
