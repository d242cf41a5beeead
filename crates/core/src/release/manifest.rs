//! What is signed: the manifest of a release, and the list of keys that agents trust. Plain data; who may sign, and
//! whether somebody did, is proved in `muster-release`.
//!
//! A payload is kept as the exact text that was signed. Nobody writes it anew: a second writer that orders fields or
//! spells a time otherwise would break every signature.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use utoipa::openapi::{Object, RefOr, Schema, schema::Type};
use utoipa::{PartialSchema, ToSchema};

use crate::names::{NameError, Version, name};
use crate::release::dir::hex;

/// The format of payloads that this Muster writes and understands.
pub const FORMAT: u32 = 1;
/// A payload that is longer is not looked at: it is read before anything of it is proved.
pub const PAYLOAD_LIMIT: usize = 8 * 1024;
/// So many signatures are enough for two keys of every person in the largest team, and few enough to prove each.
pub const SIGNATURE_LIMIT: usize = 16;
/// So many keys may be trusted at a time.
pub const KEY_LIMIT: usize = 32;

const ALGORITHM: &str = "ed25519:";
/// Room for a name, an address and a machine.
const COMMENT_LIMIT: usize = 128;

name!(
    /// Says which key: the first 16 hexadecimal digits of the SHA-256 of the public key. A hint for finding the key, never
    /// a proof.
    KeyId, "key id",
    "16 of 0-9 and a-f", is_key_id
);
name!(
    /// What content is called by: it can be used as a name of a file.
    Digest, "digest",
    "sha256: and 64 of 0-9 and a-f", is_digest
);

impl Digest {
    /// The digest that a hash has come to.
    pub fn of_sha256(hash: &[u8; 32]) -> Self {
        Self(format!("sha256:{}", hex(hash)).into())
    }

    /// The hexadecimal digits alone.
    pub fn hex(&self) -> &str {
        self.0.trim_start_matches("sha256:")
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn is_key_id(text: &str) -> bool {
    is_hex(text, 16)
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|digits| is_hex(digits, 64))
}

/// The public half of a signing key: `ed25519:<base64 of 32 bytes>`, then optionally a space and a comment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey {
    bytes: [u8; 32],
    comment: Option<String>,
}

impl PublicKey {
    /// What a legal one looks like, for messages to people.
    pub const RULE: &'static str = "ed25519: and 32 bytes in base64, then optionally a space and a comment in one line";

    pub fn new(text: &str) -> Result<Self, NameError> {
        Self::parse(text).ok_or_else(|| NameError {
            what: "public key",
            // Whoever gives a private key by mistake must not find it in a log.
            text: text.chars().take(ALGORITHM.len()).chain("…".chars()).collect(),
            rule: Self::RULE,
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let (key, comment) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let bytes = BASE64.decode(key.strip_prefix(ALGORITHM)?).ok()?.try_into().ok()?;
        Self { bytes, comment: None }.with_comment(comment)
    }

    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self { bytes, comment: None }
    }

    /// The same key with another comment; `None` if that is not one line of a reasonable length.
    pub fn with_comment(self, comment: &str) -> Option<Self> {
        let comment = comment.trim();
        let legal = comment.len() <= COMMENT_LIMIT && !comment.chars().any(char::is_control);
        legal.then(|| Self { comment: (!comment.is_empty()).then(|| comment.to_owned()), ..self })
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    pub fn comment(&self) -> Option<&str> {
        self.comment.as_deref()
    }

    pub fn id(&self) -> KeyId {
        KeyId(hex(&Sha256::digest(self.bytes)[..8]).into())
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", BASE64.encode(self.bytes))?;
        self.comment.as_ref().map_or(Ok(()), |comment| write!(f, " {comment}"))
    }
}

impl FromStr for PublicKey {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(&text)
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> String {
        key.to_string()
    }
}

/// Written by hand: the derive can say "a string" of a tuple alone.
impl PartialSchema for PublicKey {
    fn schema() -> RefOr<Schema> {
        let text = Object::builder().schema_type(Type::String).description(Some(Self::RULE));
        RefOr::T(Schema::Object(text.build()))
    }
}

impl ToSchema for PublicKey {}

/// One signature of a payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    pub key: KeyId,
    /// 64 bytes in base64.
    pub signature: String,
}

/// What a release is, in the words that were signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub version: Version,
    /// Grows with each release: an agent goes to a lower one only when it is told that it may.
    pub serial: u64,
    /// Of the bundle, which is a `tar.zst`.
    pub digest: Digest,
    /// Of the bundle, in bytes.
    pub size: u64,
    /// Of the unpacked tree: see [`crate::release::dir::digest`].
    pub content: Digest,
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    /// From then on no node goes to it any more; one that runs it already goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires: Option<Timestamp>,
    /// The version that it was made from, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Version>,
}

/// A [`Manifest`] and who stands for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignedManifest {
    /// The manifest as JSON, exactly as it was signed.
    pub payload: String,
    pub signatures: Vec<Signature>,
}

/// The keys that agents trust from now on: exactly these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustList {
    pub format: u32,
    /// Grows with each list: an agent takes only a higher one.
    pub serial: u64,
    pub keys: Vec<PublicKey>,
}

/// A [`TrustList`] and who stands for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignedTrust {
    /// The list as JSON, exactly as it was signed.
    pub payload: String,
    pub signatures: Vec<Signature>,
}

