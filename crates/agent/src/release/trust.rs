//! Whose releases the node runs: the keys of its configuration, until one of them has signed a list of others.
//!
//! A list replaces the keys before it, whole. So keys rotate without a person on every node, and the server, which only
//! hands lists on, cannot add a key of its own. What a person writes into the configuration later wins over every list so
//! far. Their serials are not forgotten with them: nobody can bring an old list back because the configuration has changed.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use muster_core::release::manifest::{PublicKey, SignedTrust};
use muster_release::trust::{self, TrustError};

use crate::durable::{self, WriteError};
use crate::ledger::{LoadError, read_or_move_aside};

/// Why a list of keys is not gone by.
#[derive(Debug, Error)]
pub enum TakeListError {
    #[error("the server's list of trusted keys is refused; the node goes on with the keys that it has")]
    Refused(#[from] TrustError),
    #[error("a new list of trusted keys cannot be kept; the node goes on with the keys that it has")]
    Write(#[from] WriteError),
}

/// `trust.json`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct List {
    /// The keys of the configuration that it grew out of.
    configured: Vec<PublicKey>,
    /// What it says; proved when it was taken, by keys that may be gone by now.
    serial: u64,
    keys: Vec<PublicKey>,
    /// As it came, for whoever wants to know who signed it.
    signed: SignedTrust,
}

#[derive(Debug)]
pub struct Trust {
    path: PathBuf,
    configured: Vec<PublicKey>,
    /// The last one that was taken. Its serial counts always, its keys only beside the configuration that it grew out of.
    last: Mutex<Option<List>>,
}

impl Trust {
    pub fn load(path: PathBuf, configured: Vec<PublicKey>) -> Result<Self, LoadError> {
        let last: Option<List> = read_or_move_aside(&path)?;
        if let Some(list) = last.as_ref().filter(|list| list.configured != configured) {
            tracing::warn!(
                serial = list.serial,
                "`trusted_keys` of the configuration has changed: it counts, and the list of keys from before does not"
            );
        }
        Ok(Self { path, configured, last: Mutex::new(last) })
    }

    /// The keys that count now.
    pub fn keys(&self) -> Vec<PublicKey> {
        self.that_count(self.last().as_ref()).to_vec()
    }

    /// The highest of all lists that were taken: no other list with it or a lower one is. 0 if there was none.
    pub fn serial(&self) -> u64 {
        self.last().as_ref().map_or(0, |list| list.serial)
    }

    /// Goes by another list, if a key that is trusted so far has signed it, and if it is newer.
    pub fn take(&self, signed: SignedTrust) -> Result<(), TakeListError> {
        let mut last = self.last();
        let known = last.as_ref().map(|list| list.serial);
        let taken = trust::verify_list(&signed, self.that_count(last.as_ref()), known)?;
        let new = List { configured: self.configured.clone(), serial: taken.serial, keys: taken.keys, signed };
        durable::write_json(&self.path, &new)?;
        let ids: Vec<String> = new.keys.iter().map(|key| key.id().to_string()).collect();
        tracing::info!(serial = new.serial, keys = ids.join(", "), "other keys sign the releases from now on");
        *last = Some(new);
        Ok(())
    }

    fn that_count<'a>(&'a self, last: Option<&'a List>) -> &'a [PublicKey] {
        last.filter(|list| list.configured == self.configured).map_or(&self.configured, |list| &list.keys)
    }

    fn last(&self) -> MutexGuard<'_, Option<List>> {
        // What is in it is replaced whole, and so whole whoever panicked.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use muster_release::key::SigningKey;
    use muster_release::trust::SignatureError;

    fn key() -> SigningKey {
        SigningKey::generate("").unwrap()
    }

    fn list(serial: u64, keys: &[&SigningKey], signer: &SigningKey) -> SignedTrust {
        signed_list(serial, keys, &[signer])
    }

    fn signed_list(serial: u64, keys: &[&SigningKey], signers: &[&SigningKey]) -> SignedTrust {
        let keys = keys.iter().map(|key| key.public().clone()).collect();
        let signers: Vec<_> = signers.iter().map(|key| SigningKey::from_pem(&key.to_pem()).unwrap()).collect();
        trust::sign_list(serial, keys, &signers).unwrap()
    }

