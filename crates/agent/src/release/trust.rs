//! Trusted keys: the keys of the configuration, until one of them has signed a list of other keys.
//!
//! A list replaces all earlier keys. Keys rotate without manual work on each node, and the server, which only distributes
//! lists, cannot add a key of its own. A later change of the configuration overrides all lists so far. Their serials still
//! count, so that no old list applies again after the configuration has changed.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use muster_core::release::manifest::{PublicKey, SignedTrust};
use muster_release::manifest;
use muster_release::manifest::TrustError;

use crate::state::durable::{self, StateWriteError};
use crate::state::ledger::{LoadError, read_or_move_aside};

/// Reason that a list of keys was not accepted.
#[derive(Debug, Error)]
pub enum UpdateTrustError {
    #[error("refused the server's list of trusted keys; the node keeps its keys")]
    Refused(#[from] TrustError),
    #[error("cannot store a new list of trusted keys; the node keeps its keys")]
    Write(#[from] StateWriteError),
}

/// `trust.json`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredTrustList {
    /// The configured keys at the time of the list.
    configured: Vec<PublicKey>,
    /// Verified when it was accepted, with keys that may be replaced by now.
    serial: u64,
    keys: Vec<PublicKey>,
    /// The list as received, for debugging.
    signed: SignedTrust,
}

#[derive(Debug)]
pub struct TrustStore {
    path: PathBuf,
    configured: Vec<PublicKey>,
    /// The last accepted list. Its serial always counts, its keys only with the same configured keys.
    last: Mutex<Option<StoredTrustList>>,
}

impl TrustStore {
    pub fn load(path: PathBuf, configured: Vec<PublicKey>) -> Result<Self, LoadError> {
        let last: Option<StoredTrustList> = read_or_move_aside(&path)?;
        if let Some(list) = last.as_ref().filter(|list| list.configured != configured) {
            tracing::warn!(
                serial = list.serial,
                "`trusted_keys` in the configuration has changed: it overrides the earlier list of keys"
            );
        }
        Ok(Self { path, configured, last: Mutex::new(last) })
    }

    /// The current keys.
    pub fn keys(&self) -> Vec<PublicKey> {
        self.current_keys(self.last().as_ref()).to_vec()
    }

    /// Serial of the last accepted list; 0 if there was none. Lists with this or a lower serial are refused.
    pub fn serial(&self) -> u64 {
        self.last().as_ref().map_or(0, |list| list.serial)
    }

    /// Accepts a list if a current key has signed it and it is newer.
    pub fn update(&self, signed: SignedTrust) -> Result<(), UpdateTrustError> {
        let mut last = self.last();
        let known = last.as_ref().map(|list| list.serial);
        let taken = manifest::verify_list(&signed, self.current_keys(last.as_ref()), known)?;
        let new =
            StoredTrustList { configured: self.configured.clone(), serial: taken.serial, keys: taken.keys, signed };
        durable::write_json(&self.path, &new)?;
        let ids: Vec<String> = new.keys.iter().map(|key| key.id().to_string()).collect();
        tracing::info!(serial = new.serial, keys = ids.join(", "), "accepted a new list of trusted keys");
        *last = Some(new);
        Ok(())
    }

    fn current_keys<'a>(&'a self, last: Option<&'a StoredTrustList>) -> &'a [PublicKey] {
        last.filter(|list| list.configured == self.configured).map_or(&self.configured, |list| &list.keys)
    }

    fn last(&self) -> MutexGuard<'_, Option<StoredTrustList>> {
        // The content is always replaced as a whole, so it is consistent also after a panic.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use muster_release::key::SigningKey;
    use muster_release::manifest::SignatureError;

    fn key() -> SigningKey {
        SigningKey::generate("").unwrap()
    }

    fn list(serial: u64, keys: &[&SigningKey], signer: &SigningKey) -> SignedTrust {
        signed_list(serial, keys, &[signer])
    }

    fn signed_list(serial: u64, keys: &[&SigningKey], signers: &[&SigningKey]) -> SignedTrust {
        let keys = keys.iter().map(|key| key.public().clone()).collect();
        let signers: Vec<_> = signers.iter().map(|key| SigningKey::from_pem(&key.to_pem()).unwrap()).collect();
        manifest::sign_list(serial, keys, &signers).unwrap()
    }

