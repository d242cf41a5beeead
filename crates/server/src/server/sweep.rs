//! Removes unreferenced blobs at start, and renews this replica's mark in the blob directory.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use muster_core::names::ReplicaId;

use crate::blobs::Blobs;
use crate::design::tree::name_all;
use crate::replica::shared_blobs::BlobMarks;
use crate::view::View;

/// A mark of this age, whose replica is not in the store, was left by a replica that died.
pub(super) const STALE_MARK: Duration = Duration::from_secs(3600);

/// Removes the blobs that no history, design, release or rollout refers to, and the marks of dead replicas.
pub(super) async fn sweep(blobs: Arc<Blobs>, marks: BlobMarks, view: Arc<View>, store: &str) {
    #[expect(clippy::disallowed_methods, reason = "compared with file times, which come from the machine's clock")]
    let now = SystemTime::now();
    let (mut referenced, manifests, live): (HashSet<String>, Vec<String>, HashSet<ReplicaId>) = {
        let fleets = view.fleets();
        let runs = fleets.values().flat_map(|fleet| fleet.recorded()).flat_map(|(_, node, _)| node.history().0);
        let designs = fleets.values().flat_map(|fleet| fleet.design().revisions.values());
        let replicas = fleets.values().flat_map(|fleet| fleet.replicas().keys().cloned());
        let releases = fleets.values().flat_map(|fleet| fleet.releases().values());
        let bundles = releases.filter_map(|release| release.digest.strip_prefix("sha256:").map(str::to_owned));
        let rollouts = fleets.values().flat_map(|fleet| fleet.rollouts().values());
        let plans = rollouts.flat_map(|(record, _)| [Some(record.plan.clone()), record.outcome.clone()]).flatten();
        let referenced = runs.flat_map(|past| past.logs).chain(bundles).chain(plans).collect();
        (referenced, designs.map(|revision| revision.manifest.clone()).collect(), replicas.collect())
    };
    let store = store.to_owned();
    let sweep = move || {
        let named = manifests.iter().try_for_each(|manifest| name_all(&blobs, manifest, &mut referenced));
        let removed = if let Err(error) = named {
            // The blobs that this revision refers to are unknown, and an operator may still restore it.
            tracing::warn!(%error, "a design revision cannot be read: no blob is removed until it can");
            0
        } else if blobs.belong_to(&store)? {
            blobs.sweep(now, |digest| referenced.contains(digest))?
        } else {
            tracing::warn!("the blob directory was first used with another store: no blob is removed");
            0
        };
        marks.sweep(now.checked_sub(STALE_MARK).unwrap_or(now), |id| live.contains(id))?;
        io::Result::Ok(removed)
    };
    match tokio::task::spawn_blocking(sweep).await {
        Ok(Ok(0)) | Err(_) => {}
        Ok(Ok(removed)) => tracing::info!(removed, "unreferenced blobs were removed"),
        Ok(Err(error)) => tracing::warn!(%error, "unreferenced blobs cannot be removed"),
    }
}

/// Renews the mark of this replica, for ever. While the replica is cut off from the store, its key is missing there. A
/// server that starts at that moment would remove an old mark; and one that starts later would not find it, and fail.
pub(super) async fn renew_mark(marks: &BlobMarks, id: &ReplicaId, nonce: &str, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let (marks, id, nonce) = (marks.clone(), id.clone(), nonce.to_owned());
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || marks.put(&id, &nonce)).await {
            tracing::warn!(%error, "the mark of this replica cannot be renewed: other replicas may not find it");
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_core::replica::{BlobsMark, ReplicaRecord};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn swept_mark_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let (marks, id) = (BlobMarks::new(dir.path()), ReplicaId::new("one-1").unwrap());
        let blobs = BlobsMark { directory: String::new(), nonce: "7".into() };
        let (url, host, version) = (String::new(), String::new(), String::new());
        let record = ReplicaRecord { url, host, pid: 1, version, since: jiff::Timestamp::UNIX_EPOCH, blobs };
        marks.put(&id, "7").unwrap();
        #[expect(clippy::disallowed_methods, reason = "compared with file times, which come from the machine's clock")]
        let late = SystemTime::now() + STALE_MARK;
        marks.sweep(late, |_| false).unwrap();
        assert!(!marks.shows(&id, &record));
        let again = async {
            while !marks.shows(&id, &record) {
                tokio::time::sleep(STALE_MARK / 4).await;
            }
        };
        tokio::select! {
            () = renew_mark(&marks, &id, "7", STALE_MARK / 4) => {}
            () = again => {}
        }
        assert!(marks.shows(&id, &record));
    }
}
