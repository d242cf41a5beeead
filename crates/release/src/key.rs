//! Reads, writes and generates Ed25519 signing keys, in the format of OpenSSL (PKCS#8, PEM).

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use muster_core::names::NameError;
use muster_core::release::manifest::{PublicKey, Signature};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use thiserror::Error;

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";
/// A line before the key, which PEM allows; it names the owner.
const COMMENT: &str = "Comment: ";
/// Header before the 32 bytes of an Ed25519 key in PKCS#8 (RFC 8410). Version 1, without the public key: OpenSSL refuses
/// version 2.
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// Bytes of a key file, which has about 200; a longer file is something else.
const FILE_LIMIT: u64 = 16 * 1024;

#[derive(Debug, Error)]
pub enum KeyError {
    #[error("cannot read the key {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} can be read by other users (mode {mode:04o}): run `chmod 600` on it, and consider generating a new key", path.display())]
    Readable { path: PathBuf, mode: u32 },
    #[error("{} is not a private Ed25519 key (PKCS#8, PEM); `muster key new` generates one", path.display())]
    NotAKey { path: PathBuf },
    #[error("{} exists already, and a key is never overwritten", path.display())]
    Exists { path: PathBuf },
    #[error("cannot write the key {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the operating system provides no random numbers")]
    NoRandomness,
    #[error("a key's comment is one line of at most 128 bytes")]
    Comment,
    #[error("{} is not a public key", path.display())]
    NotPublic {
        path: PathBuf,
        #[source]
        source: NameError,
    },
}

/// A private key. Its `Debug` output has the public half only, which keeps it out of messages and logs.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    pkcs8: Vec<u8>,
    public: PublicKey,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Generates a new key.
    pub fn generate(comment: &str) -> Result<Self, KeyError> {
        let mut pkcs8 = [PKCS8_HEAD, [0; 16], [0; 16]].concat();
        SystemRandom::new().fill(&mut pkcs8[PKCS8_HEAD.len()..]).map_err(|_| KeyError::NoRandomness)?;
        let key = Self::from_pkcs8(pkcs8).ok_or(KeyError::NoRandomness)?;
        let public = key.public.with_comment(comment).ok_or(KeyError::Comment)?;
        Ok(Self { public, ..key })
    }

    fn from_pkcs8(pkcs8: Vec<u8>) -> Option<Self> {
        // Both versions, with and without the public key: the public half is derived from the private one.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8).ok()?;
        let public = PublicKey::from_bytes(pair.public_key().as_ref().try_into().ok()?);
        Some(Self { pair, pkcs8, public })
    }

    /// Parses the text of a key file.
    pub fn from_pem(text: &str) -> Option<Self> {
        let (before, rest) = text.split_once(BEGIN)?;
        let (body, _) = rest.split_once(END)?;
        let body: String = body.split_whitespace().collect();
        let key = Self::from_pkcs8(BASE64.decode(body).ok()?)?;
        let comment = before.lines().find_map(|line| line.strip_prefix(COMMENT)).unwrap_or_default();
        Some(Self { public: key.public.clone().with_comment(comment).unwrap_or(key.public), ..key })
    }

    /// The text of a key file.
    pub fn to_pem(&self) -> String {
        let comment = self.public.comment().map(|comment| format!("{COMMENT}{comment}\n")).unwrap_or_default();
        format!("{comment}{BEGIN}\n{}\n{END}\n", BASE64.encode(&self.pkcs8))
    }

    /// Reads a key file. Refuses one that other users can read.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let failed = |source| KeyError::Read { path: path.to_owned(), source };
        let meta = fs::metadata(path).map_err(failed)?;
        let mode = meta.permissions().mode() & 0o777;
        if meta.is_file() && mode & 0o077 != 0 {
            return Err(KeyError::Readable { path: path.to_owned(), mode });
        }
        let not_a_key = || KeyError::NotAKey { path: path.to_owned() };
        if meta.len() > FILE_LIMIT {
            return Err(not_a_key());
        }
        let bytes = fs::read(path).map_err(failed)?;
        std::str::from_utf8(&bytes).ok().and_then(Self::from_pem).ok_or_else(not_a_key)
    }

    /// Writes the key to a new file with mode 0600.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        write_new(path, &self.to_pem(), 0o600)
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> Signature {
        Signature { key: self.public.id(), signature: BASE64.encode(self.pair.sign(bytes)) }
    }
}

/// Writes a public key to a new file.
pub fn write_public(key: &PublicKey, path: &Path) -> Result<(), KeyError> {
    write_new(path, &format!("{key}\n"), 0o644)
}

/// Reads a public key from the file of a public key or of its private key.
pub fn read_public(path: &Path) -> Result<PublicKey, KeyError> {
    let failed = |source| KeyError::Read { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(failed)?;
    if text.contains(BEGIN) {
        return SigningKey::read(path).map(|key| key.public);
    }
    PublicKey::new(&text).map_err(|source| KeyError::NotPublic { path: path.to_owned(), source })
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), KeyError> {
    let failed = |source: io::Error| {
        let path = path.to_owned();
        if source.kind() == io::ErrorKind::AlreadyExists {
            KeyError::Exists { path }
        } else {
            KeyError::Write { path, source }
        }
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_file_is_private_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("release.key");
        let key = SigningKey::generate("anna").unwrap();
        key.write_new(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(key.write_new(&path), Err(KeyError::Exists { .. })));
        let again = SigningKey::read(&path).unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(again.public().comment(), Some("anna"));
        assert_eq!(read_public(&path).unwrap(), *key.public());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = SigningKey::read(&path).unwrap_err().to_string();
        assert!(refused.contains("can be read by other users (mode 0640)"), "{refused}");
    }

    #[test]
    fn public_key_file_round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("release.key.pub");
        let key = SigningKey::generate("").unwrap();
        write_public(key.public(), &path).unwrap();
        assert_eq!(read_public(&path).unwrap(), *key.public());
        fs::write(&path, "nonsense").unwrap();
        assert!(matches!(read_public(&path), Err(KeyError::NotPublic { .. })));
    }

    #[test]
    fn key_of_openssl_is_read() {
        // openssl genpkey -algorithm ed25519; openssl pkey -pubout
        let pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";
        let key = SigningKey::from_pem(pem).unwrap();
        // RFC 8032, section 7.1, test 1.
        assert_eq!(
            muster_core::release::dir::hex(key.public().bytes()),
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
        );
        assert_eq!(key.to_pem(), pem);
    }

    #[test]
    fn invalid_keys_are_refused_and_debug_hides_the_key() {
        for text in ["", "ed25519:", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            assert!(SigningKey::from_pem(text).is_none(), "{text:?}");
        }
        let key = SigningKey::generate("x").unwrap();
        assert!(!format!("{key:?}").contains("pkcs8"));
        assert!(matches!(SigningKey::generate("two\nlines"), Err(KeyError::Comment)));
    }
}