/// Why a payload cannot be understood, whoever signed it.
#[derive(Debug, Error)]
pub enum PayloadError {
    #[error("it is longer than {PAYLOAD_LIMIT} bytes")]
    TooLong,
    #[error("it has more than {SIGNATURE_LIMIT} signatures")]
    TooManySignatures,
    #[error("it is of format {found}, and this Muster understands {FORMAT}; a newer Muster made it")]
    Format { found: u64 },
    #[error("it is not what it should be")]
    Malformed {
        #[source]
        source: serde_json::Error,
    },
    #[error("it names no key at all: nobody could ever replace it")]
    NoKeys,
    #[error("it names more than {KEY_LIMIT} keys")]
    TooManyKeys,
}

impl SignedManifest {
    /// What the payload says. Nothing is proved by it: use what `muster-release` verifies for any decision.
    pub fn read(&self) -> Result<Manifest, PayloadError> {
        read(&self.payload, &self.signatures)
    }

    /// What is signed: the payload, after words that no other kind of document begins with.
    pub fn signed_bytes(&self) -> Vec<u8> {
        [b"muster release manifest 1\n", self.payload.as_bytes()].concat()
    }
}

impl SignedTrust {
    /// What the payload says. Nothing is proved by it: use what `muster-release` verifies for any decision.
    pub fn read(&self) -> Result<TrustList, PayloadError> {
        let list: TrustList = read(&self.payload, &self.signatures)?;
        match list.keys.len() {
            0 => Err(PayloadError::NoKeys),
            1..=KEY_LIMIT => Ok(list),
            _ => Err(PayloadError::TooManyKeys),
        }
    }

    /// What is signed: the payload, after words that no other kind of document begins with.
    pub fn signed_bytes(&self) -> Vec<u8> {
        [b"muster trusted keys 1\n", self.payload.as_bytes()].concat()
    }
}

fn read<T: DeserializeOwned>(payload: &str, signatures: &[Signature]) -> Result<T, PayloadError> {
    /// Looked at first: fields that we do not know are a newer format's good right.
    #[derive(Deserialize)]
    struct Marked {
        format: u64,
    }
    if payload.len() > PAYLOAD_LIMIT {
        return Err(PayloadError::TooLong);
    }
    if signatures.len() > SIGNATURE_LIMIT {
        return Err(PayloadError::TooManySignatures);
    }
    let malformed = |source| PayloadError::Malformed { source };
    let found = serde_json::from_str::<Marked>(payload).map_err(malformed)?.format;
    if found != u64::from(FORMAT) {
        return Err(PayloadError::Format { found });
    }
    serde_json::from_str(payload).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(payload: &str) -> Result<Manifest, PayloadError> {
        SignedManifest { payload: payload.to_owned(), signatures: Vec::new() }.read()
    }

    #[test]
    fn a_manifest_reads_as_it_is_documented() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let payload = format!(
            r#"{{"format":1,"version":"v2","serial":7,"digest":"{digest}","size":123,"content":"{digest}",
                "created":"2026-01-02T03:04:05Z","expires":"2026-04-02T03:04:05Z","previous":"v1"}}"#
        );
        let manifest = manifest(&payload).unwrap();
        assert_eq!((manifest.serial, manifest.size, manifest.digest.as_str()), (7, 123, digest.as_str()));
        assert_eq!(manifest.digest.hex(), "a".repeat(64));
        assert_eq!(manifest.previous.unwrap().as_str(), "v1");
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert!(matches!(manifest(r#"{"format":2,"new":true}"#), Err(PayloadError::Format { found: 2 })));
        assert!(matches!(manifest(r#"{"format":1}"#), Err(PayloadError::Malformed { .. })));
        assert!(matches!(manifest("nonsense"), Err(PayloadError::Malformed { .. })));
        assert!(matches!(manifest(&" ".repeat(PAYLOAD_LIMIT + 1)), Err(PayloadError::TooLong)));
        let trust = |payload: &str| SignedTrust { payload: payload.to_owned(), signatures: Vec::new() }.read();
        assert!(matches!(trust(r#"{"format":1,"serial":1,"keys":[]}"#), Err(PayloadError::NoKeys)));
    }

    #[test]
    fn a_public_key_is_text_with_a_comment() {
        let key = PublicKey::from_bytes([7; 32]);
        assert_eq!(key.to_string(), "ed25519:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=");
        let named = PublicKey::new(&format!("{key}  anna, on her laptop \n")).unwrap();
        assert_eq!(named.comment(), Some("anna, on her laptop"));
        assert_eq!(named.to_string(), format!("{key} anna, on her laptop"));
        assert_eq!((named.bytes(), named.id()), (key.bytes(), key.id()));
        assert_eq!(key.id().as_str().len(), 16);
        for wrong in ["", "ed25519:", "ed25519:BwcH", "rsa:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=", "a\nb"] {
            assert!(PublicKey::new(wrong).is_err(), "{wrong:?}");
        }
        let refused = PublicKey::new("ed25519:secretsecret").unwrap_err().to_string();
        assert!(!refused.contains("secret"), "{refused}");
    }

    #[test]
    fn a_digest_can_name_a_file() {
        for wrong in ["sha256:../x", "", &"a".repeat(64), &format!("sha256:{}", "A".repeat(64))] {
            assert!(Digest::new(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(Digest::of_sha256(&[0xab; 32]).as_str(), format!("sha256:{}", "ab".repeat(32)));
    }
}
