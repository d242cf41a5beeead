//! Decides whether a restore may begin, and what it writes. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use muster_core::fleet::{DestroyRecord, RestoreRecord};
use muster_core::identity::CertificateRecord;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, Version};
use muster_core::node::leaders::LeaderRecord;
use muster_core::txn::{Op, Revision};
use muster_store::KeyRange;
use muster_wire::backup::MissingPart;
use thiserror::Error;

use super::reader::Contents;
use super::{CURRENT_VERSION, DESTROYING, EPOCH, RESTORING, is_kept};

/// Operations of one transaction. The store takes 128; the rest is room for guards.
const BATCH_OPS: usize = 100;
/// Bytes of one transaction, well below a megabyte: etcd replicates it as one message.
const BATCH_BYTES: usize = 512 * 1024;

const LEADERS: &str = "leaders/";
const CERTIFICATES: &str = "certificates/";

/// Reason why a restore is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RefusedRestore {
    #[error("environment {env} already exists, with {nodes} nodes{}", at(version))]
    Exists { env: EnvName, nodes: usize, version: Option<Version> },
    #[error("environment {env} is being restored from another backup since {since}, by {by}")]
    AnotherRestore { env: EnvName, since: Timestamp, by: String },
    #[error("environment {env} is being destroyed since {since}, by {by}")]
    Destroying { env: EnvName, since: Timestamp, by: String },
    #[error("the backup is incomplete: it lacks {}", names(parts))]
    Incomplete { parts: Vec<MissingPart> },
}

/// Names of missing parts that are listed. A design can have hundreds of files.
const LISTED: usize = 10;

fn names(parts: &[MissingPart]) -> String {
    let listed: Vec<String> = parts.iter().take(LISTED).map(MissingPart::to_string).collect();
    let more = parts.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", listed.join(", "))
}

fn at(version: &Option<Version>) -> String {
    version.as_ref().map(|version| format!(" at version {version}")).unwrap_or_default()
}

/// Keys of the environment before a restore, without its prefix.
#[derive(Debug)]
pub(super) struct ExistingKeys {
    pub(super) kept: BTreeMap<String, Bytes>,
    pub(super) marker: Option<(RestoreRecord, Revision)>,
    pub(super) destroying: Option<DestroyRecord>,
    pub(super) epoch: u64,
    pub(super) epoch_at: Option<Revision>,
}

impl ExistingKeys {
    pub(super) fn from_range(keys: &Keys, range: KeyRange) -> Self {
        let mut existing = Self { kept: BTreeMap::new(), marker: None, destroying: None, epoch: 0, epoch_at: None };
        for kv in range.kvs {
            let Some(key) = kv.key.strip_prefix(keys.prefix()) else { continue };
            if key == RESTORING {
                // A marker that cannot be parsed still counts: of a restore that cannot be completed.
                existing.marker = Some((serde_json::from_slice(&kv.value).unwrap_or_default(), kv.revision));
            } else if key == DESTROYING {
                existing.destroying = Some(serde_json::from_slice(&kv.value).unwrap_or_default());
            } else if key == EPOCH {
                existing.epoch = std::str::from_utf8(&kv.value).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
                existing.epoch_at = Some(kv.revision);
            } else if is_kept(key) && kv.lease.is_none() {
                existing.kept.insert(key.to_owned(), kv.value);
            }
        }
        existing
    }

    /// Checks whether the restore may begin. Returns whether it resumes an interrupted one.
    pub(super) fn admit(&self, env: &EnvName, contents: &Contents, replace: bool) -> Result<bool, RefusedRestore> {
        if let Some(DestroyRecord { since, by }) = self.destroying.clone() {
            return Err(RefusedRestore::Destroying { env: env.clone(), since, by });
        }
        match &self.marker {
            Some((marker, _)) if marker.digest == contents.ending.checksum => Ok(true),
            _ if replace => Ok(false),
            Some((marker, _)) => {
                let RestoreRecord { since, by, .. } = marker.clone();
                Err(RefusedRestore::AnotherRestore { env: env.clone(), since, by })
            }
            None if self.kept.is_empty() && self.epoch_at.is_none() => Ok(false),
            None => {
                let nodes = self.kept.keys().filter(|key| key.starts_with("nodes/")).count();
                let version = self.kept.get(CURRENT_VERSION).and_then(|text| std::str::from_utf8(text).ok());
                let version = version.and_then(|text| Version::new(text).ok());
                Err(RefusedRestore::Exists { env: env.clone(), nodes, version })
            }
        }
    }

