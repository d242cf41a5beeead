//! The audit: one record for each change by a person and each decision of a controller, linked by hashes.
//!
//! A record is stored as one line of JSON that ends with the SHA-256 of the line without it. Each record also has the hash of
//! the record before it. A record that was changed, removed or moved no longer fits, which [`ChainCheck`] finds.

mod changes;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use thiserror::Error;
use utoipa::ToSchema;

use crate::names::{EnvName, NodeName, ReplicaId, TokenId, UserName};
use crate::release::dir::hex;
use crate::replica::ControllerName;

pub use changes::{ChangedKey, DividedChanges, divide};

/// `previous` of the first record.
pub const NO_RECORD: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// Longest value in a record, in bytes.
const LONGEST_VALUE: usize = 4 * 1024;

/// One record, as `muster audit` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// Number of the record. There are no gaps.
    pub seq: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// None if it concerns the whole server, such as a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<EnvName>,
    pub actor: Actor,
    /// Address of the client, `unix socket`, or the replica of a controller.
    pub from: String,
    /// Operation of the API, or name of the controller.
    pub action: String,
    /// Keys that were changed.
    pub changes: Vec<AuditChange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// `x-request-id` of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Hash of the record before.
    pub previous: String,
}

/// Person or part of Muster that made a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Actor {
    User {
        name: UserName,
    },
    /// The server's own token or Unix socket. The name is what the client states.
    Administrator {
        name: String,
    },
    /// A machine that joins.
    Machine {
        token: Option<TokenId>,
    },
    Node {
        node: NodeName,
    },
    Replica,
    Controller {
        name: ControllerName,
        replica: ReplicaId,
    },
}

impl Actor {
    /// Name for lists and filters.
    pub fn name(&self) -> String {
        match self {
            Actor::User { name } => name.to_string(),
            Actor::Administrator { name } => name.clone(),
            Actor::Machine { token: Some(token) } => format!("token {token}"),
            Actor::Machine { token: None } => "machine".to_owned(),
            Actor::Node { node } => node.to_string(),
            Actor::Replica => "replica".to_owned(),
            Actor::Controller { name, .. } => format!("controller {name}"),
        }
    }
}

/// A key before and after a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditChange {
    /// The key, without `/muster/`.
    pub key: String,
    /// None if the key did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<AuditValue>,
    /// None if the key was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<AuditValue>,
}

/// Value of a key, without secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditValue {
    Value(Value),
    /// A value that is too long for the record: its SHA-256.
    Digest(String),
}

impl AuditValue {
    /// Value for a record: JSON without secrets, or text.
    pub fn of(bytes: &[u8]) -> Self {
        let parsed = serde_json::from_slice(bytes).map(without_secrets);
        let value = parsed.unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()));
        let is_long = bytes.len() > LONGEST_VALUE;
        if is_long { AuditValue::Digest(hex(&Sha256::digest(value.to_string()))) } else { AuditValue::Value(value) }
    }

    /// The digest of a value that is longer than one.
    fn shortened(&self) -> Self {
        if let AuditValue::Value(value) = self {
            let text = value.to_string();
            let digest = hex(&Sha256::digest(&text));
            if text.len() > digest.len() {
                return AuditValue::Digest(digest);
            }
        }
        self.clone()
    }
}

