//! The certificate authority of an installation, as the store has it, and the decisions of its rotation.
//!
//! ```text
//!  muster ca rotate ──▶ announced ──────────────────────────▶ issuing ─────────────────────────▶ retired
//!                       the old authority issues;             the new authority issues;           the old one is not
//!                       machines learn the new root           machines renew their certificates   trusted any more
//! ```
//!
//! A phase ends when it has reached every machine and every server, or when an operator forces it. The record has certificates
//! only: private keys are files of the servers.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::fleet::Fleet;
use crate::identity::CertificateRecord;
use crate::names::{EnvName, NodeName, ReplicaId};

/// Time after the end of a rotation in which servers still prove to clients that know only the old root that the new authority is
/// its successor.
pub const BRIDGE_LIFE: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Most bytes of certificates in the record: a value of the store has at most 16 KiB.
const MOST_BYTES: usize = 14 * 1024;
/// Replaced authorities whose bridge is kept.
const MOST_BRIDGES: usize = 2;
/// Replaced authorities that are remembered, so that their files are not taken for those of a new one.
const MOST_RETIRED: usize = 32;

/// SHA-256 of the public key of a root certificate, in hexadecimal digits.
pub type AuthorityPin = String;

/// Certificates of an authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthorityCertificates {
    pub pin: AuthorityPin,
    /// The issuing certificate first, the root last, in PEM.
    pub chain: String,
}

/// `_server/ca`: the authority of all servers of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthorityRecord {
    pub current: AuthorityCertificates,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
    /// Proofs for clients that know only a replaced authority.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bridges: Vec<Bridge>,
    /// Pins of replaced authorities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<AuthorityPin>,
}

/// A rotation in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rotation {
    pub next: AuthorityCertificates,
    pub phase: RotationPhase,
    /// Begin of the phase.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    pub by: String,
    /// The issuing certificate of the new authority, signed by the old one, in PEM. None if the old one may not sign it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RotationPhase {
    /// The old authority issues certificates. Machines learn the new root.
    Announced,
    /// The new authority issues certificates. Both are trusted.
    Issuing,
}

impl RotationPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            RotationPhase::Announced => "announced",
            RotationPhase::Issuing => "issuing",
        }
    }
}

/// Proof that an authority is the successor of a replaced one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bridge {
    pub replaced: AuthorityCertificates,
    /// The issuing certificate of the successor, signed by the replaced authority, in PEM.
    pub certificate: String,
    /// Time until which servers show it.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
}

impl AuthorityRecord {
    pub fn new(current: AuthorityCertificates) -> Self {
        Self { current, rotation: None, bridges: Vec::new(), retired: Vec::new() }
    }

    /// The authority that issues certificates now.
    pub fn issuing(&self) -> &AuthorityCertificates {
        match &self.rotation {
            Some(Rotation { next, phase: RotationPhase::Issuing, .. }) => next,
            Some(Rotation { phase: RotationPhase::Announced, .. }) | None => &self.current,
        }
    }

    /// The authorities whose certificates are trusted.
    pub fn trusted(&self) -> impl Iterator<Item = &AuthorityCertificates> {
        std::iter::once(&self.current).chain(self.rotation.iter().map(|rotation| &rotation.next))
    }

    /// Bridges that servers show now: those of earlier rotations, and that of a rotation whose new authority issues.
    pub fn shown_bridges(&self, now: Timestamp) -> Vec<(&AuthorityCertificates, &str)> {
        let ended = self.bridges.iter().filter(|bridge| bridge.until > now);
        let mut shown: Vec<_> = ended.map(|bridge| (&bridge.replaced, bridge.certificate.as_str())).collect();
        if let Some(Rotation { phase: RotationPhase::Issuing, bridge: Some(bridge), .. }) = &self.rotation {
            shown.push((&self.current, bridge));
        }
        shown
    }

    /// Length of all certificates.
    fn bytes(&self) -> usize {
        let rotation = self.rotation.iter().map(|rotation| rotation.bridge.as_ref().map_or(0, String::len));
        let bridges = self.bridges.iter().map(|bridge| bridge.replaced.chain.len() + bridge.certificate.len());
        self.trusted().map(|authority| authority.chain.len()).chain(rotation).chain(bridges).sum()
    }

