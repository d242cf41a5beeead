//! Creates a backup: the keys of an environment, and the blobs that they refer to.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{self, Write};

use jiff::Timestamp;
use muster_core::design::{DesignRevision, DesignRevisionRecord};
use muster_core::keys::{self, Key, Keys};
use muster_core::names::{EnvName, Version};
use muster_core::release::ReleaseRecord;
use muster_core::report::record::{ObservedRecord, PastRun, RunList, StatusLeaf};
use muster_core::rollout::record::RolloutRecord;
use muster_store::{KeyValue, Store, StoreError};
use muster_wire::backup::{BackupManifest, BackupTrailer, MissingPart};
use thiserror::Error;

use crate::blobs::report_packs::blob_of;
use crate::blobs::{Blobs, is_digest, is_unavailable};
use crate::design::tree::add_references;

use super::writer::{Archive, BackupWriteError};
use super::{CURRENT_VERSION, DESTROYING, EPOCH, FORMAT, HELD, RESTORING, is_kept};

#[derive(Debug, Error)]
pub enum BackupError {
    #[error("the environment cannot be read")]
    Store(#[source] StoreError),
    #[error("environment {env} does not exist in the store")]
    Nothing { env: EnvName },
    #[error("environment {env} is being restored: its keys are a mix of two states")]
    Restoring { env: EnvName },
    #[error("environment {env} is being destroyed: only a part of it is left")]
    Destroying { env: EnvName },
}

/// Keys of an environment at one revision. They are in memory, as in every server; the blobs are many times larger, and are
/// not.
#[derive(Debug)]
pub struct Backup {
    pub manifest: BackupManifest,
    prefix: String,
    kvs: Vec<KeyValue>,
    named: BlobRefs,
}

/// A complete backup.
#[derive(Debug)]
pub struct WrittenBackup<W> {
    pub ending: BackupTrailer,
    pub to: W,
}

/// Reads an environment at one revision.
pub async fn read_environment(store: &dyn Store, env: &EnvName, now: Timestamp) -> Result<Backup, BackupError> {
    let keys = Keys::new(env);
    let range = store.range(keys.prefix(), None).await.map_err(BackupError::Store)?;
    let prefix = keys.prefix().to_owned();
    let find = |name: &str| range.kvs.iter().find(|kv| kv.key.strip_prefix(&prefix) == Some(name));
    if find(RESTORING).is_some() {
        return Err(BackupError::Restoring { env: env.clone() });
    }
    if find(DESTROYING).is_some() {
        return Err(BackupError::Destroying { env: env.clone() });
    }
    let text = |name: &str| find(name).and_then(|kv| std::str::from_utf8(&kv.value).ok());
    let epoch = text(EPOCH).and_then(|text| text.parse().ok()).unwrap_or(0);
    let current_version = text(CURRENT_VERSION).and_then(|text| Version::new(text).ok());

    let mut kvs = range.kvs;
    kvs.retain(|kv| kv.lease.is_none() && kv.key.strip_prefix(&prefix).is_some_and(is_kept));
    if kvs.is_empty() && epoch == 0 {
        return Err(BackupError::Nothing { env: env.clone() });
    }
    let mut named = BlobRefs::default();
    kvs.iter().for_each(|kv| named.add(&kv.key, &kv.value));
    let nodes = kvs.iter().filter(|kv| kv.key[prefix.len()..].starts_with("nodes/")).count();
    let manifest = BackupManifest {
        format: FORMAT,
        env: env.clone(),
        revision: range.revision,
        epoch,
        taken: now,
        muster: env!("CARGO_PKG_VERSION").to_owned(),
        current_version,
        nodes,
        keys: kvs.len(),
        blobs: named.needed().len(),
    };
    Ok(Backup { manifest, prefix, kvs, named })
}

impl Backup {
    /// Writes the backup, with one small blob or a piece of a large one in memory. Blocks.
    ///
    /// A log that has just left the history counts as missing, like a lost blob. The ending lists both, and
    /// [`Contents::missing_parts`](super::Contents::missing_parts) tells them apart.
    pub fn write<W: Write>(self, blobs: &Blobs, to: W) -> Result<WrittenBackup<W>, BackupWriteError> {
        let Self { mut manifest, prefix, kvs, mut named } = self;
        named.expand(blobs);
        let needed = named.needed();
        manifest.blobs = needed.len();
        let mut archive = Archive::begin(to, &manifest)?;
        for kv in kvs {
            archive.key(kv.key.strip_prefix(&prefix).unwrap_or(&kv.key), &kv.value)?;
        }
        let mut missing = Vec::new();
        for digest in needed.union(&named.welcome) {
            if !add(&mut archive, blobs, digest)? && needed.contains(digest) {
                missing.push(digest.clone());
            }
        }
        let (ending, to) = archive.end(missing)?;
        Ok(WrittenBackup { ending, to })
    }
}

/// A file that cannot be read counts as damaged, and the rest is backed up. Without an answer of S3 nothing would be.
fn present<T>(found: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match found {
        Err(error) if !is_unavailable(&error) => Ok(None),
        found => found,
    }
}

/// Adds a blob; false if it is missing or damaged.
fn add<W: Write>(archive: &mut Archive<W>, blobs: &Blobs, digest: &str) -> Result<bool, BackupWriteError> {
    let Some(stored) = present(blobs.stored(digest))? else { return Ok(false) };
    if stored.size() <= HELD {
        let Some(content) = present(blobs.find(digest))? else { return Ok(false) };
        archive.blob(digest, &content)?;
        return Ok(true);
    }
    // Read twice: the content must be verified before it is written, and its size comes first.
    if present(blobs.is_intact(digest).map(Some))? != Some(true) {
        return Ok(false);
    }
    archive.large_blob(digest, &*stored)?;
    Ok(true)
}

/// References to blobs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BlobRefs {
    /// Blobs of the runs in the history, and plans and outcomes of rollouts. Without one the rest can be used.
    logs: BTreeSet<String>,
    /// Optional: a status can outlive the log of the run that it began with.
    welcome: BTreeSet<String>,
    /// Bundles, with their releases.
    bundles: BTreeMap<String, Version>,
    /// Manifests of the design's revisions; reading them yields further references.
    manifests: BTreeMap<String, DesignRevision>,
    /// Files that the manifests name.
    files: BTreeSet<String>,
}