/// Removes hashes of tokens and values of secret data, at every depth.
fn without_secrets(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let is_secret = fields.get("secret") == Some(&Value::Bool(true));
            let kept = fields
                .into_iter()
                .filter(|(name, _)| name != "hash" && !(is_secret && (name == "value" || name == "sealed")));
            Value::Object(kept.map(|(name, value)| (name, without_secrets(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_secrets).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

impl AuditRecord {
    /// Returns whether the record changed a key of a node.
    pub fn concerns(&self, node: &NodeName) -> bool {
        let of_node = |change: &AuditChange| change.key.split('/').any(|segment| segment == node.as_str());
        self.changes.iter().any(of_node)
    }

    /// The line to store, and its hash.
    pub fn seal(&self) -> Result<SealedRecord, serde_json::Error> {
        let mut text = serde_json::to_string(self)?;
        let hash = hex(&Sha256::digest(&text));
        text.pop();
        Ok(SealedRecord { line: format!("{text}{HASH}{hash}\"}}"), hash })
    }
}

/// Text between the record and its hash.
const HASH: &str = ",\"hash\":\"";

/// The line of a record, and its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedRecord {
    pub line: String,
    pub hash: String,
}

/// Error: a line is not a record, or was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the record was changed: its hash does not fit")]
pub struct ChangedRecord;

/// Reads a line, and compares it with its hash.
pub fn open(line: &str) -> Result<(AuditRecord, String), ChangedRecord> {
    let (record, hash) = line.rsplit_once(HASH).ok_or(ChangedRecord)?;
    let (record, hash) = (format!("{record}}}"), hash.strip_suffix("\"}").ok_or(ChangedRecord)?);
    if hex(&Sha256::digest(&record)) != hash {
        return Err(ChangedRecord);
    }
    let parsed = serde_json::from_str(&record).map_err(|_| ChangedRecord)?;
    Ok((parsed, hash.to_owned()))
}

/// The hash that a line claims to have, which is wrong if the line was changed.
pub fn claimed_hash(line: &str) -> &str {
    line.rsplit('"').nth(1).unwrap_or_default()
}

/// A defect of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize, ToSchema)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum AuditProblem {
    #[error("record {seq} was changed")]
    Changed { seq: u64 },
    #[error("records {first} to {last} are missing")]
    Missing { first: u64, last: u64 },
    #[error("record {found} is in the place of record {seq}")]
    Moved { seq: u64, found: u64 },
    #[error("record {seq} does not follow the record before it: one of them was replaced")]
    Replaced { seq: u64 },
    #[error("no record has the expected hash: records were replaced")]
    UnknownHash,
    #[error("the segment of records {first} to {last} is missing or damaged ({digest})")]
    Segment { first: u64, last: u64, digest: String },
}

/// Checks records in their order.
#[derive(Clone, Debug)]
pub struct ChainCheck {
    next: u64,
    /// Hash of the last record; none after a defect, which is reported once.
    previous: Option<String>,
    pub records: u64,
    pub problems: Vec<AuditProblem>,
}

impl Default for ChainCheck {
    fn default() -> Self {
        Self { next: 1, previous: Some(NO_RECORD.to_owned()), records: 0, problems: Vec::new() }
    }
}

impl ChainCheck {
    /// Checks the record that is stored at the place `seq`.
    pub fn add(&mut self, seq: u64, line: &str) {
        if seq > self.next {
            self.problems.push(AuditProblem::Missing { first: self.next, last: seq - 1 });
            self.previous = None;
        }
        self.next = seq + 1;
        self.records += 1;
        let opened = open(line);
        match &opened {
            Err(ChangedRecord) => self.problems.push(AuditProblem::Changed { seq }),
            Ok((record, _)) if record.seq != seq => {
                self.problems.push(AuditProblem::Moved { seq, found: record.seq });
            }
            Ok((record, _)) if self.previous.as_ref().is_some_and(|previous| *previous != record.previous) => {
                self.problems.push(AuditProblem::Replaced { seq });
            }
            Ok(_) => {}
        }
        self.previous = opened.ok().filter(|(record, _)| record.seq == seq).map(|(_, hash)| hash);
    }

    /// A segment whose records cannot be read. Its last hash is known from its key.
    pub fn lost_segment(&mut self, segment: &SegmentRecord) {
        let SegmentRecord { first, last, digest, hash, .. } = segment.clone();
        self.problems.push(AuditProblem::Segment { first, last, digest });
        self.next = last + 1;
        self.previous = Some(hash);
    }

    /// The last record that must exist, such as the one of a hash that was kept elsewhere.
    pub fn last(&self) -> (u64, Option<&str>) {
        (self.next - 1, self.previous.as_deref())
    }
}

/// `audit_segments/<first>`: records that were moved into a blob, one line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SegmentRecord {
    pub first: u64,
    pub last: u64,
    /// Time of the last record.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// Name of the blob.
    pub digest: String,
    /// Hash of the last record.
    pub hash: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(seq: u64, previous: &str) -> AuditRecord {
        AuditRecord {
            seq,
            at: Timestamp::UNIX_EPOCH,
            env: Some(EnvName::new("prod").unwrap()),
            actor: Actor::User { name: UserName::new("ann").unwrap() },
            from: "10.0.0.9".to_owned(),
            action: "set_datum".to_owned(),
            changes: vec![AuditChange {
                key: "prod/data/host/web1/a".to_owned(),
                before: None,
                after: Some(AuditValue::of(br#"{"value":0.1,"message":"why, \"hash\":\"x"}"#)),
            }],
            why: None,
            request: Some("r".to_owned()),
            previous: previous.to_owned(),
        }
    }

    fn chain(length: u64) -> Vec<String> {
        let mut previous = NO_RECORD.to_owned();
        let seal = |seq| {
            let SealedRecord { line, hash } = record(seq, &previous).seal().unwrap();
            previous = hash;
            line
        };
        (1..=length).map(seal).collect()
    }

    fn problems<'a>(lines: impl IntoIterator<Item = (u64, &'a String)>) -> Vec<AuditProblem> {
        let mut check = ChainCheck::default();
        lines.into_iter().for_each(|(seq, line)| check.add(seq, line));
        check.problems
    }

    #[test]
    fn changed_missing_and_moved_records_are_found() {
        let lines = chain(5);
        assert_eq!(problems((1..).zip(&lines)), []);
        let mut check = ChainCheck::default();
        (1..).zip(&lines).for_each(|(seq, line)| check.add(seq, line));
        assert_eq!(check.last(), (5, Some(open(&lines[4]).unwrap().1.as_str())));

        for (from, to) in [("ann", "bob"), ("10.0.0.9", "10.0.0.8"), ("0.1", "0.2"), ("\"hash\":\"", "\"hash\":\"0")] {
            let mut edited = lines.clone();
            edited[2] = edited[2].replacen(from, to, 1);
            assert_eq!(problems((1..).zip(&edited)), [AuditProblem::Changed { seq: 3 }], "{from}");
        }
        let without = |gone: u64| (1..).zip(&lines).filter(move |(seq, _)| *seq != gone);
        assert_eq!(problems(without(3)), [AuditProblem::Missing { first: 3, last: 3 }]);
        assert_eq!(problems(without(1)), [AuditProblem::Missing { first: 1, last: 1 }]);
        let mut swapped = lines.clone();
        swapped.swap(1, 2);
        let moved = [AuditProblem::Moved { seq: 2, found: 3 }, AuditProblem::Moved { seq: 3, found: 2 }];
        assert_eq!(problems((1..).zip(&swapped)), moved);
        let mut replaced = lines.clone();
        replaced[2] = record(3, NO_RECORD).seal().unwrap().line;
        let found = [AuditProblem::Replaced { seq: 3 }, AuditProblem::Replaced { seq: 4 }];
        assert_eq!(problems((1..).zip(&replaced)), found, "a new record with a fitting hash");
        assert_eq!(open("{}"), Err(ChangedRecord));
    }

    #[test]
    fn secrets_and_hashes_are_not_recorded() {
        let secret = json!({"secret": true, "value": "geheim", "by": "ann"}).to_string();
        assert_eq!(AuditValue::of(secret.as_bytes()), AuditValue::Value(json!({"secret": true, "by": "ann"})));
        let user = json!({"tokens": {"ab": {"hash": "cd", "expires": "x"}}}).to_string();
        assert_eq!(AuditValue::of(user.as_bytes()), AuditValue::Value(json!({"tokens": {"ab": {"expires": "x"}}})));
        assert_eq!(AuditValue::of(b"v1"), AuditValue::Value(json!("v1")));
    }

    #[test]
    fn record_names_the_nodes_of_its_keys() {
        let record = record(1, NO_RECORD);
        assert!(record.concerns(&NodeName::new("web1").unwrap()));
        assert!(!record.concerns(&NodeName::new("web").unwrap()));
    }
}
