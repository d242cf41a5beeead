//! Request and response types for backups and restores.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use muster_core::names::{EnvName, Version};
use muster_core::txn::Revision;

/// Media type of a backup: a tar archive compressed with zstd.
pub const MEDIA_TYPE: &str = "application/zstd";

/// First entry of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackupManifest {
    /// Format of the rest.
    pub format: u32,
    pub env: EnvName,
    /// Revision of the source store at which all keys were read.
    pub revision: Revision,
    /// Epoch of the environment. A restore begins a later one.
    pub epoch: u64,
    #[schema(value_type = String, format = DateTime)]
    pub taken: Timestamp,
    /// Version of Muster that made it.
    pub muster: String,
    pub current_version: Option<Version>,
    pub nodes: usize,
    pub keys: usize,
    /// Number of blobs that the keys name. Some may be missing.
    pub blobs: usize,
}

/// Last entry of a backup. A file without it is incomplete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackupTrailer {
    pub keys: usize,
    pub blobs: usize,
    /// Blobs that the keys name and that were missing or damaged when the backup was made.
    pub missing: Vec<String>,
    /// Checksum of everything before it.
    pub checksum: String,
}

/// A missing blob without which a restored environment cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingPart {
    pub digest: String,
    /// Part of the environment that needs it, such as `the bundle of release v2`.
    pub part: String,
}

impl std::fmt::Display for MissingPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({:.12}…)", self.part, self.digest)
    }
}

/// Options of a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct RestoreQuery {
    /// Replace an existing environment.
    pub replace: bool,
    /// Dry run: change nothing and report what would change.
    pub check: bool,
    /// Restore a backup that lacks files of the design or bundles.
    pub incomplete: bool,
}

/// Result of a restore or a dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestoreResponse {
    /// Restored environment.
    pub env: EnvName,
    pub manifest: BackupManifest,
    /// Dry run: nothing was changed.
    pub check: bool,
    /// Completed an interrupted restore of the same backup.
    pub resumed: bool,
    pub put: usize,
    /// Keys that already had the value of the backup.
    pub unchanged: usize,
    /// Keys that existed and are not in the backup.
    pub removed: usize,
    pub blobs: usize,
    /// Logs that were missing when the backup was made.
    pub missing_blobs: usize,
    /// Files of the design and bundles that are neither in the backup nor in the blob directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_parts: Vec<MissingPart>,
    /// New epoch of the environment.
    pub epoch: u64,
    /// Revision at which the restore is complete. None for a dry run.
    pub revision: Option<Revision>,
}
