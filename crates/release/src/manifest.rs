//! Makes, signs and proves the manifest of a release.

use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::release_manifest::{FORMAT, KeyId, Manifest, PayloadError, PublicKey, SignedManifest};
use thiserror::Error;

use crate::key::SigningKey;
use crate::pack::Packed;
use crate::signatures::{self, SignatureError};

/// What people say of a release; the rest is found when it is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub version: Version,
    pub serial: u64,
    pub created: Timestamp,
    pub expires: Option<Timestamp>,
    pub previous: Option<Version>,
}

/// Why a manifest does not count.
#[derive(Debug, Error)]
pub enum VerifyError {
    #[error("the manifest does not count")]
    Signature(#[from] SignatureError),
    #[error("the manifest expired at {at}")]
    Expired { at: Timestamp },
    #[error("the manifest is not understood")]
    Malformed(#[from] PayloadError),
}

/// A manifest that a trusted key stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentic {
    pub manifest: Manifest,
    pub signed_by: KeyId,
}

/// The manifest of what was packed.
pub fn make(label: Label, packed: &Packed) -> Manifest {
    let Label { version, serial, created, expires, previous } = label;
    let (digest, size, content) = (packed.digest.clone(), packed.size, packed.content.clone());
    Manifest { format: FORMAT, version, serial, digest, size, content, created, expires, previous }
}

/// Signs a manifest with each of the keys; with none, the release is built and no agent takes it.
pub fn sign(manifest: &Manifest, keys: &[SigningKey]) -> Result<SignedManifest, PayloadError> {
    let payload = serde_json::to_string(manifest).map_err(|source| PayloadError::Malformed { source })?;
    let mut signed = SignedManifest { payload, signatures: Vec::new() };
    signed.signatures = signatures::sign(&signed.signed_bytes(), keys);
    signed.read().map(|_| signed)
}

/// Proves that a trusted key stands for a manifest, whenever that was: what a node runs already may have expired since.
pub fn authenticate(signed: &SignedManifest, trusted: &[PublicKey]) -> Result<Authentic, VerifyError> {
    let signed_by = signatures::prove(&signed.signed_bytes(), &signed.signatures, trusted)?;
    Ok(Authentic { manifest: signed.read()?, signed_by })
}

/// Proves that a trusted key stands for a manifest, and that it may still be gone to at `now`.
pub fn verify(signed: &SignedManifest, trusted: &[PublicKey], now: Timestamp) -> Result<Authentic, VerifyError> {
    let authentic = authenticate(signed, trusted)?;
    match authentic.manifest.expires {
        Some(at) if at <= now => Err(VerifyError::Expired { at }),
        Some(_) | None => Ok(authentic),
    }
}
