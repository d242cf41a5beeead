//! Signed data: the manifest of a release, and the list of keys that agents trust. Signatures are made and verified in
//! `muster-release`.
//!
//! A payload is kept as the exact text that was signed. It is never serialised again: another order of fields or
//! another time format would break the signature.

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

use crate::names::{EnvName, NameError, Version, name};
use crate::release::dir::hex;

/// Payload format of this version of Muster.
pub const FORMAT: u32 = 1;
/// Maximum size of a payload in bytes. It is parsed before its signatures are verified.
pub const PAYLOAD_LIMIT: usize = 8 * 1024;
/// Maximum number of signatures. Enough for two keys of each person in a large team, and few enough to verify all of
/// them.
pub const SIGNATURE_LIMIT: usize = 16;
/// Maximum serial of a manifest or of a list of trusted keys, 2^53 - 1: every JSON parser reads it exactly, and a time in
/// microseconds is below it. Without a limit one mistaken serial could leave no higher one for later releases.
pub const SERIAL_LIMIT: u64 = (1 << 53) - 1;
/// Maximum number of trusted keys.
pub const KEY_LIMIT: usize = 32;

const ALGORITHM: &str = "ed25519:";
/// Enough for a name, an address and a machine.
const COMMENT_LIMIT: usize = 128;

name!(
    /// Key id: the first 16 hexadecimal digits of the SHA-256 of the public key. It helps to find the key and proves
    /// nothing.
    KeyId, "key id",
    "16 of 0-9 and a-f",
    "^[0-9a-f]{16}$",
    is_key_id
);
name!(
    /// Content digest. It is a legal file name.
    Digest, "digest",
    "sha256: and 64 of 0-9 and a-f",
    "^sha256:[0-9a-f]{64}$",
    is_digest
);

impl Digest {
    pub fn of_sha256(hash: &[u8; 32]) -> Self {
        Self(format!("sha256:{}", hex(hash)).into())
    }

    /// The hexadecimal digits without the prefix.
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

/// Public key: `ed25519:<base64 of 32 bytes>`, optionally followed by a space and a comment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey {
    bytes: [u8; 32],
    comment: Option<String>,
}

impl PublicKey {
    /// Rule for legal keys, for error messages.
    pub const RULE: &'static str = "ed25519: and 32 bytes in base64, then optionally a space and a comment in one line";

    pub fn new(text: &str) -> Result<Self, NameError> {
        Self::parse(text).ok_or_else(|| NameError {
            what: "public key",
            // A private key given by mistake must not end up in a log.
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

    /// The same key with another comment. `None` if the comment is too long or has control characters.
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

/// Written by hand: the derive macro supports `value_type` for tuple structs only.
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

/// The environment that a release may run in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ReleaseEnv {
    #[default]
    Any,
    Only(EnvName),
}

impl ReleaseEnv {
    /// Name of all environments in manifests. No environment may have it.
    pub const ANY: &'static str = "any";

    /// True if the release may run in this environment.
    pub fn allows(&self, env: &EnvName) -> bool {
        match self {
            ReleaseEnv::Any => true,
            ReleaseEnv::Only(only) => only == env,
        }
    }
}

impl From<EnvName> for ReleaseEnv {
    fn from(env: EnvName) -> Self {
        if env.as_str() == Self::ANY { ReleaseEnv::Any } else { ReleaseEnv::Only(env) }
    }
}

impl fmt::Display for ReleaseEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReleaseEnv::Any => f.pad(Self::ANY),
            ReleaseEnv::Only(env) => env.fmt(f),
        }
    }
}

impl TryFrom<String> for ReleaseEnv {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        EnvName::new(text).map(Self::from)
    }
}

impl From<ReleaseEnv> for String {
    fn from(env: ReleaseEnv) -> String {
        env.to_string()
    }
}

