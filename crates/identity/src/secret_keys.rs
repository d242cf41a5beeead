//! Keys that seal secrets: AES-256-GCM, with the place of a secret as associated data.
//!
//! The file has one line for each key, `muster-secrets-key TIME HEX`. The newest key seals. The others open values that were
//! sealed before, also those of older backups. All replicas need the same file.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use jiff::Timestamp;
use muster_core::lookup::Tag;
use muster_core::lookup::config_data::SealedValue;
use muster_core::names::SecretKeyId;
use muster_core::release::dir::hex;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::private_file::{self, PrivateFileError};

/// First word of each line. Scanners of leaked secrets can search for it.
const WORD: &str = "muster-secrets-key";
const KEY_LEN: usize = 32;
/// Digits of a key's id.
const ID_DIGITS: usize = 16;

#[derive(Debug, Error)]
pub enum SecretKeysError {
    #[error(
        "the keys that open secrets cannot be read; copy the file from another server or from where you keep a copy of it"
    )]
    File(#[source] PrivateFileError),
    #[error("line {line} of {} is no key: expected `{WORD} TIME HEX`; restore the file from a copy", path.display())]
    Line { path: PathBuf, line: usize },
    #[error("{} has no key; restore the file from a copy, or delete it if no secret was ever set", path.display())]
    Empty { path: PathBuf },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the system's random numbers are not available")]
    NoRandomness,
}

/// Reason why a sealed value cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnopenedSecret {
    #[error("the server does not have the key {0} that opens it")]
    MissingKey(SecretKeyId),
    #[error("it was changed, or copied from another place: key {0} does not open it")]
    Altered(SecretKeyId),
}

#[derive(Clone)]
struct SecretKey {
    created: Timestamp,
    id: SecretKeyId,
    bytes: [u8; KEY_LEN],
}

impl SecretKey {
    /// None without random numbers of the system.
    fn generate(created: Timestamp) -> Option<Self> {
        let mut bytes = [0; KEY_LEN];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Self::new(created, bytes)
    }

    /// The id is a hash: a damaged line is another key, and not a key that opens nothing.
    fn new(created: Timestamp, bytes: [u8; KEY_LEN]) -> Option<Self> {
        let digest = hex(&Sha256::new().chain_update(WORD).chain_update(bytes).finalize());
        Some(Self { created, id: SecretKeyId::new(digest.get(..ID_DIGITS)?).ok()?, bytes })
    }

    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (word, created, digits) = (words.next()?, words.next()?, words.next()?);
        if word != WORD || words.next().is_some() || digits.len() != 2 * KEY_LEN || !digits.is_ascii() {
            return None;
        }
        let mut bytes = [0; KEY_LEN];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Self::new(created.parse().ok()?, bytes)
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&AES_256_GCM, &self.bytes).ok().map(LessSafeKey::new)
    }
}

/// The keys of a file, the newest first: by their times, so that all replicas have the same order.
#[derive(Clone, Default)]
pub struct SecretKeys(Vec<SecretKey>);

impl SecretKeys {
    /// Reads a file; none if it does not exist.
    pub fn read(path: &Path) -> Result<Option<Self>, SecretKeysError> {
        if !path.try_exists().map_err(|source| read_error(path, source))? {
            return Ok(None);
        }
        let text = private_file::read(path).map_err(SecretKeysError::File)?;
        let mut keys = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let failed = || SecretKeysError::Line { path: path.to_owned(), line: number + 1 };
            keys.push(SecretKey::read(line).ok_or_else(failed)?);
        }
        if keys.is_empty() {
            return Err(SecretKeysError::Empty { path: path.to_owned() });
        }
        Ok(Some(Self::sorted(keys)))
    }

    fn sorted(mut keys: Vec<SecretKey>) -> Self {
        keys.sort_by(|one, other| other.created.cmp(&one.created).then_with(|| one.id.cmp(&other.id)));
        keys.dedup_by(|one, other| one.id == other.id);
        Self(keys)
    }

    /// These keys and a new one.
    pub fn with_new(&self, now: Timestamp) -> Result<Self, SecretKeysError> {
        // Later than the others, also if the clock was set back.
        let newest = self.0.first().map(|key| key.created.saturating_add(jiff::SignedDuration::from_secs(1)));
        let created = newest.into_iter().flatten().fold(now, Timestamp::max);
        let new = SecretKey::generate(created).ok_or(SecretKeysError::NoRandomness)?;
        Ok(Self::sorted(self.0.iter().cloned().chain([new]).collect()))
    }

    /// Writes the file, with mode 0600.
    pub fn write(&self, path: &Path) -> Result<(), SecretKeysError> {
        let mut text = "# Keys that open the secrets of Muster. Give every server this file, and keep a copy outside of backups.\n".to_owned();
        for key in &self.0 {
            text.push_str(&format!("{WORD} {} {}\n", key.created, hex(&key.bytes)));
        }
        private_file::write(path, &text).map_err(|source| SecretKeysError::Write { path: path.to_owned(), source })
    }

    /// Ids, the newest first.
    pub fn ids(&self) -> Vec<SecretKeyId> {
        self.0.iter().map(|key| key.id.clone()).collect()
    }

    pub fn has(&self, id: &SecretKeyId) -> bool {
        self.0.iter().any(|key| key.id == *id)
    }

    /// Seals a text for a place. None if the key is not there, or without random numbers of the system.
    pub fn seal(&self, id: &SecretKeyId, place: &str, text: &str, tag: Option<&Tag>) -> Option<SealedValue> {
        let key = self.0.iter().find(|key| key.id == *id)?;
        let (mut nonce, mut digits) = ([0; NONCE_LEN], [0; 8]);
        let random = SystemRandom::new();
        random.fill(&mut nonce).and_then(|()| random.fill(&mut digits)).ok()?;
        let tag = tag.cloned().unwrap_or_else(|| Tag::of_secret(u64::from_le_bytes(digits)));
        let mut sealed = text.as_bytes().to_vec();
        let aad = Aad::from(associated_data(place, &tag));
        key.cipher()?.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
        let text = STANDARD_NO_PAD.encode([&nonce[..], &sealed].concat());
        Some(SealedValue { key: id.clone(), text, tag })
    }

    /// Opens a value at its place.
    pub fn open(&self, place: &str, sealed: &SealedValue) -> Result<String, UnopenedSecret> {
        let missing = || UnopenedSecret::MissingKey(sealed.key.clone());
        let key = self.0.iter().find(|key| key.id == sealed.key).ok_or_else(missing)?;
        let opened = || {
            let bytes = STANDARD_NO_PAD.decode(&sealed.text).ok()?;
            let (nonce, text) = bytes.split_at_checked(NONCE_LEN)?;
            let (nonce, mut text) = (Nonce::try_assume_unique_for_key(nonce).ok()?, text.to_vec());
            let aad = Aad::from(associated_data(place, &sealed.tag));
            let opened = key.cipher()?.open_in_place(nonce, aad, &mut text).ok()?;
            String::from_utf8(opened.to_vec()).ok()
        };
        opened().ok_or_else(|| UnopenedSecret::Altered(sealed.key.clone()))
    }
}

