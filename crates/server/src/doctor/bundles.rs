//! Compares the stored bundles of releases with their records.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use muster_core::names::Version;
use muster_core::release::ReleaseRecord;
use tokio::time::{Instant, timeout};

use crate::blobs::Blobs;

/// Time to verify bundles. Lengths are compared first; a gigabyte of content takes a second or two.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Additional time for the bundle that is being read at the timeout.
const GRACE: Duration = Duration::from_secs(3);

/// Fault of a stored bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleFault {
    Missing,
    /// It could not be read, with the error of the operating system.
    Unreadable(String),
    /// Its length is not the one of its record.
    Length {
        found: u64,
        recorded: u64,
    },
    /// Its content does not match its digest.
    Digest,
}

/// Compares the bundles of each environment with their records, and counts those whose digests could not be verified in
/// time.
pub(super) async fn check_bundles(
    blobs: Arc<Blobs>,
    releases: Vec<BTreeMap<Version, ReleaseRecord>>,
) -> Vec<(Vec<(Version, BundleFault)>, usize)> {
    let until = Instant::now() + TIMEOUT;
    let all: Vec<usize> = releases.iter().map(BTreeMap::len).collect();
    let checked = tokio::task::spawn_blocking(move || {
        let check = |releases: BTreeMap<Version, ReleaseRecord>| {
            let (mut bad, mut unverified) = (Vec::new(), 0);
            for (version, release) in releases {
                let fault = match bundle_length_fault(&blobs, &release) {
                    Ok(None) if Instant::now() >= until => {
                        unverified += 1;
                        Ok(None)
                    }
                    Ok(None) => bundle_digest_fault(&blobs, &release),
                    found => found,
                };
                let fault = fault.unwrap_or_else(|error| Some(BundleFault::Unreadable(error.to_string())));
                bad.extend(fault.map(|fault| (version, fault)));
            }
            (bad, unverified)
        };
        releases.into_iter().map(check).collect()
    });
    // A directory on a dead network file system blocks forever.
    let checked = timeout(TIMEOUT + GRACE, checked).await.ok().and_then(Result::ok);
    checked.unwrap_or_else(|| all.into_iter().map(|releases| (Vec::new(), releases)).collect())
}

fn bundle_blob(release: &ReleaseRecord) -> &str {
    release.digest.strip_prefix("sha256:").unwrap_or(&release.digest)
}

fn bundle_length_fault(blobs: &Blobs, release: &ReleaseRecord) -> io::Result<Option<BundleFault>> {
    Ok(match blobs.size(bundle_blob(release))? {
        None => Some(BundleFault::Missing),
        Some(found) if found != release.size => Some(BundleFault::Length { found, recorded: release.size }),
        Some(_) => None,
    })
}

fn bundle_digest_fault(blobs: &Blobs, release: &ReleaseRecord) -> io::Result<Option<BundleFault>> {
    Ok((!blobs.is_intact(bundle_blob(release))?).then_some(BundleFault::Digest))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_core::names::ReplicaId;
    use muster_core::release::manifest::SignedManifest;

    use super::*;

    fn record(digest: &str, size: u64) -> ReleaseRecord {
        let signed = SignedManifest { payload: String::new(), signatures: Vec::new() };
        let (pushed, by) = (Timestamp::UNIX_EPOCH, "ann".to_owned());
        let digest = format!("sha256:{digest}");
        ReleaseRecord { content: digest.clone(), digest, serial: 1, size, signed, pushed, by, checks: None }
    }

    #[tokio::test]
    async fn unreadable_bundle_is_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Arc::new(Blobs::open(dir.path(), ReplicaId::new("one-1").unwrap()).unwrap());
        let digests = [b"v1", b"v2", b"v3"].map(|content| blobs.put(content).unwrap());
        let place = |digest: &str| dir.path().join(&digest[..2]).join(&digest[2..]);
        // The directory of its file is a file, so that it cannot be opened.
        std::fs::remove_dir_all(place(&digests[1]).parent().unwrap()).unwrap();
        std::fs::write(place(&digests[1]).parent().unwrap(), "").unwrap();
        // A directory can be opened and not read.
        std::fs::remove_file(place(&digests[2])).unwrap();
        std::fs::create_dir(place(&digests[2])).unwrap();
        let sizes = [2, 2, std::fs::metadata(place(&digests[2])).unwrap().len()];
        let releases = digests
            .iter()
            .zip(sizes)
            .zip(["v1", "v2", "v3"])
            .map(|((digest, size), version)| (Version::new(version).unwrap(), record(digest, size)));
        let checked = check_bundles(blobs, vec![releases.collect()]).await;
        let [(bad, 0)] = &checked[..] else { panic!("{checked:?}") };
        let bad: Vec<_> = bad.iter().map(|(version, fault)| (version.as_str(), fault)).collect();
        assert!(matches!(bad[..], [("v2", BundleFault::Unreadable(_)), ("v3", BundleFault::Unreadable(_))]), "{bad:?}");
    }
}
