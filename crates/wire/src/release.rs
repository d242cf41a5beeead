//! Releases on the server: their bundles, what is said of them, and the keys that sign them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::names::Version;
use muster_core::release::manifest::{Digest, KeyId, PublicKey, SignedManifest, SignedTrust};
use muster_core::txn::Revision;

/// The media type of a bundle.
pub const MEDIA_TYPE: &str = "application/zstd";

/// A bundle that the server keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bundle {
    pub digest: Digest,
    /// In bytes.
    pub size: u64,
}

/// Registers a release whose bundle is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PushRelease {
    pub signed: SignedManifest,
}

/// A release was registered, or was so already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PushReleaseResponse {
    pub version: Version,
    pub serial: u64,
    /// Of the bundle.
    pub digest: String,
    /// False if it was there already.
    pub changed: bool,
    /// The trusted key that stands for it; none if the environment has no list of trusted keys: then only agents can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_by: Option<KeyId>,
    pub revision: Revision,
}

/// A release in the list of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseRow {
    pub version: Version,
    /// Grows with each release: a node goes to a lower one only if somebody allows it.
    pub serial: u64,
    /// Of the bundle.
    pub digest: String,
    /// Of the bundle, in bytes.
    pub size: u64,
    #[schema(value_type = String, format = DateTime)]
    pub pushed: Timestamp,
    pub by: String,
    /// From then on no node goes to it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires: Option<Timestamp>,
    /// Whose signatures it carries. Nothing is proved by that.
    pub signed_by: Vec<KeyId>,
    /// Whether the environment should run it.
    pub current: bool,
    /// How many nodes should run it.
    pub wanted: usize,
    /// How many have proved that they run it.
    pub running: usize,
}

/// Everything about a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseDetail {
    #[serde(flatten)]
    pub row: ReleaseRow,
    /// The digest of what is in the bundle.
    pub content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created: Option<Timestamp>,
    /// The version that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Version>,
    pub signed: SignedManifest,
    /// The trusted key that stands for it, if the environment has a list of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted: Option<SignatureTrust>,
    pub bundle: BundleState,
    pub revision: Revision,
}

/// Whether a signature counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignatureTrust {
    By(KeyId),
    /// Why not.
    Not(String),
}

/// Whether the server can send a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BundleState {
    Kept,
    Missing,
    /// It does not have the size that it should have.
    Damaged,
}

/// The list of keys whose signatures count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrustResponse {
    /// None if there is no list: agents go by the keys that they were set up with.
    pub list: Option<TrustedKeys>,
    pub revision: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrustedKeys {
    pub serial: u64,
    pub keys: Vec<PublicKey>,
    pub signed: SignedTrust,
}

/// The list was replaced, or was so already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplaceTrustResponse {
    pub serial: u64,
    pub keys: Vec<PublicKey>,
    /// Whether a key of the list before stands for it. Before the first there was none: only agents can tell.
    pub verified: bool,
    pub changed: bool,
    pub revision: Revision,
}
