//! What a replica is called, and what it says of itself.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::Path;

use jiff::Timestamp;
use muster_core::names::{NameError, ReplicaId};
use muster_core::replica::{BlobsMark, ReplicaRecord};
use thiserror::Error;

/// Leaves room for the digits in the longest legal id.
const LONGEST_HOST: usize = 40;

/// Why a server cannot say who it is.
#[derive(Debug, Error)]
pub enum IdentityError {
    #[error("no name for this server can be made")]
    Name(#[from] NameError),
    #[error("what this server says of itself cannot be written")]
    Record(#[from] serde_json::Error),
}

/// One start of a server.
#[derive(Clone, Debug)]
pub struct Identity {
    pub id: ReplicaId,
    pub record: ReplicaRecord,
    /// The record as it stands in the store.
    pub(crate) text: Vec<u8>,
}

impl Identity {
    /// This start of this server, which answers at an address and keeps its blobs in a directory.
    pub(crate) fn new(address: SocketAddr, blobs: &Path, now: Timestamp) -> Result<Self, IdentityError> {
        let host = host();
        let id = new_id(&host)?;
        let directory = std::path::absolute(blobs).unwrap_or_else(|_| blobs.to_owned()).display().to_string();
        let record = ReplicaRecord {
            url: format!("http://{address}"),
            host,
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since: now,
            blobs: BlobsMark { directory, nonce: nonce() },
        };
        let text = serde_json::to_vec(&record)?;
        Ok(Self { id, record, text })
    }
}

/// The name of this machine, for people; an unknown one is no reason not to start.
pub(crate) fn host() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = read.trim();
    if host.is_empty() { "unknown".to_owned() } else { host.to_owned() }
}

/// A new id: another start is another replica, so that nothing that the last one left is taken for ours.
pub(crate) fn new_id(host: &str) -> Result<ReplicaId, NameError> {
    let digits = random() & 0xff_ffff;
    ReplicaId::new(format!("{}-{digits:06x}", as_segment(host)))
}

/// Sixteen digits that nobody else has.
fn nonce() -> String {
    format!("{:016x}", random())
}

/// Random enough to tell processes apart: the standard library seeds its hashers from the system's randomness.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

fn as_segment(host: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let text: String = host.chars().map(legal).take(LONGEST_HOST).collect();
    let text = text.trim_matches('-');
    if text.is_empty() { "server".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_gives_a_legal_id_and_every_start_another_one() {
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
