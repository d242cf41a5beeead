//! Releases on the server: their bundles, and what is said of them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::release_manifest::Digest;

/// The media type of a bundle.
pub const MEDIA_TYPE: &str = "application/zstd";

/// A bundle that the server keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bundle {
    pub digest: Digest,
    /// In bytes.
    pub size: u64,
}
