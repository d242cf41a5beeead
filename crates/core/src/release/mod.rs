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
    /// Of the bundle, which is the blob of this name.
    pub digest: String,
    /// Grows with each release: a node goes to a lower one only if somebody allows it.
    pub serial: u64,
    /// Of the bundle, in bytes.
    pub size: u64,
    /// The digest of what is in it.
    pub content: String,
    /// What its builder signed. Nodes believe this, and nothing else here.
    pub signed: SignedManifest,
    #[schema(value_type = String, format = DateTime)]
    pub pushed: Timestamp,
    pub by: String,
}

/// `allow_older`: written with `current_version` when somebody sends nodes back to an earlier release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllowOlder {
    pub version: Version,
    pub by: String,
}