    /// Keys that are deleted first. Every report is guarded by `nodes/<node>`, and every other change of a node by
    /// `observed/<node>`: without these keys nothing that began before the restore can be committed.
    pub(super) fn fence(&self) -> impl Iterator<Item = &str> {
        self.kept.keys().map(String::as_str).filter(|key| key.starts_with("nodes/") || key.starts_with("observed/"))
    }

    /// Keys that the backup does not hold. The current version is changed at the very end.
    pub(super) fn surplus<'a>(&'a self, contents: &'a Contents) -> impl Iterator<Item = &'a str> {
        let held = |key: &str| contents.keys.binary_search_by(|held| held.as_str().cmp(key)).is_ok();
        let kept = |key: &str| key == CURRENT_VERSION || key.starts_with(CERTIFICATES);
        self.kept.keys().map(String::as_str).filter(move |key| !kept(key) && !held(key))
    }

    /// Returns true if the key needs no write: it has the same value as in the backup, or it is the identity of a machine. A backup
    /// must not bring a revoked or replaced key back.
    pub(super) fn has(&self, key: &str, value: &[u8]) -> bool {
        self.kept.get(key).is_some_and(|existing| *existing == value || key.starts_with(CERTIFICATES))
    }

    /// Epoch of the restored environment: later than any epoch of the store or of a leader that an agent may know. Leaders are
    /// elected at this epoch or a later one.
    pub(super) fn next_epoch(&self, contents: &Contents, now: Timestamp) -> u64 {
        let now = u64::try_from(now.as_second()).unwrap_or(0);
        let leaders = self
            .kept
            .iter()
            .filter(|(key, _)| key.starts_with(LEADERS))
            .filter_map(|(_, value)| serde_json::from_slice::<LeaderRecord>(value).ok().map(|leader| leader.epoch));
        let known = leaders.chain([contents.manifest.epoch, self.epoch]).max().unwrap_or(0);
        now.max(known.saturating_add(1))
    }
}

/// The value of a key as it is restored. Machines have renewed their certificates since the backup: they must be able to renew
/// them again.
pub(super) fn restored_value(key: &str, value: Vec<u8>, now: Timestamp) -> Vec<u8> {
    let record = key.starts_with(CERTIFICATES).then(|| serde_json::from_slice::<CertificateRecord>(&value).ok());
    let Some(Some(record)) = record else { return value };
    let record = CertificateRecord { expires: record.expires.max(now), ..record };
    serde_json::to_vec(&record).unwrap_or(value)
}

/// Collects operations for one transaction.
#[derive(Debug, Default)]
pub(super) struct OpBatch {
    ops: Vec<Op>,
    bytes: usize,
}

impl OpBatch {
    /// Adds an operation. Returns the batch that must be committed before it.
    pub(super) fn add(&mut self, op: Op) -> Option<Vec<Op>> {
        let bytes = match &op {
            Op::Put { key, value, .. } => key.len() + value.len(),
            Op::Delete { key } => key.len(),
        };
        let full = self.ops.len() >= BATCH_OPS || self.bytes + bytes > BATCH_BYTES;
        let before = if full { self.drain() } else { None };
        self.ops.push(op);
        self.bytes += bytes;
        before
    }

    /// Removes and returns the operations; none if there are none.
    pub(super) fn drain(&mut self) -> Option<Vec<Op>> {
        self.bytes = 0;
        let ops = std::mem::take(&mut self.ops);
        (!ops.is_empty()).then_some(ops)
    }
}
