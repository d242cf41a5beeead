//! Records that belong to no environment: users, and the open part of the audit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::audit::{NO_RECORD, SegmentRecord, claimed_hash};
use muster_core::authority::AuthorityRecord;
use muster_core::keys::ServerKey;
use muster_core::names::UserName;
use muster_core::txn::Revision;
use muster_core::user::UserRecord;

/// Keys outside of the environments, in memory.
#[derive(Clone, Debug, Default)]
pub struct ServerRecords {
    users: BTreeMap<UserName, (UserRecord, Revision)>,
    authority: Option<(AuthorityRecord, Revision)>,
    /// Lines of the audit that are in no segment yet.
    audit: BTreeMap<u64, Arc<str>>,
    segments: BTreeMap<u64, SegmentRecord>,
    /// Idempotency keys by client.
    idempotency: BTreeMap<String, BTreeSet<String>>,
}

impl ServerRecords {
    /// Applies a changed key. A value that cannot be read is treated as missing: its user has no access.
    pub(super) fn apply(&mut self, key: &str, value: Option<&[u8]>, revision: Revision) {
        let Some(parsed) = ServerKey::parse(key) else { return };
        match (parsed, value) {
            (ServerKey::User { name }, value) => match read(key, value) {
                Some(user) => drop(self.users.insert(name, (user, revision))),
                None => drop(self.users.remove(&name)),
            },
            (ServerKey::Authority, value) => self.authority = read(key, value).map(|record| (record, revision)),
            (ServerKey::AuditRecord { seq }, Some(line)) => {
                self.audit.insert(seq, String::from_utf8_lossy(line).into());
            }
            (ServerKey::AuditRecord { seq }, None) => drop(self.audit.remove(&seq)),
            (ServerKey::AuditSegment { first }, value) => match read(key, value) {
                Some(segment) => drop(self.segments.insert(first, segment)),
                None => drop(self.segments.remove(&first)),
            },
            (ServerKey::Idempotency { client, key }, Some(_)) => {
                self.idempotency.entry(client).or_default().insert(key);
            }
            (ServerKey::Idempotency { client, key }, None) => {
                if let Some(keys) = self.idempotency.get_mut(&client) {
                    keys.remove(&key);
                    if keys.is_empty() {
                        self.idempotency.remove(&client);
                    }
                }
            }
        }
    }

    pub fn users(&self) -> &BTreeMap<UserName, (UserRecord, Revision)> {
        &self.users
    }

    /// Number of idempotency keys of a client.
    pub(crate) fn idempotency_keys(&self, client: &str) -> usize {
        self.idempotency.get(client).map_or(0, BTreeSet::len)
    }

    /// The certificate authority; none before a server with TLS has started.
    pub fn authority(&self) -> Option<&(AuthorityRecord, Revision)> {
        self.authority.as_ref()
    }

    pub fn segments(&self) -> &BTreeMap<u64, SegmentRecord> {
        &self.segments
    }

    /// Lines that are in no segment, in their order. Records that were sealed and not deleted yet are left out.
    pub fn open_audit(&self) -> impl DoubleEndedIterator<Item = (u64, &Arc<str>)> {
        let sealed = self.sealed();
        self.audit.range(sealed + 1..).map(|(seq, line)| (*seq, line))
    }

    /// Records in the store, also those that are in a segment and were not deleted yet.
    pub fn stored_audit(&self) -> usize {
        self.audit.len()
    }

    /// Records that are in a segment and were not deleted yet.
    pub(crate) fn sealed_leftovers(&self) -> impl Iterator<Item = u64> {
        self.audit.range(..=self.sealed()).map(|(seq, _)| *seq)
    }

    /// Number of the last record in a segment; 0 if there is none.
    fn sealed(&self) -> u64 {
        self.segments.values().next_back().map_or(0, |segment| segment.last)
    }

    /// Number and hash of the last record. The hash of a record that was changed is what its line claims.
    pub(crate) fn audit_tail(&self) -> (u64, String) {
        let last = self.open_audit().next_back().map(|(seq, line)| (seq, claimed_hash(line).to_owned()));
        let segment = || self.segments.values().next_back().map(|segment| (segment.last, segment.hash.clone()));
        last.or_else(segment).unwrap_or_else(|| (0, NO_RECORD.to_owned()))
    }
}

fn read<T: serde::de::DeserializeOwned>(key: &str, value: Option<&[u8]>) -> Option<T> {
    let read = serde_json::from_slice(value?);
    read.inspect_err(|error| tracing::error!(key, %error, "a key cannot be read")).ok()
}
