//! Registers a release whose bundle was uploaded: verifies that the bundle matches its manifest and that nodes can run it.

use std::io;

use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, Role, Version};
use muster_core::release::manifest::{Digest, KeyId, Manifest, PayloadError, PublicKey, ReleaseEnv, SignedManifest};
use muster_core::release::{ReleaseChecks, ReleaseRecord};
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_release::bundle::{OpenBundleError, UnpackError};
use muster_release::check::{CheckBundleError, CheckError};
use muster_release::manifest::{VerifyError, verify};
use muster_store::{CommitOutcome, KeyValue, StoreError};
use thiserror::Error;

use crate::app::{Reader, Writer};
use crate::blobs::{BlobStream, Blobs};
use crate::design::revision::{RevisionError, check_writable};
use crate::transactions::{ConflictRetry, commit_all};
use crate::view::StaleView;

use super::plan::{RefusedRelease, ReleaseDecision, decide};

/// Attempts of one push. Two clients that push at the same time conflict once.
const ATTEMPTS: usize = 8;

#[derive(Debug, Error)]
pub enum PushError {
    #[error("the manifest cannot be read")]
    Payload(#[source] PayloadError),
    #[error("the manifest is of release {found}, not of {asked}")]
    OtherVersion { asked: Version, found: Version },
    #[error("release {version} was built for environment {built_for}, not for {env}")]
    OtherEnvironment { version: Version, built_for: EnvName, env: EnvName },
    #[error("it is not signed: agents would refuse it")]
    Unsigned,
    #[error("no trusted key of {env} has signed it")]
    NotTrusted {
        env: EnvName,
        #[source]
        source: VerifyError,
    },
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Refused(#[from] RefusedRelease),
    #[error(transparent)]
    NotAccepting(Box<RevisionError>),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    StaleView(#[from] StaleView),
    #[error("the record of the release cannot be written")]
    Record(#[source] serde_json::Error),
    #[error("conflict: other clients kept changing the releases of {env}")]
    Contended { env: EnvName },
    #[error("the server is stopping")]
    Stopping,
}

/// A registered release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedRelease {
    pub record: ReleaseRecord,
    /// False if it was registered before.
    pub changed: bool,
    /// Trusted key that signed it; none if the environment has no list of trusted keys.
    pub verified_by: Option<KeyId>,
    /// Roles of the environment that it has no check for.
    pub unchecked: Vec<Role>,
    pub revision: Revision,
}

/// Registers a release. Writes nothing unless everything is valid.
pub async fn push(
    writer: &Writer,
    env: &EnvName,
    version: &Version,
    signed: SignedManifest,
    by: String,
) -> Result<PushedRelease, PushError> {
    let manifest = signed.read().map_err(PushError::Payload)?;
    if manifest.version != *version {
        return Err(PushError::OtherVersion { asked: version.clone(), found: manifest.version });
    }
    if let ReleaseEnv::Only(built_for) = &manifest.env
        && built_for != env
    {
        let (version, built_for) = (version.clone(), built_for.clone());
        return Err(PushError::OtherEnvironment { version, built_for, env: env.clone() });
    }
    if signed.signatures.is_empty() {
        return Err(PushError::Unsigned);
    }
    // Decided on the latest revision.
    writer.view.reach(writer.latest_revision.read().await?).await?;
    let trusted = read_fleet(writer, env, trusted_keys)?;
    let verified_by = match trusted {
        Some(keys) => {
            let proved = verify(&signed, &keys, writer.clock.now());
            Some(proved.map_err(|source| PushError::NotTrusted { env: env.clone(), source })?.signed_by)
        }
        None => None,
    };
    // Before the bundle is examined, which takes a while.
    if let ReleaseDecision::Known(record) = read_fleet(writer, env, |fleet| decide(fleet, &manifest))?? {
        // The record may have outlived its bundle: uploading it again has repaired that.
        let unchecked = read_fleet(writer, env, |fleet| unchecked_roles(fleet, &record))?;
        return Ok(PushedRelease {
            record: *record,
            changed: false,
            verified_by,
            unchecked,
            revision: revision(writer),
        });
    }
    let (blobs, examined) = (writer.blobs.clone(), manifest.clone());
    let examining = tokio::task::spawn_blocking(move || examine(&blobs, &examined));
    let checks = examining.await.map_err(|_| PushError::Stopping)??;
    read_fleet(writer, env, |fleet| check_roles(fleet, version, &checks))??;

    let (record, changed, at) = commit(writer, env, &manifest, checks, signed, by).await?;
    if changed {
        tracing::info!(%env, %version, serial = record.serial, digest = record.digest, "release registered");
        check_serial_unique(writer, env, &manifest, at).await?;
    }
    let unchecked = read_fleet(writer, env, |fleet| unchecked_roles(fleet, &record))?;
    Ok(PushedRelease { record, changed, verified_by, unchecked, revision: at })
}

/// Refuses checks for roles that the environment does not have: they would never run.
pub(crate) fn check_roles(fleet: &Fleet, version: &Version, checks: &ReleaseChecks) -> Result<(), RefusedRelease> {
    let known = fleet.designed_roles();
    let roles = checks.unknown_roles(&known);
    if roles.is_empty() {
        return Ok(());
    }
    Err(RefusedRelease::UnknownRoles { version: version.clone(), roles, known: known.into_iter().collect() })
}

/// Roles whose nodes the release validates without any check. Empty if its checks are unknown.
pub(crate) fn unchecked_roles(fleet: &Fleet, release: &ReleaseRecord) -> Vec<Role> {
    release.checks.as_ref().map(|checks| checks.unchecked_roles(&fleet.designed_roles())).unwrap_or_default()
}

/// Trusted keys of an environment; none if it has no list.
pub(crate) fn trusted_keys(fleet: &Fleet) -> Option<Vec<PublicKey>> {
    let (trust, _) = fleet.trust()?;
    Some(trust.read().map(|list| list.keys).unwrap_or_default())
}

/// Reads an environment that accepts changes.
fn read_fleet<T>(reader: &Reader, env: &EnvName, select: impl FnOnce(&Fleet) -> T) -> Result<T, PushError> {
    let fleets = reader.view.fleets();
    let empty = Fleet::new(env.clone());
    let fleet = fleets.get(env).unwrap_or(&empty);
    check_writable(fleet).map_err(|error| PushError::NotAccepting(Box::new(error)))?;
    Ok(select(fleet))
}

fn revision(reader: &Reader) -> Revision {
    reader.view.revision().unwrap_or_default()
}

async fn commit(
    writer: &Writer,
    env: &EnvName,
    manifest: &Manifest,
    checks: ReleaseChecks,
    signed: SignedManifest,
    by: String,
) -> Result<(ReleaseRecord, bool, Revision), PushError> {
    let keys = Keys::new(env);
    let record = ReleaseRecord {
        digest: manifest.digest.to_string(),
        serial: manifest.serial,
        size: manifest.size,
        content: manifest.content.to_string(),
        signed,
        pushed: writer.clock.now(),
        by,
        checks: Some(checks),
    };
    let put = Op::put_json(keys.release(&manifest.version), &record).map_err(PushError::Record)?;
    let absent = [keys.release(&manifest.version), keys.restoring(), keys.destroying()];
    let txn = Txn { guards: absent.map(|key| Guard::Absent { key }).into(), ops: vec![put] };
    let mut retry = ConflictRetry::new(ATTEMPTS);
    while retry.begin_attempt() {
        match read_fleet(writer, env, |fleet| decide(fleet, manifest))?? {
            // Ours, from an attempt whose reply was lost; or that of another client.
            ReleaseDecision::Known(known) => {
                let changed = *known == record;
                return Ok((*known, changed, revision(writer)));
            }
            ReleaseDecision::Register => {}
        }
        let committed = commit_all(writer, vec![txn.clone()]).await?;
        writer.view.reach(committed.revision).await?;
        if committed.complete {
            return Ok((record, true, committed.revision));
        }
    }
    Err(PushError::Contended { env: env.clone() })
}

/// Two clients that push different versions with one serial at the same time do not conflict. The later release is removed.
async fn check_serial_unique(
    writer: &Writer,
    env: &EnvName,
    manifest: &Manifest,
    at: Revision,
) -> Result<(), PushError> {
    let keys = Keys::new(env);
    let ours = keys.release(&manifest.version);
    let prefix = ours.strip_suffix(manifest.version.as_str()).unwrap_or(&ours);
    let all = writer.store.range(prefix, None).await?.kvs;
    let has_it = |kv: &&KeyValue| {
        let record: Option<ReleaseRecord> = serde_json::from_slice(&kv.value).ok();
        kv.key != ours && record.is_some_and(|record| record.serial == manifest.serial)
    };
    let Some(earlier) = all.iter().filter(has_it).find(|kv| kv.revision < at) else { return Ok(()) };
    let txn = Txn::new().guard(Guard::Unchanged { key: ours.clone(), since: at }).op(Op::delete(ours.clone()));
    if let CommitOutcome::Committed { revision } = writer.store.commit(txn).await? {
        writer.view.reach(revision).await?;
    }
    let other = earlier.key.strip_prefix(prefix).and_then(|version| Version::new(version).ok());
    let (version, serial) = (manifest.version.clone(), manifest.serial);
    let other = other.unwrap_or_else(|| version.clone());
    Err(RefusedRelease::SerialTaken { version, serial, other }.into())
}

#[derive(Debug, Error)]
pub enum BundleError {
    #[error("there is no bundle {digest}")]
    Missing { digest: Digest },
    #[error("the bundle does not match its manifest")]
    Unpack(#[source] UnpackError),
    #[error("no node could run it")]
    Check(#[source] CheckError),
    #[error("the bundle cannot be examined")]
    Io(#[source] io::Error),
}

/// Verifies a bundle and checks its content. Returns the roles of its checks. Blocks.
///
/// The bundle is read as a stream. Unpacking it would create and remove up to 50,000 directories.
pub(super) fn examine(blobs: &Blobs, manifest: &Manifest) -> Result<ReleaseChecks, BundleError> {
    let digest = &manifest.digest;
    // Renewed, so that it is not swept before it is registered.
    let exists = blobs.renew(digest.hex()).map_err(BundleError::Io)?;
    let stored = if exists { blobs.stored(digest.hex()).map_err(BundleError::Io)? } else { None };
    let Some(stored) = stored else { return Err(BundleError::Missing { digest: digest.clone() }) };
    let open = || BlobStream::new(stored.as_ref());
    let spec = muster_release::check_bundle(open, stored.size(), manifest).map_err(|error| match error {
        CheckBundleError::Unpack(UnpackError::Bundle(OpenBundleError::Read { source, .. })) => BundleError::Io(source),
        CheckBundleError::Unpack(error) => BundleError::Unpack(error),
        CheckBundleError::Check(error) => BundleError::Check(error),
    })?;
    Ok(ReleaseChecks::new(&spec))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::SystemTime;

    use muster_core::names::ReplicaId;
    use muster_testkit::release::{SignedBundle, write_file, write_script};

    use super::*;

    /// Creating or removing a file or directory changes the time of its parent.
    #[test]
    fn examined_bundle_is_not_unpacked() {
        let (release, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write_file(&release.path().join("release.yaml"), "applier: script\nmanifest: apply\n");
        write_script(&release.path().join("apply"), "exit 0");
        for number in 0..200 {
            write_file(&release.path().join(format!("d{number}/file")), "x");
        }
        let SignedBundle { bundle, manifest, .. } = SignedBundle::build(release.path(), "v1", 1, None, &[]);
        let blobs = Blobs::open(root.path(), ReplicaId::new("a-1").unwrap()).unwrap();
        blobs.put(&bundle).unwrap();

        let directory = File::open(root.path()).unwrap();
        directory.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        examine(&blobs, &manifest).unwrap();
        assert_eq!(fs::metadata(root.path()).unwrap().modified().unwrap(), SystemTime::UNIX_EPOCH);

        let changed = Manifest { content: manifest.digest.clone(), ..manifest };
        let error = examine(&blobs, &changed).unwrap_err();
        assert!(matches!(error, BundleError::Unpack(UnpackError::Content { .. })), "{error:?}");
    }
}