impl BlobRefs {
    /// All blobs that must be in a backup.
    fn needed(&self) -> BTreeSet<String> {
        let parts = self.bundles.keys().chain(self.manifests.keys()).chain(&self.files);
        self.logs.iter().chain(parts).cloned().collect()
    }

    /// The missing blobs without which a restored environment cannot be used: all but logs.
    pub(super) fn missing_parts(&self, missing: &[String]) -> Vec<MissingPart> {
        let part = |digest: &String| {
            let part = match (self.bundles.get(digest), self.manifests.get(digest)) {
                (Some(version), _) => format!("the bundle of release {version}"),
                (None, Some(revision)) => format!("revision {revision} of the design"),
                (None, None) if self.logs.contains(digest) => return None,
                (None, None) => "a file of the design".to_owned(),
            };
            Some(MissingPart { digest: digest.clone(), part })
        };
        missing.iter().filter_map(part).collect()
    }

    /// Reads the manifests, and adds their references. A manifest that cannot be read is reported as missing.
    fn expand(&mut self, blobs: &Blobs) {
        let mut named = HashSet::new();
        for manifest in self.manifests.keys() {
            if let Err(error) = add_references(blobs, manifest, &mut named) {
                tracing::warn!(%error, "a revision of the design is incomplete");
            }
        }
        self.files.extend(named);
    }

    fn add_reports(&mut self, places: impl Iterator<Item = String>) {
        self.logs.extend(places.map(|place| blob_of(&place).to_owned()));
    }

    /// Adds the references of a key. A key that cannot be parsed has none.
    pub(super) fn add(&mut self, key: &str, value: &[u8]) {
        match keys::parse(key).map(|(_, key)| key) {
            Some(Key::PastRun { .. }) => {
                let past: Option<PastRun> = serde_json::from_slice(value).ok();
                self.add_reports(past.into_iter().flat_map(|past| past.logs));
            }
            Some(Key::RunList { .. }) => {
                let list: RunList = serde_json::from_slice(value).unwrap_or_default();
                self.add_reports(list.0.into_iter().flat_map(|past| past.logs));
            }
            Some(Key::Observed { .. }) => {
                let observed: ObservedRecord = serde_json::from_slice(value).unwrap_or_default();
                let earlier = observed.open.into_iter().flat_map(|open| open.logs);
                let earlier = earlier.chain(observed.failure.and_then(|failure| failure.log));
                self.add_reports(earlier.chain(observed.last.and_then(|last| last.log)));
            }
            Some(Key::DesignRevision { revision }) => {
                let record: Option<DesignRevisionRecord> = serde_json::from_slice(value).ok();
                self.manifests.extend(record.map(|record| (record.manifest, revision)));
            }
            Some(Key::Release { version }) => {
                let record: Option<ReleaseRecord> = serde_json::from_slice(value).ok();
                let bundle = record.and_then(|record| record.digest.strip_prefix("sha256:").map(str::to_owned));
                self.bundles.extend(bundle.filter(|digest| is_digest(digest)).map(|digest| (digest, version)));
            }
            Some(Key::Rollout { .. }) => {
                let record: Option<RolloutRecord> = serde_json::from_slice(value).ok();
                self.logs.extend(record.into_iter().flat_map(|record| [Some(record.plan), record.outcome]).flatten());
            }
            Some(Key::Status { .. }) => {
                let leaf: Option<StatusLeaf> = serde_json::from_slice(value).ok();
                // Of an earlier version. Now it is a path, and the history names the blob.
                self.welcome.extend(leaf.and_then(|leaf| leaf.log).filter(|log| is_digest(log)));
            }
            Some(
                Key::StoreEpoch
                | Key::Restoring
                | Key::Destroying
                | Key::DesignHead
                | Key::DesignApplied
                | Key::CurrentVersion
                | Key::RunningVersion { .. }
                | Key::Provisioned { .. }
                | Key::ActiveRole { .. }
                | Key::Node { .. }
                | Key::Machine { .. }
                | Key::Policy { .. }
                | Key::SelfValues { .. }
                | Key::AllowOlder
                | Key::Trust
                | Key::Leader { .. }
                | Key::Published { .. }
                | Key::Datum { .. }
                | Key::Pause { .. }
                | Key::RunRequest { .. }
                | Key::ActiveRollout
                | Key::Desired { .. }
                | Key::Presence { .. }
                | Key::Token { .. }
                | Key::Certificate { .. }
                | Key::Replica { .. }
                | Key::Controller { .. }
                | Key::Unknown,
            )
            | None => {}
        }
    }
}
