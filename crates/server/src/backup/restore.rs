//! Restores an environment from a backup: guarded transactions that can be resumed after a crash.
//!
//! A marker is put first, and every later transaction is guarded by it: of two restores at once, the later one continues and
//! the other one fails. If the process is killed, the marker stays, and a restore of the same file completes it. The last
//! transaction removes the marker and sets the version and a new epoch: agents see nothing before everything is there, and
//! then it is newer than anything they knew.

use std::fs::File;
use std::io::{self, Seek};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::fleet::RestoreRecord;
use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::release::AllowOlder;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::{CommitOutcome, Store, StoreError};
use muster_wire::backup::{MissingPart, RestoreResponse};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::blobs::{Blobs, ReceiveError};

use super::CURRENT_VERSION;
use super::reader::{BackupItem, BackupReadError, Contents, MAX_BLOB, read};
use super::restore_plan::{ExistingKeys, OpBatch, RefusedRestore, restored_value};

/// Attempts of one write while the store is unavailable. The election of a new leader takes a second or two.
const ATTEMPTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(250);
/// Keys that may wait to be put. The reader waits when the queue is full.
const AHEAD: usize = 256;

#[derive(Debug, Error)]
pub enum RestoreError {
    #[error(transparent)]
    Refused(#[from] RefusedRestore),
    #[error("the backup cannot be read")]
    Read(#[source] BackupReadError),
    #[error("a blob of the backup cannot be stored")]
    Blobs(#[source] io::Error),
    #[error("the environment cannot be read")]
    ReadStore(#[source] StoreError),
    #[error("the environment cannot be written: it stays marked as being restored until the same restore is run again")]
    Store(#[source] StoreError),
    #[error("another restore of environment {env} has started meanwhile and replaces this one")]
    Overtaken { env: EnvName },
    #[error("the marker of the restore cannot be written")]
    Marker(#[source] serde_json::Error),
}

/// Target of a restore.
#[derive(Clone, Debug)]
pub struct RestoreTarget {
    pub store: Arc<dyn Store>,
    pub blobs: Arc<Blobs>,
    pub env: EnvName,
    /// Remove what is not in the backup.
    pub replace: bool,
    /// Restore a backup that lacks files of the design or bundles.
    pub incomplete: bool,
    /// Author of the restore, for operators who find the marker.
    pub by: String,
    pub now: Timestamp,
}

/// Progress of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreProgress {
    pub keys: usize,
    pub blobs: usize,
}

/// Computes what a restore would do. Writes nothing.
pub async fn check(file: File, contents: &Contents, target: &RestoreTarget) -> Result<RestoreResponse, RestoreError> {
    let existing = read_existing(target).await?;
    let resumed = existing.admit(&target.env, contents, target.replace)?;
    let missing_parts = missing_parts(contents, target).await?;
    let mut done =
        RestoreResponse { check: true, missing_parts, ..initial_response(contents, target, &existing, resumed) };
    done.removed = existing.surplus(contents).count();
    done.blobs = contents.ending.blobs;
    let mut reader = BackupReader::start(file, None)?;
    while let Some(found) = reader.next().await? {
        if let ReadItem::Key { key, value } = found {
            if existing.has(&key, &value) { done.unchanged += 1 } else { done.put += 1 }
        }
    }
    Ok(done)
}

/// Restores an environment from a verified backup.
pub async fn restore(
    file: File,
    contents: &Contents,
    target: &RestoreTarget,
    mut progress: impl FnMut(RestoreProgress),
) -> Result<RestoreResponse, RestoreError> {
    let keys = Keys::new(&target.env);
    let before = read_existing(target).await?;
    let resumed = before.admit(&target.env, contents, target.replace)?;
    let missing_parts = missing_parts(contents, target).await?;
    let mut done = RestoreResponse { missing_parts, ..initial_response(contents, target, &before, resumed) };
    // Counted against the state before the fence.
    done.removed = before.surplus(contents).count();
    let writer = KeyWriter { target, keys: &keys, marker: mark(target, &keys, contents, &before).await? };

    writer.delete(before.fence()).await?;
    // From here on no other process changes keys of nodes.
    let fenced = read_existing(target).await?;
    writer.delete(fenced.surplus(contents)).await?;

    let mut batch = OpBatch::default();
    let mut reader = BackupReader::start(file, Some(target.blobs.clone()))?;
    while let Some(found) = reader.next().await? {
        match found {
            ReadItem::Blob => done.blobs += 1,
            ReadItem::Key { key, value } => {
                if before.has(&key, &value) {
                    done.unchanged += 1
                } else {
                    done.put += 1
                }
                if key != CURRENT_VERSION && !fenced.has(&key, &value) {
                    let value = restored_value(&key, value, target.now);
                    writer.commit(batch.add(Op::put(format!("{}{key}", keys.prefix()), value))).await?;
                }
            }
        }
        progress(RestoreProgress { keys: done.put + done.unchanged, blobs: done.blobs });
    }
    writer.commit(batch.drain()).await?;
    let (epoch, revision) = writer.finish(contents, fenced).await?;
    Ok(RestoreResponse { epoch, revision: Some(revision), ..done })
}

fn initial_response(
    contents: &Contents,
    target: &RestoreTarget,
    existing: &ExistingKeys,
    resumed: bool,
) -> RestoreResponse {
    RestoreResponse {
        env: target.env.clone(),
        manifest: contents.manifest.clone(),
        check: false,
        resumed,
        put: 0,
        unchanged: 0,
        removed: 0,
        blobs: 0,
        missing_blobs: contents.ending.missing.len() - contents.missing_parts.len(),
        missing_parts: Vec::new(),
        epoch: existing.next_epoch(contents, target.now),
        revision: None,
    }
}

/// Parts that neither the backup nor the blob directory has. Refuses them unless the target accepts an incomplete backup.
async fn missing_parts(contents: &Contents, target: &RestoreTarget) -> Result<Vec<MissingPart>, RestoreError> {
    let (blobs, parts) = (target.blobs.clone(), contents.missing_parts.clone());
    let absent = tokio::task::spawn_blocking(move || {
        let is_absent = |part: &MissingPart| !blobs.is_intact(&part.digest).unwrap_or(false);
        parts.into_iter().filter(is_absent).collect()
    });
    let absent: Vec<MissingPart> = absent.await.map_err(|error| RestoreError::Blobs(io::Error::other(error)))?;
    if absent.is_empty() || target.incomplete {
        return Ok(absent);
    }
    Err(RefusedRestore::Incomplete { parts: absent }.into())
}

async fn read_existing(target: &RestoreTarget) -> Result<ExistingKeys, RestoreError> {
    let keys = Keys::new(&target.env);
    let range = target.store.range(keys.prefix(), None).await.map_err(RestoreError::ReadStore)?;
    Ok(ExistingKeys::from_range(&keys, range))
}

/// Puts the marker. Its revision guards all further writes.
async fn mark(
    target: &RestoreTarget,
    keys: &Keys,
    contents: &Contents,
    existing: &ExistingKeys,
) -> Result<Revision, RestoreError> {
    let digest = contents.ending.checksum.clone();
    let marker = RestoreRecord { digest, since: target.now, by: target.by.clone() };
    let text = serde_json::to_vec(&marker).map_err(RestoreError::Marker)?;
    let key = keys.restoring();
    let seen = existing.marker.as_ref().map(|(_, at)| *at);
    // An environment that is created at the same time is not overwritten.
    let txn = Txn::new()
        .guard(Guard::observed(key.clone(), seen))
        .guard(Guard::observed(keys.store_epoch(), existing.epoch_at))
        .guard(Guard::Absent { key: keys.destroying() })
        .op(Op::put(key.clone(), text.clone()));
    match commit_when_available(target.store.as_ref(), txn).await.map_err(RestoreError::Store)? {
        (CommitOutcome::Committed { revision }, _) => Ok(revision),
        (CommitOutcome::Conflict { .. }, retried) => {
            // The marker is ours if an attempt was committed whose reply was lost.
            match target.store.get(&key).await.map_err(RestoreError::ReadStore)? {
                Some(kv) if retried && kv.value == text => Ok(kv.revision),
                Some(_) | None => Err(RestoreError::Overtaken { env: target.env.clone() }),
            }
        }
    }
}

/// Commits a transaction. Retries while the store is unavailable or the outcome is unknown. Also returns whether it was retried.
async fn commit_when_available(store: &dyn Store, txn: Txn) -> Result<(CommitOutcome, bool), StoreError> {
    let mut attempt = 1;
    loop {
        match store.commit(txn.clone()).await {
            Ok(outcome) => return Ok((outcome, attempt > 1)),
            Err(error) if attempt < ATTEMPTS && is_transient(&error) => {
                tokio::time::sleep(PAUSE * attempt).await;
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns true if a retry may succeed.
fn is_transient(error: &StoreError) -> bool {
    matches!(error, StoreError::Unknown { .. } | StoreError::Unavailable { .. })
}

/// Writes while the marker is its own.
struct KeyWriter<'a> {
    target: &'a RestoreTarget,
    keys: &'a Keys,
    marker: Revision,
}

impl KeyWriter<'_> {
    async fn delete(&self, keys: impl Iterator<Item = &str>) -> Result<(), RestoreError> {
        let mut batch = OpBatch::default();
        for key in keys {
            self.commit(batch.add(Op::delete(format!("{}{key}", self.keys.prefix())))).await?;
        }
        self.commit(batch.drain()).await
    }

    async fn commit(&self, ops: Option<Vec<Op>>) -> Result<(), RestoreError> {
        let Some(ops) = ops else { return Ok(()) };
        let txn = Txn { guards: vec![self.guard()], ops };
        // A repeated commit does no harm: no other process writes these keys while the marker is there.
        match commit_when_available(self.target.store.as_ref(), txn).await.map_err(RestoreError::Store)? {
            (CommitOutcome::Committed { .. }, _) => Ok(()),
            (CommitOutcome::Conflict { .. }, _) => Err(RestoreError::Overtaken { env: self.target.env.clone() }),
        }
    }

    /// Last transaction: sets version and epoch, and removes the marker.
    async fn finish(&self, contents: &Contents, mut existing: ExistingKeys) -> Result<(u64, Revision), RestoreError> {
        let key = self.keys.current_version();
        let version = match &contents.current_version {
            Some(version) => Op::put(key, version.as_str()),
            None => Op::delete(key),
        };
        // A restore also allows the version to be older than what nodes run.
        let permission = self.keys.allow_older();
        let permission = match &contents.current_version {
            Some(version) => {
                let allowed = AllowOlder { version: version.clone(), by: "restore".into() };
                Op::put_json(permission, &allowed).map_err(RestoreError::Marker)?
            }
            None => Op::delete(permission),
        };
        let mut unsure = None;
        for attempt in 1..=ATTEMPTS {
            let epoch = existing.next_epoch(contents, self.target.now);
            let txn = Txn::new()
                .guard(self.guard())
                .guard(Guard::observed(self.keys.store_epoch(), existing.epoch_at))
                .op(version.clone())
                .op(permission.clone())
                .op(Op::put(self.keys.store_epoch(), epoch.to_string()))
                .op(Op::delete(self.keys.restoring()));
            match self.target.store.commit(txn).await {
                Ok(CommitOutcome::Committed { revision }) => return Ok((epoch, revision)),
                Ok(CommitOutcome::Conflict { .. }) => {
                    existing = read_existing(self.target).await?;
                    match (&existing.marker, existing.epoch_at, unsure) {
                        // An agent that knew a later epoch has started a new one: ours must be later still.
                        (Some((_, at)), ..) if *at == self.marker => {}
                        // The attempt whose reply was lost was committed.
                        (None, Some(at), Some(epoch)) if existing.epoch == epoch => return Ok((epoch, at)),
                        (Some(_) | None, ..) => break,
                    }
                }
                Err(error) if attempt < ATTEMPTS && is_transient(&error) => {
                    unsure = Some(epoch);
                    tokio::time::sleep(PAUSE * attempt).await;
                }
                Err(error) => return Err(RestoreError::Store(error)),
            }
        }
        Err(RestoreError::Overtaken { env: self.target.env.clone() })
    }

    fn guard(&self) -> Guard {
        Guard::Unchanged { key: self.keys.restoring(), since: self.marker }
    }
}

/// Reads the file on its own thread, and stores the blobs on the way.
struct BackupReader {
    found: mpsc::Receiver<ReadItem>,
    reading: Option<tokio::task::JoinHandle<Result<(), RestoreError>>>,
}

/// An item of the file.
enum ReadItem {
    Key { key: String, value: Vec<u8> },
    Blob,
}

impl BackupReader {
    fn start(mut file: File, blobs: Option<Arc<Blobs>>) -> Result<Self, RestoreError> {
        file.rewind().map_err(|error| RestoreError::Read(BackupReadError::Io(error)))?;
        let (sender, found) = mpsc::channel(AHEAD);
        let reading = tokio::task::spawn_blocking(move || {
            let mut failed = None;
            let taken = read(file, |item| {
                let found = match item {
                    BackupItem::Key { key, value } => ReadItem::Key { key, value },
                    BackupItem::Blob { content } => {
                        if let Some(Err(error)) = blobs.as_ref().map(|blobs| blobs.put(&content)) {
                            failed = Some(error);
                            return Err(BackupReadError::Stopped);
                        }
                        ReadItem::Blob
                    }
                    BackupItem::LargeBlob { digest, content } => {
                        if let Some(Err(error)) = blobs.as_ref().map(|blobs| blobs.keep_all(digest, MAX_BLOB, content))
                        {
                            failed = Some(not_kept(error));
                            return Err(BackupReadError::Stopped);
                        }
                        ReadItem::Blob
                    }
                };
                sender.blocking_send(found).map_err(|_| BackupReadError::Stopped)
            });
            match (failed, taken) {
                (Some(error), Ok(_) | Err(BackupReadError::Stopped)) => Err(RestoreError::Blobs(error)),
                (_, Err(error)) => Err(RestoreError::Read(error)),
                (None, Ok(_)) => Ok(()),
            }
        });
        Ok(Self { found, reading: Some(reading) })
    }

    /// Next item; none at the end of a complete file.
    async fn next(&mut self) -> Result<Option<ReadItem>, RestoreError> {
        if let Some(found) = self.found.recv().await {
            return Ok(Some(found));
        }
        match self.reading.take() {
            None => Ok(None),
            Some(reading) => match reading.await {
                Ok(ended) => ended.map(|()| None),
                Err(panicked) => Err(RestoreError::Read(BackupReadError::Io(io::Error::other(panicked)))),
            },
        }
    }
}

fn not_kept(error: ReceiveError) -> io::Error {
    match error {
        ReceiveError::Io(error) => error,
        ReceiveError::TooLarge { .. } | ReceiveError::Another { .. } => io::Error::other(error),
    }
}
