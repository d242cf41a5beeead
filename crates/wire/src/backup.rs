//! What is said of a backup and of a restore.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use muster_core::names::{EnvName, Version};
use muster_core::txn::Revision;

/// The media type of a backup: a tar archive, compressed with zstd.
pub const MEDIA_TYPE: &str = "application/zstd";

/// What a backup says of itself, before everything else in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackupManifest {
    /// Which form the rest has.
    pub format: u32,
    pub env: EnvName,
    /// All keys are as they were at this revision of the store that they came from.
    pub revision: Revision,
    /// The epoch that the environment was in: whatever it is restored to begins a later one.
    pub epoch: u64,
    #[schema(value_type = String, format = DateTime)]
    pub taken: Timestamp,
    /// The version of Muster that made it.
    pub muster: String,
    pub current_version: Option<Version>,
    pub nodes: usize,
    pub keys: usize,
    /// How many blobs the keys name; some may be missing.
    pub blobs: usize,
}

/// What a whole backup says at its end: a file without it is not whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackupTrailer {
    pub keys: usize,
    pub blobs: usize,
    /// Blobs that the keys name and that were not there, or were damaged, when the backup was made.
    pub missing: Vec<String>,
    /// Over everything before it.
    pub checksum: String,
}

/// Asks for a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct RestoreQuery {
    /// Take away what is there.
    pub replace: bool,
    /// Change nothing, and say what would be changed.
    pub check: bool,
}

/// What a restore did, or would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestoreResponse {
    /// The environment that was restored.
    pub env: EnvName,
    pub manifest: BackupManifest,
    /// Nothing was changed: this is what would be.
    pub check: bool,
    /// A restore of the same backup had been cut off, and was brought to its end.
    pub resumed: bool,
    pub put: usize,
    /// Keys that were there already as the backup has them.
    pub unchanged: usize,
    /// Keys that were there and are not in the backup.
    pub removed: usize,
    pub blobs: usize,
    /// Logs that were missing when the backup was made.
    pub missing_blobs: usize,
    /// The new epoch of the environment.
    pub epoch: u64,
    /// The revision at which it is complete; none for a check.
    pub revision: Option<Revision>,
}
