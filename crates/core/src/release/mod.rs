//! Releases: the registered record, the content (`release.yaml` and its files), and the signed manifest.

pub mod dir;
pub mod manifest;
pub mod spec;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::Version;
use manifest::SignedManifest;

/// `releases/<version>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseRecord {
    /// Digest of the bundle, and name of its blob.
    pub digest: String,
    /// Grows with each release. A node moves to a lower serial only with permission.
    pub serial: u64,
    /// Size of the bundle in bytes.
    pub size: u64,
    /// Digest of the unpacked content.
    pub content: String,
    /// Signed by the builder. Agents trust this field only.
    pub signed: SignedManifest,
    #[schema(value_type = String, format = DateTime)]
    pub pushed: Timestamp,
    pub by: String,
}

/// `allow_older`: written with `current_version` when an operator moves nodes to an earlier release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllowOlder {
    pub version: Version,
    pub by: String,
}