/// Written by hand: in JSON it is a string.
impl PartialSchema for ReleaseEnv {
    fn schema() -> RefOr<Schema> {
        let text = Object::builder().schema_type(Type::String);
        RefOr::T(Schema::Object(text.description(Some("`any`, or the name of an environment")).build()))
    }
}

impl ToSchema for ReleaseEnv {}

/// Signed description of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub version: Version,
    /// Server and agents of another environment refuse the release. Manifests of earlier versions of Muster have no
    /// environment, and are for any.
    #[serde(default)]
    pub env: ReleaseEnv,
    /// Grows with each release. An agent moves to a lower serial only with permission.
    pub serial: u64,
    /// Digest of the bundle, a `tar.zst` file.
    pub digest: Digest,
    /// Size of the bundle in bytes.
    pub size: u64,
    /// Digest of the unpacked tree, see [`crate::release::dir::digest`].
    pub content: Digest,
    /// Total size of the unpacked files in bytes. Absent in manifests of earlier versions of Muster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_size: Option<u64>,
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    /// No node moves to the release after this time. Nodes that already run it keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires: Option<Timestamp>,
    /// Version that it was derived from. Informational.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Version>,
}

/// A [`Manifest`] with its signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignedManifest {
    /// The manifest as JSON, exactly as it was signed.
    pub payload: String,
    pub signatures: Vec<Signature>,
}

/// Keys that agents trust. A new list replaces the old one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustList {
    pub format: u32,
    /// Grows with each list. An agent accepts only a higher serial.
    pub serial: u64,
    pub keys: Vec<PublicKey>,
}

/// A [`TrustList`] with its signatures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignedTrust {
    /// The list as JSON, exactly as it was signed.
    pub payload: String,
    pub signatures: Vec<Signature>,
}

/// A payload that cannot be read, regardless of its signatures.
#[derive(Debug, Error)]
pub enum PayloadError {
    #[error("it is longer than {PAYLOAD_LIMIT} bytes")]
    TooLong,
    #[error("it has more than {SIGNATURE_LIMIT} signatures")]
    TooManySignatures,
    #[error("it has format {found}, and this version of Muster supports {FORMAT}: a newer version made it")]
    Format { found: u64 },
    #[error("it is malformed")]
    Malformed {
        #[source]
        source: serde_json::Error,
    },
    #[error("its serial {found} is above {SERIAL_LIMIT}, the highest serial that is allowed")]
    Serial { found: u64 },
    #[error("it names no key, and could never be replaced")]
    NoKeys,
    #[error("it names more than {KEY_LIMIT} keys")]
    TooManyKeys,
}

impl SignedManifest {
    /// Parses the payload without verifying it. Decisions must use what `muster-release` verified.
    pub fn read(&self) -> Result<Manifest, PayloadError> {
        let manifest: Manifest = read(&self.payload, &self.signatures)?;
        check_serial(manifest.serial).map(|()| manifest)
    }

    /// Bytes that are signed: the payload after a prefix that is unique to this kind of document.
    pub fn signed_bytes(&self) -> Vec<u8> {
        [b"muster release manifest 1\n", self.payload.as_bytes()].concat()
    }
}

impl SignedTrust {
    /// Parses the payload without verifying it. Decisions must use what `muster-release` verified.
    pub fn read(&self) -> Result<TrustList, PayloadError> {
        let list: TrustList = read(&self.payload, &self.signatures)?;
        check_serial(list.serial)?;
        match list.keys.len() {
            0 => Err(PayloadError::NoKeys),
            1..=KEY_LIMIT => Ok(list),
            _ => Err(PayloadError::TooManyKeys),
        }
    }

    /// Bytes that are signed: the payload after a prefix that is unique to this kind of document.
    pub fn signed_bytes(&self) -> Vec<u8> {
        [b"muster trusted keys 1\n", self.payload.as_bytes()].concat()
    }
}

fn check_serial(serial: u64) -> Result<(), PayloadError> {
    if serial > SERIAL_LIMIT { Err(PayloadError::Serial { found: serial }) } else { Ok(()) }
}

