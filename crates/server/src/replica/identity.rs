//! The id of a replica, and its record in the store.

use std::hash::{BuildHasher, RandomState};

use jiff::Timestamp;
use muster_core::names::{NameError, ReplicaId, SecretKeyId};
use muster_core::replica::{BlobsMark, ReplicaRecord};
use thiserror::Error;

use crate::blobs::BlobPlace;

/// Characters of the host name in an id: leaves room for the digits in the longest legal id.
const MAX_HOST: usize = 40;

/// Error while the identity of a replica is made.
#[derive(Debug, Error)]
pub enum IdentityError {
    #[error("no replica id can be made from the host name")]
    Name(#[from] NameError),
    #[error("the record of this replica cannot be encoded")]
    Record(#[from] serde_json::Error),
}

/// Identity of one start of a server.
#[derive(Clone, Debug)]
pub struct Identity {
    pub id: ReplicaId,
    pub record: ReplicaRecord,
    /// The record as it is stored.
    pub(crate) text: Vec<u8>,
}

impl Identity {
    /// Makes a new identity for a server with a URL and a place of blobs.
    pub(crate) fn new(url: String, blobs: &BlobPlace, now: Timestamp) -> Result<Self, IdentityError> {
        let host = host();
        let id = new_id(&host)?;
        let directory = blobs.absolute();
        let record = ReplicaRecord {
            url,
            host,
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since: now,
            blobs: BlobsMark { directory, nonce: nonce() },
            secret_keys: Vec::new(),
            authorities: Vec::new(),
        };
        let text = serde_json::to_vec(&record)?;
        Ok(Self { id, record, text })
    }

    pub(crate) fn set_secret_keys(&mut self, keys: Vec<SecretKeyId>) -> Result<(), IdentityError> {
        self.record.secret_keys = keys;
        self.text = serde_json::to_vec(&self.record)?;
        Ok(())
    }
}

/// The host name of this machine. It is informational: without one the server starts all the same.
pub(crate) fn host() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = read.trim();
    if host.is_empty() { "unknown".to_owned() } else { host.to_owned() }
}

/// Makes an id. Each start is a new replica, so that nothing that an earlier one left is mistaken for its own.
pub(crate) fn new_id(host: &str) -> Result<ReplicaId, NameError> {
    let digits = random() & 0xff_ffff;
    ReplicaId::new(format!("{}-{digits:06x}", as_segment(host)))
}

/// Sixteen random digits.
fn nonce() -> String {
    format!("{:016x}", random())
}

/// Random enough to distinguish processes: the standard library seeds its hashers from the system's randomness.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

fn as_segment(host: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let text: String = host.chars().map(legal).take(MAX_HOST).collect();
    let text = text.trim_matches('-');
    if text.is_empty() { "server".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_legal_and_new_at_each_start() {
        for (host, begin) in [
            ("ctl1", "ctl1-"),
            ("CTL1.example.org", "ctl1-example-org-"),
            ("", "server-"),
            ("___", "server-"),
            ("ä", "server-"),
            (&"x".repeat(300), "xxxx"),
        ] {
            let (one, other) = (new_id(host).unwrap(), new_id(host).unwrap());
            assert!(one.as_str().starts_with(begin), "{one}");
            assert_ne!(one, other);
        }
    }
}