    struct Node {
        dir: tempfile::TempDir,
        first: SigningKey,
    }

    impl Node {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap(), first: key() }
        }

        fn trust(&self) -> Trust {
            Trust::load(self.dir.path().join("trust.json"), vec![self.first.public().clone()]).unwrap()
        }
    }

    #[test]
    fn keys_rotate_by_lists_that_the_last_ones_signed_and_that_outlives_the_agent() {
        let node = Node::new();
        let (second, third) = (key(), key());
        let trust = node.trust();
        assert_eq!((trust.serial(), trust.keys()), (0, vec![node.first.public().clone()]));
        trust.take(list(1, &[&second], &node.first)).unwrap();
        trust.take(list(2, &[&third], &second)).unwrap();
        let again = node.trust();
        assert_eq!((again.serial(), again.keys()), (2, vec![third.public().clone()]));
    }

    #[test]
    fn a_node_that_was_away_for_several_changes_takes_a_list_that_its_own_key_signed_too() {
        let node = Node::new();
        let (second, third) = (key(), key());
        let trust = node.trust();
        assert!(trust.take(list(3, &[&third], &second)).is_err());
        trust.take(signed_list(3, &[&third], &[&second, &node.first])).unwrap();
        assert_eq!((trust.serial(), trust.keys()), (3, vec![third.public().clone()]));
    }

    #[test]
    fn nobody_else_adds_a_key() {
        let node = Node::new();
        let (second, stranger) = (key(), key());
        let trust = node.trust();
        trust.take(list(5, &[&second], &node.first)).unwrap();
        // The stranger for itself; the first key, whose time is over; a list from before; one that was changed.
        let by_stranger = trust.take(list(6, &[&stranger], &stranger)).unwrap_err();
        assert!(matches!(
            by_stranger,
            TakeListError::Refused(TrustError::Signature(SignatureError::UnknownKey { .. }))
        ));
        assert!(trust.take(list(6, &[&node.first], &node.first)).is_err());
        for serial in [4, 5] {
            let older = trust.take(list(serial, &[&stranger], &second)).unwrap_err();
            assert!(matches!(older, TakeListError::Refused(TrustError::NotNewer { known: 5, .. })), "{older:?}");
        }
        let mut changed = list(6, &[&second], &second);
        changed.payload = changed.payload.replace("\"serial\":6", "\"serial\":7");
        let changed = trust.take(changed).unwrap_err();
        assert!(matches!(changed, TakeListError::Refused(TrustError::Signature(SignatureError::BadSignature { .. }))));
        assert_eq!((trust.serial(), trust.keys()), (5, vec![second.public().clone()]));
        assert_eq!(node.trust().serial(), 5);
    }

    #[test]
    fn a_person_who_writes_other_keys_into_the_configuration_wins() {
        let node = Node::new();
        node.trust().take(list(5, &[&key()], &node.first)).unwrap();
        let (other, third) = (key(), key());
        let load = || Trust::load(node.dir.path().join("trust.json"), vec![other.public().clone()]).unwrap();
        let trust = load();
        assert_eq!(trust.keys(), vec![other.public().clone()]);
        // Lists from before do not come back, not even after another start, and whoever signed them.
        for trust in [trust, load()] {
            for serial in [4, 5] {
                let older = trust.take(list(serial, &[&third], &other)).unwrap_err();
                assert!(matches!(older, TakeListError::Refused(TrustError::NotNewer { known: 5, .. })), "{older:?}");
            }
            assert!(trust.take(list(6, &[&third], &node.first)).is_err(), "its time is over");
            assert_eq!((trust.serial(), trust.keys()), (5, vec![other.public().clone()]));
        }
        load().take(list(6, &[&third], &other)).unwrap();
        assert_eq!((load().serial(), load().keys()), (6, vec![third.public().clone()]));
    }

    #[test]
    fn a_list_that_cannot_be_kept_does_not_count() {
        let node = Node::new();
        let trust = Trust::load(node.dir.path().join("none/trust.json"), vec![node.first.public().clone()]).unwrap();
        assert!(matches!(trust.take(list(1, &[&key()], &node.first)), Err(TakeListError::Write(_))));
        assert_eq!((trust.serial(), trust.keys()), (0, vec![node.first.public().clone()]));
    }
}
