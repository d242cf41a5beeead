//! Request and response types for releases: bundles, registrations and trusted keys.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::names::{Role, Version};
use muster_core::release::manifest::{Digest, KeyId, PublicKey, SignedManifest, SignedTrust};
use muster_core::txn::Revision;

/// Media type of a bundle.
pub const MEDIA_TYPE: &str = "application/zstd";

/// A bundle on the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Bundle)]
pub struct UploadedBundle {
    pub digest: Digest,
    /// Size in bytes.
    pub size: u64,
}

/// Request to register a release. Its bundle must have been uploaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PushRelease {
    pub signed: SignedManifest,
}

/// Response to a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PushReleaseResponse {
    pub version: Version,
    pub serial: u64,
    /// Digest of the bundle.
    pub digest: String,
    /// False if it was registered already.
    pub changed: bool,
    /// Trusted key that signed it. None if the environment has no trust list; agents verify it with their own keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_by: Option<KeyId>,
    /// Roles of the environment that it has no check for: their nodes are validated with 0 checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<Role>,
    pub revision: Revision,
}

/// A release in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseRow {
    pub version: Version,
    /// Grows with each release. A node moves to a lower serial only with permission.
    pub serial: u64,
    /// Digest of the bundle.
    pub digest: String,
    /// Size of the bundle in bytes.
    pub size: u64,
    #[schema(value_type = String, format = DateTime)]
    pub pushed: Timestamp,
    pub by: String,
    /// No node moves to the release after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires: Option<Timestamp>,
    /// Keys of its signatures, not verified.
    pub signed_by: Vec<KeyId>,
    /// True if it is the environment's version.
    pub current: bool,
    /// Number of nodes that should run it.
    #[serde(alias = "wanted")]
    pub desired: usize,
    /// Number of nodes that have validated it.
    pub running: usize,
}

/// A release with all details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseDetail {
    #[serde(flatten)]
    pub row: ReleaseRow,
    /// Digest of the unpacked content.
    pub content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created: Option<Timestamp>,
    /// Version that it was derived from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Version>,
    pub signed: SignedManifest,
    /// Result of the verification, if the environment has a trust list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted: Option<SignatureTrust>,
    pub bundle: BundleState,
    pub revision: Revision,
}

/// Result of verifying signatures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignatureTrust {
    By(KeyId),
    /// Reason why no signature is trusted.
    Not(String),
}

/// State of a bundle on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BundleState {
    Kept,
    Missing,
    /// Its size is wrong.
    Damaged,
}

/// Trust list of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrustResponse {
    /// None without a list. Agents use the keys from their configuration then.
    pub list: Option<TrustedKeys>,
    pub revision: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrustedKeys {
    pub serial: u64,
    pub keys: Vec<PublicKey>,
    pub signed: SignedTrust,
}

/// Response to replacing the trust list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplaceTrustResponse {
    pub serial: u64,
    pub keys: Vec<PublicKey>,
    /// True if a key of the previous list signed it. False for the first list; agents verify it with their own keys.
    pub verified: bool,
    pub changed: bool,
    pub revision: Revision,
}