    struct TrustFixture {
        dir: tempfile::TempDir,
        first: SigningKey,
    }

    impl TrustFixture {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap(), first: key() }
        }

        fn trust(&self) -> TrustStore {
            TrustStore::load(self.dir.path().join("trust.json"), vec![self.first.public().clone()]).unwrap()
        }
    }

    #[test]
    fn keys_rotate_by_signed_lists_and_persist() {
        let node = TrustFixture::new();
        let (second, third) = (key(), key());
        let trust = node.trust();
        assert_eq!((trust.serial(), trust.keys()), (0, vec![node.first.public().clone()]));
        trust.update(list(1, &[&second], &node.first)).unwrap();
        trust.update(list(2, &[&third], &second)).unwrap();
        let again = node.trust();
        assert_eq!((again.serial(), again.keys()), (2, vec![third.public().clone()]));
    }

    #[test]
    fn node_that_missed_lists_accepts_one_signed_by_its_own_key() {
        let node = TrustFixture::new();
        let (second, third) = (key(), key());
        let trust = node.trust();
        assert!(trust.update(list(3, &[&third], &second)).is_err());
        trust.update(signed_list(3, &[&third], &[&second, &node.first])).unwrap();
        assert_eq!((trust.serial(), trust.keys()), (3, vec![third.public().clone()]));
    }

    #[test]
    fn list_without_a_trusted_signature_is_refused() {
        let node = TrustFixture::new();
        let (second, stranger) = (key(), key());
        let trust = node.trust();
        trust.update(list(5, &[&second], &node.first)).unwrap();
        // Signed by an unknown key; by a replaced key; an older list; a list that was changed.
        let by_stranger = trust.update(list(6, &[&stranger], &stranger)).unwrap_err();
        assert!(matches!(
            by_stranger,
            UpdateTrustError::Refused(TrustError::Signature(SignatureError::UnknownKey { .. }))
        ));
        assert!(trust.update(list(6, &[&node.first], &node.first)).is_err());
        for serial in [4, 5] {
            let older = trust.update(list(serial, &[&stranger], &second)).unwrap_err();
            assert!(matches!(older, UpdateTrustError::Refused(TrustError::NotNewer { known: 5, .. })), "{older:?}");
        }
        let mut changed = list(6, &[&second], &second);
        changed.payload = changed.payload.replace("\"serial\":6", "\"serial\":7");
        let changed = trust.update(changed).unwrap_err();
        assert!(matches!(
            changed,
            UpdateTrustError::Refused(TrustError::Signature(SignatureError::BadSignature { .. }))
        ));
        assert_eq!((trust.serial(), trust.keys()), (5, vec![second.public().clone()]));
        assert_eq!(node.trust().serial(), 5);
    }

    #[test]
    fn changed_configuration_overrides_lists() {
        let node = TrustFixture::new();
        node.trust().update(list(5, &[&key()], &node.first)).unwrap();
        let (other, third) = (key(), key());
        let load = || TrustStore::load(node.dir.path().join("trust.json"), vec![other.public().clone()]).unwrap();
        let trust = load();
        assert_eq!(trust.keys(), vec![other.public().clone()]);
        // Earlier lists stay refused, also after a restart, with any signature.
        for trust in [trust, load()] {
            for serial in [4, 5] {
                let older = trust.update(list(serial, &[&third], &other)).unwrap_err();
                assert!(matches!(older, UpdateTrustError::Refused(TrustError::NotNewer { known: 5, .. })), "{older:?}");
            }
            assert!(trust.update(list(6, &[&third], &node.first)).is_err(), "the key was replaced");
            assert_eq!((trust.serial(), trust.keys()), (5, vec![other.public().clone()]));
        }
        load().update(list(6, &[&third], &other)).unwrap();
        assert_eq!((load().serial(), load().keys()), (6, vec![third.public().clone()]));
    }

    #[test]
    fn list_that_cannot_be_stored_is_not_used() {
        let node = TrustFixture::new();
        let trust =
            TrustStore::load(node.dir.path().join("none/trust.json"), vec![node.first.public().clone()]).unwrap();
        assert!(matches!(trust.update(list(1, &[&key()], &node.first)), Err(UpdateTrustError::Write(_))));
        assert_eq!((trust.serial(), trust.keys()), (0, vec![node.first.public().clone()]));
    }
}