    /// The record after the beginning of a rotation.
    pub fn announce(
        &self,
        next: AuthorityCertificates,
        bridge: Option<String>,
        by: String,
        now: Timestamp,
    ) -> Result<Self, RotationRefusal> {
        if let Some(rotation) = &self.rotation {
            return Err(RotationRefusal::InProgress { pin: rotation.next.pin.clone() });
        }
        if next.pin == self.current.pin {
            return Err(RotationRefusal::SameAuthority);
        }
        let rotation = Some(Rotation { next, phase: RotationPhase::Announced, since: now, by, bridge });
        let mut record = Self { rotation, ..self.clone() };
        while record.bytes() > MOST_BYTES {
            if record.bridges.is_empty() {
                return Err(RotationRefusal::TooLong);
            }
            record.bridges.remove(0);
        }
        Ok(record)
    }

    /// The record without a rotation that was only announced.
    pub fn cancel(&self) -> Result<Self, RotationRefusal> {
        match &self.rotation {
            None => Err(RotationRefusal::NotInProgress),
            Some(Rotation { phase: RotationPhase::Issuing, .. }) => Err(RotationRefusal::HasIssued),
            Some(Rotation { phase: RotationPhase::Announced, .. }) => Ok(Self { rotation: None, ..self.clone() }),
        }
    }

    /// The record in its next phase; none without a rotation.
    pub fn advance(&self, now: Timestamp) -> Option<Self> {
        let rotation = self.rotation.clone()?;
        match rotation.phase {
            RotationPhase::Announced => {
                let rotation = Some(Rotation { phase: RotationPhase::Issuing, since: now, ..rotation });
                Some(Self { rotation, ..self.clone() })
            }
            RotationPhase::Issuing => {
                let until = now.saturating_add(BRIDGE_LIFE).unwrap_or(Timestamp::MAX);
                let bridge =
                    rotation.bridge.map(|certificate| Bridge { replaced: self.current.clone(), certificate, until });
                let mut bridges: Vec<_> = self.bridges.iter().filter(|bridge| bridge.until > now).cloned().collect();
                bridges.extend(bridge);
                bridges.drain(..bridges.len().saturating_sub(MOST_BRIDGES));
                let mut retired = self.retired.clone();
                retired.push(self.current.pin.clone());
                retired.drain(..retired.len().saturating_sub(MOST_RETIRED));
                retired.retain(|pin| *pin != rotation.next.pin);
                Some(Self { current: rotation.next, rotation: None, bridges, retired })
            }
        }
    }
}

/// Reason why a rotation does not begin or end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RotationRefusal {
    #[error("a rotation to {pin} is in progress")]
    InProgress { pin: AuthorityPin },
    #[error("no rotation is in progress")]
    NotInProgress,
    #[error("this is the authority that is in use")]
    SameAuthority,
    #[error("the certificates of both authorities are too long: at most {MOST_BYTES} bytes")]
    TooLong,
    #[error("the new authority has issued certificates: the rotation cannot be cancelled any more")]
    HasIssued,
}

/// Machines and servers that a phase has not reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotationHoldouts {
    pub nodes: Vec<HoldoutNode>,
    /// Servers without the key of the new authority.
    pub replicas: Vec<ReplicaId>,
}

impl RotationHoldouts {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.replicas.is_empty()
    }
}

/// A machine that a phase has not reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldoutNode {
    pub env: EnvName,
    pub node: NodeName,
    /// End of its certificate.
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
}

/// Machines and servers that the phase of a rotation has not reached. A machine whose certificate was revoked, or ended too long
/// ago to be renewed, has to join again anyway.
pub fn rotation_holdouts<'a>(
    rotation: &Rotation,
    fleets: impl Iterator<Item = &'a Fleet> + Clone,
    grace: SignedDuration,
    now: Timestamp,
) -> RotationHoldouts {
    let is_reached = |record: &CertificateRecord| match rotation.phase {
        RotationPhase::Announced => record.roots.contains(&rotation.next.pin),
        RotationPhase::Issuing => record.authority.as_ref() == Some(&rotation.next.pin),
    };
    let can_renew = |record: &CertificateRecord| {
        record.revoked.is_none() && record.expires.saturating_add(grace).is_ok_and(|end| end >= now)
    };
    let nodes = fleets.clone().flat_map(|fleet| {
        let certificates = fleet.nodes().filter_map(|(name, node)| Some((name, &node.certificate.as_ref()?.0)));
        let held = certificates.filter(|(_, record)| can_renew(record) && !is_reached(record));
        held.map(|(name, record)| HoldoutNode { env: fleet.env.clone(), node: name.clone(), expires: record.expires })
    });
    let replicas: BTreeMap<&ReplicaId, _> = fleets.flat_map(|fleet| fleet.replicas()).collect();
    let lacks_key = |keys: &[AuthorityPin]| !keys.contains(&rotation.next.pin);
    let replicas = replicas.into_iter().filter(|(_, (record, _))| lacks_key(&record.authorities));
    RotationHoldouts { nodes: nodes.collect(), replicas: replicas.map(|(id, _)| id.clone()).collect() }
}

