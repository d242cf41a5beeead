//! Identity of machines: join tokens, the certificate of each node, and the decisions about both.
//!
//! A node has at most one key. A certificate counts while the node's record names its key and is not revoked: issuing
//! certificates for the same key needs no list of serial numbers, and a node without a record has no identity.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::authority::AuthorityPin;
use crate::fleet::Fleet;
use crate::names::{NodeName, Role, TokenId};
use crate::node::record::NodeRecord;
use crate::txn::Revision;

/// Time after its end in which a certificate can still be renewed by the same key.
pub const RENEWAL_GRACE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Longest life of a join token.
pub const LONGEST_TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Most uses of a join token.
pub const MOST_USES: u32 = 10_000;
/// Most earlier certificates in a record. An agent has one or two in a day, and two more for each rotation of the authority.
const MOST_EARLIER: usize = 16;

/// SHA-256 of the secret of a join token, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenHash(pub String);

/// SHA-256 of a public key, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyDigest(pub String);

/// `tokens/<id>`: permission to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenRecord {
    pub hash: TokenHash,
    #[serde(flatten)]
    pub scope: TokenScope,
    /// Machines that can still join with it.
    pub uses: u32,
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
    pub by: String,
}

/// Nodes that a token can become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "scope", rename_all = "snake_case")]
pub enum TokenScope {
    /// One node. It replaces the key of a machine that joined before the token was made.
    Node { node: NodeName },
    /// Any node of a role that has no machine yet.
    Role {
        role: Role,
        /// Pattern of the machine's host name; `*` stands for any text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hosts: Option<String>,
    },
}

impl TokenRecord {
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires <= now
    }
}

/// `certificates/<node>`: the key of the node's machine, and its last certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateRecord {
    pub key: KeyDigest,
    pub serial: String,
    #[schema(value_type = String, format = DateTime)]
    pub issued: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
    /// Time at which the machine joined.
    #[schema(value_type = String, format = DateTime)]
    pub joined: Timestamp,
    /// Host name that the machine reported when it joined.
    pub host: String,
    pub token: TokenId,
    /// Pin of the authority that has issued the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<AuthorityPin>,
    /// Pins of the root certificates that the machine had stored at that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<AuthorityPin>,
    /// Certificates of the same key that were issued before and have not ended, the oldest first. A revocation can name each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierCertificate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revocation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EarlierCertificate {
    pub serial: String,
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Revocation {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub by: String,
    pub reason: String,
}

impl CertificateRecord {
    /// Returns whether a certificate with this key is the identity of the node.
    pub fn admits(&self, key: &KeyDigest) -> bool {
        self.revoked.is_none() && self.key == *key
    }

    /// Returns whether the serial number is that of a certificate of this key which may still be valid.
    pub fn has_serial(&self, serial: &str) -> bool {
        self.serial == serial || self.earlier.iter().any(|earlier| earlier.serial == serial)
    }

    /// The earlier certificates of the record that follows this one.
    pub fn superseded(&self, now: Timestamp) -> Vec<EarlierCertificate> {
        let last = EarlierCertificate { serial: self.serial.clone(), expires: self.expires };
        let mut earlier: Vec<_> =
            self.earlier.iter().cloned().chain([last]).filter(|certificate| certificate.expires > now).collect();
        earlier.drain(..earlier.len().saturating_sub(MOST_EARLIER));
        earlier
    }
}

/// Join tokens of an environment, each with the revision of its key.
pub type Tokens = BTreeMap<TokenId, (TokenRecord, Revision)>;

/// A machine that presents a token.
#[derive(Clone, Debug)]
pub struct JoinAttempt<'a> {
    pub token: &'a TokenId,
    pub hash: &'a TokenHash,
    pub key: &'a KeyDigest,
    /// Host name that the machine reports. It is a claim, and selects at most among places that are free.
    pub host: &'a str,
}

/// A machine that may join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedJoin {
    pub node: NodeName,
    /// Revisions of the token and of the node's certificate, for guards.
    pub token_at: Revision,
    pub certificate_at: Option<Revision>,
    /// Revision of the node's record: the node must still be in the design.
    pub record_at: Option<Revision>,
    /// The token after this use; unchanged if the machine repeats its request.
    pub token: TokenRecord,
    /// Time of the first join with this key.
    pub joined: Timestamp,
    /// Certificates of the same key, if the machine repeats its request.
    pub earlier: Vec<EarlierCertificate>,
}

/// Reason why a machine may not join.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JoinRefusal {
    /// The same answer for an unknown id and a wrong secret.
    #[error("the join token is not valid")]
    InvalidToken,
    #[error("the join token expired at {expires}")]
    Expired { expires: Timestamp },
    #[error("the join token has been used up")]
    UsedUp,
    #[error("the key of this machine was revoked")]
    RevokedKey,
    #[error("{node} is not in the design")]
    NotDesigned { node: NodeName },
    #[error("a machine has joined as {node} already ({host}, {joined})")]
    AlreadyJoined { node: NodeName, host: String, joined: Timestamp },
    #[error("the token is for hosts named {pattern}, not for {host:?}")]
    OtherHost { pattern: String, host: String },
    #[error("no place is free: every node of role {role} in the design has a machine")]
    NoPlace { role: Role },
}

