//! Makes and proves lists of trusted keys, so that keys rotate without a person on every node.

use muster_core::release_manifest::{FORMAT, PayloadError, PublicKey, SignedTrust, TrustList};
use thiserror::Error;

use crate::key::SigningKey;
use crate::signatures::{self, SignatureError};

/// Why a list of trusted keys is not taken.
#[derive(Debug, Error)]
pub enum TrustError {
    #[error("the list of trusted keys does not count")]
    Signature(#[from] SignatureError),
    #[error("the list of trusted keys is not understood")]
    Malformed(#[from] PayloadError),
    #[error("the list of trusted keys has serial {found}, and {known} is known already")]
    NotNewer { known: u64, found: u64 },
}

/// Makes a list and signs it with keys that are trusted so far.
pub fn make(serial: u64, keys: Vec<PublicKey>, signers: &[SigningKey]) -> Result<SignedTrust, PayloadError> {
    let list = TrustList { format: FORMAT, serial, keys };
    let payload = serde_json::to_string(&list).map_err(|source| PayloadError::Malformed { source })?;
    let mut signed = SignedTrust { payload, signatures: Vec::new() };
    signed.signatures = signatures::sign(&signed.signed_bytes(), signers);
    signed.read().map(|_| signed)
}

/// Proves that a key which is trusted so far stands for a list, and that the list is newer than the one of `known`.
pub fn verify(signed: &SignedTrust, trusted: &[PublicKey], known: Option<u64>) -> Result<TrustList, TrustError> {
    signatures::prove(&signed.signed_bytes(), &signed.signatures, trusted)?;
    let list = signed.read()?;
    match known {
        Some(known) if list.serial <= known => Err(TrustError::NotNewer { known, found: list.serial }),
        Some(_) | None => Ok(list),
    }
}