/// The record in its next phase, if the present one has reached everything.
pub fn decide_rotation<'a>(
    record: &AuthorityRecord,
    fleets: impl Iterator<Item = &'a Fleet> + Clone,
    grace: SignedDuration,
    now: Timestamp,
) -> Option<AuthorityRecord> {
    let rotation = record.rotation.as_ref()?;
    if rotation_holdouts(rotation, fleets, grace, now).is_empty() { record.advance(now) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hour)
    }

    fn certificates(pin: &str) -> AuthorityCertificates {
        AuthorityCertificates { pin: pin.to_owned(), chain: format!("chain of {pin}") }
    }

    fn announced() -> AuthorityRecord {
        let record = AuthorityRecord::new(certificates("a"));
        record.announce(certificates("b"), Some("b by a".into()), "ada".into(), at(0)).unwrap()
    }

    fn pins(record: &AuthorityRecord) -> (String, Vec<String>, usize) {
        let trusted = record.trusted().map(|authority| authority.pin.clone()).collect();
        (record.issuing().pin.clone(), trusted, record.shown_bridges(at(0)).len())
    }

    #[test]
    fn phases_overlap_and_the_old_authority_is_retired() {
        let both = vec!["a".to_owned(), "b".to_owned()];
        let announced = announced();
        assert_eq!(pins(&announced), ("a".into(), both.clone(), 0));
        let issuing = announced.advance(at(1)).unwrap();
        assert_eq!(pins(&issuing), ("b".into(), both, 1));
        let retired = issuing.advance(at(2)).unwrap();
        assert_eq!(pins(&retired), ("b".into(), vec!["b".into()], 1));
        assert_eq!(retired.retired, ["a"]);
        assert!(retired.advance(at(3)).is_none());
        assert!(retired.shown_bridges(at(2) + BRIDGE_LIFE).is_empty());
    }

    #[test]
    fn illegal_steps_are_refused() {
        let (record, announced) = (AuthorityRecord::new(certificates("a")), announced());
        let announce = |record: &AuthorityRecord, pin: &str| {
            record.announce(certificates(pin), None, "ada".into(), at(0)).unwrap_err()
        };
        assert_eq!(announce(&record, "a"), RotationRefusal::SameAuthority);
        assert_eq!(announce(&announced, "c"), RotationRefusal::InProgress { pin: "b".into() });
        assert_eq!(record.cancel(), Err(RotationRefusal::NotInProgress));
        assert_eq!(announced.cancel(), Ok(record.clone()));
        assert_eq!(announced.advance(at(1)).unwrap().cancel(), Err(RotationRefusal::HasIssued));
        let long = AuthorityCertificates { pin: "c".into(), chain: "x".repeat(MOST_BYTES) };
        assert_eq!(record.announce(long, None, String::new(), at(0)), Err(RotationRefusal::TooLong));
    }

    #[test]
    fn only_recent_bridges_are_kept() {
        let mut record = AuthorityRecord::new(certificates("a0"));
        for number in 1..6 {
            let next = certificates(&format!("a{number}"));
            let rotation = record.announce(next, Some("bridge".into()), "ada".into(), at(0)).unwrap();
            record = rotation.advance(at(0)).unwrap().advance(at(0)).unwrap();
        }
        let replaced: Vec<_> = record.bridges.iter().map(|bridge| bridge.replaced.pin.as_str()).collect();
        assert_eq!((replaced, record.retired.len()), (vec!["a3", "a4"], 5));
    }
}
