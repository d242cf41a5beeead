//! Signs, and proves signatures. What the bytes are is the business of [`crate::manifest`] and [`crate::trust`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use muster_core::release_manifest::{KeyId, PublicKey, SIGNATURE_LIMIT, Signature};
use ring::signature::{ED25519, UnparsedPublicKey};
use thiserror::Error;

use crate::key::SigningKey;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SignatureError {
    #[error("it is not signed")]
    Unsigned,
    #[error("it is signed by {}, and no such key is trusted here", listed(ids))]
    UnknownKey { ids: Vec<KeyId> },
    #[error("the signature of key {key} is not valid: what was signed was something else")]
    BadSignature { key: KeyId },
}

fn listed(ids: &[KeyId]) -> String {
    let ids: Vec<&str> = ids.iter().map(KeyId::as_str).collect();
    format!("{} {}", if ids.len() == 1 { "key" } else { "keys" }, ids.join(", "))
}

pub(crate) fn sign(bytes: &[u8], keys: &[SigningKey]) -> Vec<Signature> {
    keys.iter().map(|key| key.sign(bytes)).collect()
}

/// Proves that one of the trusted keys has signed, and says which. One is enough; what others did does not count.
pub(crate) fn prove(bytes: &[u8], signatures: &[Signature], trusted: &[PublicKey]) -> Result<KeyId, SignatureError> {
    let mut bad = None;
    for signature in signatures.iter().take(SIGNATURE_LIMIT) {
        // The id only says which key to try: two keys of one id would both be tried.
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
