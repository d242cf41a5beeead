//! Creates, signs and verifies the manifest of a release.

use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::release::manifest::{FORMAT, KeyId, Manifest, PayloadError, PublicKey, SignedManifest};
use thiserror::Error;

use crate::key::SigningKey;
use crate::pack::BundleInfo;
use crate::trust::{self, SignatureError};

/// The fields of a manifest that the operator chooses; the others are computed from the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseLabel {
    pub version: Version,
    pub serial: u64,
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
    pub previous: Option<Version>,
}

/// Reasons to reject a manifest.
#[derive(Debug, Error)]
pub enum VerifyError {
    #[error("the manifest has no valid signature")]
    Signature(#[from] SignatureError),
    #[error("the manifest expired at {at}")]
    Expired { at: Timestamp },
    #[error("the manifest cannot be parsed")]
    Malformed(#[from] PayloadError),
}

/// A manifest with a valid signature of a trusted key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedManifest {
    pub manifest: Manifest,
    pub signed_by: KeyId,
}

pub fn create(label: ReleaseLabel, bundle: &BundleInfo) -> Manifest {
    let ReleaseLabel { version, serial, created, expires, previous } = label;
    let (digest, size, content) = (bundle.digest.clone(), bundle.size, bundle.content.clone());
    Manifest { format: FORMAT, version, serial, digest, size, content, created, expires, previous }
}

/// Signs a manifest with each of the keys. Agents refuse a release that is signed by none.
pub fn sign(manifest: &Manifest, keys: &[SigningKey]) -> Result<SignedManifest, PayloadError> {
    let payload = serde_json::to_string(manifest).map_err(|source| PayloadError::Malformed { source })?;
    let mut signed = SignedManifest { payload, signatures: Vec::new() };
    signed.signatures = trust::sign(&signed.signed_bytes(), keys);
    signed.read().map(|_| signed)
}

/// Verifies the signature alone. Ignores the expiry: the release that a node runs already may have expired since.
pub fn authenticate(signed: &SignedManifest, trusted: &[PublicKey]) -> Result<VerifiedManifest, VerifyError> {
    let signed_by = trust::verify(&signed.signed_bytes(), &signed.signatures, trusted)?;
    Ok(VerifiedManifest { manifest: signed.read()?, signed_by })
}

/// Verifies the signature, and that the manifest has not expired at `now`.
pub fn verify(signed: &SignedManifest, trusted: &[PublicKey], now: Timestamp) -> Result<VerifiedManifest, VerifyError> {
    let verified = authenticate(signed, trusted)?;
    match verified.manifest.expires {
        Some(at) if at <= now => Err(VerifyError::Expired { at }),
        Some(_) | None => Ok(verified),
    }
}