fn read<T: DeserializeOwned>(payload: &str, signatures: &[Signature]) -> Result<T, PayloadError> {
    /// Read first: a newer format may have unknown fields.
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
    fn manifest_parses_as_documented() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let payload = format!(
            r#"{{"format":1,"version":"v2","serial":7,"digest":"{digest}","size":123,"content":"{digest}",
                "created":"2026-01-02T03:04:05Z","expires":"2026-04-02T03:04:05Z","previous":"v1"}}"#
        );
        let manifest = manifest(&payload).unwrap();
        assert_eq!((manifest.serial, manifest.size, manifest.digest.as_str()), (7, 123, digest.as_str()));
        assert_eq!(manifest.digest.hex(), "a".repeat(64));
        assert_eq!(manifest.previous.unwrap().as_str(), "v1");
        assert_eq!((manifest.env, manifest.content_size), (ReleaseEnv::Any, None), "of an earlier version of Muster");
    }

    #[test]
    fn manifest_names_its_environment_or_any() {
        let prod = EnvName::new("prod").unwrap();
        for (text, env, allows) in [
            ("any", ReleaseEnv::Any, true),
            ("prod", ReleaseEnv::Only(prod.clone()), true),
            ("staging", ReleaseEnv::Only(EnvName::new("staging").unwrap()), false),
        ] {
            let parsed: ReleaseEnv = serde_json::from_value(text.into()).unwrap();
            assert_eq!((&parsed, parsed.allows(&prod)), (&env, allows));
            assert_eq!(serde_json::to_value(&env).unwrap(), text);
        }
        assert!(serde_json::from_str::<ReleaseEnv>("\"Not A Name\"").is_err());
    }

    #[test]
    fn serial_above_the_limit_is_refused() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let of = |serial: u64| {
            manifest(&format!(
                r#"{{"format":1,"version":"v2","serial":{serial},"digest":"{digest}","size":1,"content":"{digest}",
                    "created":"2026-01-02T03:04:05Z"}}"#
            ))
        };
        assert!(of(SERIAL_LIMIT).is_ok());
        assert!(matches!(of(SERIAL_LIMIT + 1), Err(PayloadError::Serial { found }) if found == SERIAL_LIMIT + 1));
        let key = PublicKey::from_bytes([7; 32]);
        let trust = |serial: u64| {
            let payload = format!(r#"{{"format":1,"serial":{serial},"keys":["{key}"]}}"#);
            SignedTrust { payload, signatures: Vec::new() }.read()
        };
        assert!(trust(SERIAL_LIMIT).is_ok());
        assert!(matches!(trust(u64::MAX), Err(PayloadError::Serial { found: u64::MAX })));
    }

    #[test]
    fn unknown_payloads_are_refused() {
        assert!(matches!(manifest(r#"{"format":2,"new":true}"#), Err(PayloadError::Format { found: 2 })));
        assert!(matches!(manifest(r#"{"format":1}"#), Err(PayloadError::Malformed { .. })));
        assert!(matches!(manifest("nonsense"), Err(PayloadError::Malformed { .. })));
        assert!(matches!(manifest(&" ".repeat(PAYLOAD_LIMIT + 1)), Err(PayloadError::TooLong)));
        let trust = |payload: &str| SignedTrust { payload: payload.to_owned(), signatures: Vec::new() }.read();
        assert!(matches!(trust(r#"{"format":1,"serial":1,"keys":[]}"#), Err(PayloadError::NoKeys)));
    }

    #[test]
    fn public_key_keeps_its_comment() {
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
    fn digest_is_a_legal_file_name() {
        for wrong in ["sha256:../x", "", &"a".repeat(64), &format!("sha256:{}", "A".repeat(64))] {
            assert!(Digest::new(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(Digest::of_sha256(&[0xab; 32]).as_str(), format!("sha256:{}", "ab".repeat(32)));
    }
}