/// Decides whether a machine may join, and as which node.
pub fn decide_join(fleet: &Fleet, attempt: &JoinAttempt<'_>, now: Timestamp) -> Result<AdmittedJoin, JoinRefusal> {
    let (token, token_at) = fleet.tokens().get(attempt.token).ok_or(JoinRefusal::InvalidToken)?;
    if token.hash != *attempt.hash {
        return Err(JoinRefusal::InvalidToken);
    }
    let admitted = |node: &NodeName, token: TokenRecord, joined: Timestamp, earlier: Vec<EarlierCertificate>| {
        let found = fleet.get(node);
        AdmittedJoin {
            node: node.clone(),
            token_at: *token_at,
            certificate_at: found.and_then(|node| node.certificate.as_ref()).map(|(_, at)| *at),
            record_at: found.and_then(|node| node.record_at),
            token,
            joined,
            earlier,
        }
    };
    // The response to an earlier request was lost: the same key gets another certificate, and no further use counts.
    let repeated = fleet.designed().find_map(|(name, node, _)| {
        let (record, _) = node.certificate.as_ref()?;
        (record.token == *attempt.token && record.admits(attempt.key)).then_some((name, record))
    });
    if let Some((node, record)) = repeated {
        return Ok(admitted(node, token.clone(), record.joined, record.superseded(now)));
    }
    let is_revoked = |record: &CertificateRecord| record.revoked.is_some() && record.key == *attempt.key;
    if fleet.nodes().any(|(_, node)| node.certificate.as_ref().is_some_and(|(record, _)| is_revoked(record))) {
        return Err(JoinRefusal::RevokedKey);
    }
    if token.is_expired(now) {
        return Err(JoinRefusal::Expired { expires: token.expires });
    }
    if token.uses == 0 {
        return Err(JoinRefusal::UsedUp);
    }
    let node = match &token.scope {
        TokenScope::Node { node } => named_node(fleet, node, token.created)?,
        TokenScope::Role { role, hosts } => free_place(fleet, role, hosts.as_deref(), attempt.host)?,
    };
    Ok(admitted(&node, TokenRecord { uses: token.uses - 1, ..token.clone() }, now, Vec::new()))
}

/// The node of a token for one node. An operator who makes a token after a machine has joined replaces that machine.
fn named_node(fleet: &Fleet, name: &NodeName, created: Timestamp) -> Result<NodeName, JoinRefusal> {
    let node = fleet.get(name).filter(|node| node.is_designed());
    let node = node.ok_or_else(|| JoinRefusal::NotDesigned { node: name.clone() })?;
    match &node.certificate {
        Some((record, _)) if record.revoked.is_none() && record.joined >= created => {
            Err(JoinRefusal::AlreadyJoined { node: name.clone(), host: record.host.clone(), joined: record.joined })
        }
        Some(_) | None => Ok(name.clone()),
    }
}

/// A node of the role without a machine: that with the machine's host name, or else the first.
fn free_place(fleet: &Fleet, role: &Role, hosts: Option<&str>, host: &str) -> Result<NodeName, JoinRefusal> {
    if let Some(pattern) = hosts.filter(|pattern| !matches(pattern, host)) {
        return Err(JoinRefusal::OtherHost { pattern: pattern.to_owned(), host: host.to_owned() });
    }
    let of_role = fleet.designed().filter(|(_, _, record)| record.role == *role);
    let is_named = |name: &NodeName, record: &NodeRecord| record.host(name) == host || name.as_str() == host;
    let mut free: Option<&NodeName> = None;
    for (name, node, record) in of_role {
        match &node.certificate {
            None if is_named(name, record) => return Ok(name.clone()),
            None => free = free.or(Some(name)),
            Some((taken, _)) if is_named(name, record) => {
                let (host, joined) = (taken.host.clone(), taken.joined);
                return Err(JoinRefusal::AlreadyJoined { node: name.clone(), host, joined });
            }
            Some(_) => {}
        }
    }
    free.cloned().ok_or_else(|| JoinRefusal::NoPlace { role: role.clone() })
}

/// Compares a text with a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(begin) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(end)
}

/// Reason why a certificate is not renewed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RenewalRefusal {
    #[error("the connection has no certificate: a certificate is renewed by a machine that presents it")]
    NoCertificate,
    #[error("the certificate of the connection is not one of {node} with the key of the request")]
    OtherCertificate { node: NodeName },
    #[error("no machine has joined as {node}, or another one has")]
    UnknownKey { node: NodeName },
    #[error("the certificate of {node} was revoked by {by}: {reason}")]
    Revoked { node: NodeName, by: String, reason: String },
    #[error("the certificate of {node} ended at {expires}, too long ago to be renewed")]
    TooLate { node: NodeName, expires: Timestamp },
}

/// Decides whether the holder of a key gets a new certificate for its node. The caller has checked that it is the holder.
pub fn decide_renewal<'a>(
    fleet: &'a Fleet,
    node: &NodeName,
    key: &KeyDigest,
    grace: SignedDuration,
    now: Timestamp,
) -> Result<&'a (CertificateRecord, Revision), RenewalRefusal> {
    let certificate = fleet.get(node).filter(|node| node.is_designed()).and_then(|node| node.certificate.as_ref());
    let certificate = certificate.filter(|(record, _)| record.key == *key);
    let (record, _) = certificate.ok_or_else(|| RenewalRefusal::UnknownKey { node: node.clone() })?;
    if let Some(Revocation { by, reason, .. }) = &record.revoked {
        return Err(RenewalRefusal::Revoked { node: node.clone(), by: by.clone(), reason: reason.clone() });
    }
    if record.expires.saturating_add(grace).is_ok_and(|end| end < now) {
        return Err(RenewalRefusal::TooLate { node: node.clone(), expires: record.expires });
    }
    certificate.ok_or_else(|| RenewalRefusal::UnknownKey { node: node.clone() })
}
