//! Creates, signs and verifies the manifest of a release, and the signed lists of trusted keys.
//!
//! A list of trusted keys is signed by a key of the list before it: keys rotate without a login on each node.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use muster_core::names::Version;
use muster_core::release::manifest::{
    FORMAT, KeyId, Manifest, PayloadError, PublicKey, ReleaseEnv, SIGNATURE_LIMIT, Signature, SignedManifest,
    SignedTrust, TrustList,
};
use ring::signature::{ED25519, UnparsedPublicKey};
use thiserror::Error;

use crate::bundle::BundleInfo;
use crate::key::SigningKey;

/// The fields of a manifest that the operator chooses; the others are computed from the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseLabel {
    pub version: Version,
    pub env: ReleaseEnv,
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
    let ReleaseLabel { version, env, serial, created, expires, previous } = label;
    let BundleInfo { digest, size, content, content_size, files: _ } = bundle.clone();
    let content_size = Some(content_size);
    Manifest { format: FORMAT, version, env, serial, digest, size, content, content_size, created, expires, previous }
}

/// Signs a manifest with each of the keys. Agents refuse a release that is signed by none.
pub fn sign(manifest: &Manifest, keys: &[SigningKey]) -> Result<SignedManifest, PayloadError> {
    let payload = serde_json::to_string(manifest).map_err(|source| PayloadError::Malformed { source })?;
    let mut signed = SignedManifest { payload, signatures: Vec::new() };
    signed.signatures = sign_bytes(&signed.signed_bytes(), keys);
    signed.read().map(|_| signed)
}

/// Verifies the signature alone. Ignores the expiry: the release that a node runs already may have expired since.
pub fn authenticate(signed: &SignedManifest, trusted: &[PublicKey]) -> Result<VerifiedManifest, VerifyError> {
    let signed_by = verify_signatures(&signed.signed_bytes(), &signed.signatures, trusted)?;
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

/// Reasons to reject the signatures of a manifest or of a list of trusted keys.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SignatureError {
    #[error("it is not signed")]
    Unsigned,
    #[error("it is signed by {}, and no such key is trusted here", format_key_ids(ids))]
    UnknownKey { ids: Vec<KeyId> },
    #[error("the signature of key {key} is not valid: the content was changed after it was signed")]
    BadSignature { key: KeyId },
}

fn format_key_ids(ids: &[KeyId]) -> String {
    let ids: Vec<&str> = ids.iter().map(KeyId::as_str).collect();
    format!("{} {}", if ids.len() == 1 { "key" } else { "keys" }, ids.join(", "))
}

pub(crate) fn sign_bytes(bytes: &[u8], keys: &[SigningKey]) -> Vec<Signature> {
    keys.iter().map(|key| key.sign(bytes)).collect()
}

/// Verifies that one of the trusted keys has signed the bytes, and returns its id. One valid signature is enough;
/// signatures of unknown keys are ignored.
pub(crate) fn verify_signatures(
    bytes: &[u8],
    signatures: &[Signature],
    trusted: &[PublicKey],
) -> Result<KeyId, SignatureError> {
    let mut bad = None;
    for signature in signatures.iter().take(SIGNATURE_LIMIT) {
        // The id only selects the keys to try: two keys with the same id are both tried.
        for key in trusted.iter().filter(|key| key.id() == signature.key) {
            let valid = BASE64
                .decode(&signature.signature)
                .is_ok_and(|signature| UnparsedPublicKey::new(&ED25519, key.bytes()).verify(bytes, &signature).is_ok());
            if valid {
                return Ok(signature.key.clone());
            }
            bad = Some(signature.key.clone());
        }
    }
    Err(match bad {
        Some(key) => SignatureError::BadSignature { key },
        None if signatures.is_empty() => SignatureError::Unsigned,
        None => SignatureError::UnknownKey { ids: signatures.iter().map(|signature| signature.key.clone()).collect() },
    })
}

/// Reasons to reject a list of trusted keys.
#[derive(Debug, Error)]
pub enum TrustError {
    #[error("the list of trusted keys has no valid signature")]
    Signature(#[from] SignatureError),
    #[error("the list of trusted keys cannot be parsed")]
    Malformed(#[from] PayloadError),
    #[error("the list of trusted keys is stale: it has serial {found}, and serial {known} is known already")]
    NotNewer { known: u64, found: u64 },
}

/// Builds a list of trusted keys and signs it with keys that are trusted so far.
pub fn sign_list(serial: u64, keys: Vec<PublicKey>, signers: &[SigningKey]) -> Result<SignedTrust, PayloadError> {
    let list = TrustList { format: FORMAT, serial, keys };
    let payload = serde_json::to_string(&list).map_err(|source| PayloadError::Malformed { source })?;
    let mut signed = SignedTrust { payload, signatures: Vec::new() };
    signed.signatures = sign_bytes(&signed.signed_bytes(), signers);
    signed.read().map(|_| signed)
}

/// Verifies that a key that is trusted so far has signed the list, and that its serial is above `known`.
pub fn verify_list(signed: &SignedTrust, trusted: &[PublicKey], known: Option<u64>) -> Result<TrustList, TrustError> {
    verify_signatures(&signed.signed_bytes(), &signed.signatures, trusted)?;
    let list = signed.read()?;
    match known {
        Some(known) if list.serial <= known => Err(TrustError::NotNewer { known, found: list.serial }),
        Some(_) | None => Ok(list),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::release::manifest::{Digest, SERIAL_LIMIT};

    use super::*;

    /// Agents and servers accept only what `authenticate` returns.
    #[test]
    fn signed_serial_above_the_limit_is_refused() {
        let key = SigningKey::generate("").unwrap();
        let digest = Digest::of_sha256(&[7; 32]);
        let bundle = BundleInfo { digest: digest.clone(), size: 1, content: digest, files: 1, content_size: 1 };
        let label = |serial| ReleaseLabel {
            version: Version::new("v1").unwrap(),
            env: ReleaseEnv::Any,
            serial,
            created: Timestamp::UNIX_EPOCH,
            expires: None,
            previous: None,
        };
        assert!(sign(&create(label(SERIAL_LIMIT), &bundle), &[]).is_ok());
        let too_high = create(label(SERIAL_LIMIT + 1), &bundle);
        assert!(matches!(sign(&too_high, &[]), Err(PayloadError::Serial { .. })));

        let mut signed = SignedManifest { payload: serde_json::to_string(&too_high).unwrap(), signatures: Vec::new() };
        signed.signatures = vec![key.sign(&signed.signed_bytes())];
        let refused = authenticate(&signed, &[key.public().clone()]).unwrap_err();
        assert!(matches!(refused, VerifyError::Malformed(PayloadError::Serial { .. })), "{refused:?}");
    }
}
