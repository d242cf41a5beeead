//! Decides whether a release can be registered.

use muster_core::fleet::Fleet;
use muster_core::names::{Role, Version};
use muster_core::release::ReleaseRecord;
use muster_core::release::manifest::{Digest, Manifest};
use thiserror::Error;

/// Reason why a release is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RefusedRelease {
    #[error(
        "release {version} is registered with digest {registered} since {} by {by}, and this one has {pushed}: a release \
         never changes", at.strftime("%Y-%m-%d %H:%M")
    )]
    Another { version: Version, registered: String, pushed: Digest, at: jiff::Timestamp, by: String },
    #[error(
        "serial {serial} of release {version} is that of release {other} already: serials determine which one is newer"
    )]
    SerialTaken { version: Version, serial: u64, other: Version },
    #[error(
        "release {version} has checks for {}, and no node of the environment has {}: these checks would never run",
        role_names(roles), if roles.len() == 1 { "that role" } else { "those roles" }
    )]
    UnknownRoles { version: Version, roles: Vec<Role>, known: Vec<Role> },
}

fn role_names(roles: &[Role]) -> String {
    let names: Vec<&str> = roles.iter().map(Role::as_str).collect();
    format!("{} {}", if roles.len() == 1 { "role" } else { "roles" }, names.join(", "))
}

impl RefusedRelease {
    /// Advice for the operator.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Another { .. } => "build it under a new version".to_owned(),
            Self::SerialTaken { .. } => "build it with a higher --serial".to_owned(),
            Self::UnknownRoles { known, .. } => {
                let known: Vec<&str> = known.iter().map(Role::as_str).collect();
                format!(
                    "correct `roles` of the checks in release.yaml, or apply a design with the role first; the \
                     environment has {}",
                    known.join(", ")
                )
            }
        }
    }
}

/// ReleaseDecision about a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReleaseDecision {
    /// It is registered already.
    Known(Box<ReleaseRecord>),
    Register,
}

pub(super) fn decide(fleet: &Fleet, manifest: &Manifest) -> Result<ReleaseDecision, RefusedRelease> {
    let Manifest { version, serial, digest, .. } = manifest;
    if let Some(known) = fleet.releases().get(version) {
        // A rebuilt release has another serial by default; the registered one stays.
        if known.digest == digest.as_str() {
            return Ok(ReleaseDecision::Known(Box::new(known.clone())));
        }
        let ReleaseRecord { digest: registered, pushed: at, by, .. } = known.clone();
        return Err(RefusedRelease::Another { version: version.clone(), registered, pushed: digest.clone(), at, by });
    }
    match fleet.releases().iter().find(|(_, known)| known.serial == *serial) {
        Some((other, _)) => {
            Err(RefusedRelease::SerialTaken { version: version.clone(), serial: *serial, other: other.clone() })
        }
        None => Ok(ReleaseDecision::Register),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::fleet::KeyChange;
    use muster_core::keys::Key;
    use muster_core::names::EnvName;
    use muster_core::release::manifest::{ReleaseEnv, SignedManifest};
    use muster_core::txn::Revision;

    use super::*;

    fn manifest(version: &str, serial: u64, digest: char) -> Manifest {
        let digest = Digest::new(format!("sha256:{}", digest.to_string().repeat(64))).unwrap();
        let (version, content) = (Version::new(version).unwrap(), digest.clone());
        let created = jiff::Timestamp::UNIX_EPOCH;
        Manifest {
            format: 1,
            version,
            env: ReleaseEnv::Any,
            serial,
            digest,
            size: 1,
            content,
            content_size: None,
            created,
            expires: None,
            previous: None,
        }
    }

    #[test]
    fn changed_release_or_taken_serial_is_refused() {
        let mut fleet = Fleet::new(EnvName::new("test").unwrap());
        let known = manifest("v1", 7, 'a');
        let record = ReleaseRecord {
            digest: known.digest.to_string(),
            serial: 7,
            size: 1,
            content: known.content.to_string(),
            signed: SignedManifest::default(),
            pushed: jiff::Timestamp::UNIX_EPOCH,
            by: "ann".into(),
            checks: None,
        };
        let value = serde_json::to_vec(&record).unwrap();
        let change = KeyChange { key: "/muster/test/releases/v1", value: Some(&value), revision: Revision(1) };
        fleet.apply(Revision(1), [(change, Key::Release { version: known.version.clone() })]);

        assert_eq!(decide(&fleet, &known), Ok(ReleaseDecision::Known(Box::new(record.clone()))));
        assert_eq!(
            decide(&fleet, &manifest("v1", 8, 'a')),
            Ok(ReleaseDecision::Known(Box::new(record))),
            "built again"
        );
        assert!(matches!(decide(&fleet, &manifest("v1", 7, 'b')), Err(RefusedRelease::Another { .. })));
        assert!(matches!(decide(&fleet, &manifest("v2", 7, 'b')), Err(RefusedRelease::SerialTaken { .. })));
        assert_eq!(decide(&fleet, &manifest("v2", 8, 'b')), Ok(ReleaseDecision::Register));
        assert_eq!(
            decide(&fleet, &manifest("v0", 6, 'c')),
            Ok(ReleaseDecision::Register),
            "an older one may come later"
        );
    }
}