/// Without the keys.
impl fmt::Debug for SecretKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretKeys").field(&self.ids()).finish()
    }
}

fn read_error(path: &Path, source: io::Error) -> SecretKeysError {
    SecretKeysError::File(PrivateFileError::Io { path: path.to_owned(), source })
}

/// Begins with the version of this format.
fn associated_data(place: &str, tag: &Tag) -> Vec<u8> {
    format!("muster secret 1\n{place}\n{}", tag.as_str()).into_bytes()
}

/// Creates a file with one new key.
pub fn create(path: &Path, now: Timestamp) -> Result<SecretKeys, SecretKeysError> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|source| SecretKeysError::Write { path: path.to_owned(), source })?;
    }
    let keys = SecretKeys::default().with_new(now)?;
    keys.write(path)?;
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PLACE: &str = "/muster/prod/data/role/db/db%3A%3Apassword";

    fn now() -> Timestamp {
        "2026-11-18T20:00:00Z".parse().unwrap()
    }

    #[test]
    fn value_opens_at_its_place_with_its_key_only() {
        let keys = SecretKeys::default().with_new(now()).unwrap();
        let id = keys.ids().remove(0);
        let sealed = keys.seal(&id, PLACE, "\"hunter2\"", None).unwrap();
        assert_eq!(keys.open(PLACE, &sealed).unwrap(), "\"hunter2\"");
        let again = keys.seal(&id, PLACE, "\"hunter2\"", Some(&sealed.tag)).unwrap();
        assert!(again.text != sealed.text && again.tag == sealed.tag);
        let altered = Err(UnopenedSecret::Altered(id.clone()));
        for place in ["/muster/prod/data/role/web/db%3A%3Apassword", "/muster/test/data/role/db/db%3A%3Apassword", ""] {
            assert_eq!(keys.open(place, &sealed), altered, "{place}");
        }
        let mut bytes = STANDARD_NO_PAD.decode(&sealed.text).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        let broken =
            [STANDARD_NO_PAD.encode(&bytes), STANDARD_NO_PAD.encode(&bytes[..20]), String::new(), "é".to_owned()];
        for text in broken {
            assert_eq!(keys.open(PLACE, &SealedValue { text, ..sealed.clone() }), altered);
        }
        assert_eq!(keys.open(PLACE, &SealedValue { tag: Tag::of_secret(1), ..sealed.clone() }), altered);
        let other = SecretKeys::default().with_new(now()).unwrap();
        assert_eq!(other.open(PLACE, &sealed), Err(UnopenedSecret::MissingKey(id)));
        assert!(!format!("{keys:?}").contains(&hex(&keys.0[0].bytes)));
    }

    #[test]
    fn key_file_is_private_and_keeps_older_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/secrets.key");
        assert!(SecretKeys::read(&path).unwrap().is_none());
        let first = create(&path, now()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // The clock was set back.
        let both = first.with_new(Timestamp::UNIX_EPOCH).unwrap();
        both.write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let reversed: Vec<&str> = text.lines().rev().collect();
        private_file::write(&path, &reversed.join("\n")).unwrap();
        let read = SecretKeys::read(&path).unwrap().unwrap();
        assert_eq!((read.ids(), read.ids()[1].clone()), (both.ids(), first.ids()[0].clone()));
        for (text, problem) in [
            ("muster-secrets-key 2026-11-18T20:00:00Z 00", "line 1 of "),
            ("# empty\n", "has no key"),
            (&format!("\n{WORD} yesterday {}", "0".repeat(64)), "line 2 of "),
        ] {
            private_file::write(&path, text).unwrap();
            let error = SecretKeys::read(&path).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(SecretKeys::read(&path), Err(SecretKeysError::File(PrivateFileError::NotPrivate { .. }))));
    }
}
