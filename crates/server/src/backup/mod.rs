//! Backup and restore of one environment: its keys at one revision with their blobs, in one file.
//!
//! ```text
//! store ──keys at one revision──▶ create ─▶ writer (tar, zstd) ──▶ file or HTTP body
//! blobs ──one at a time────────────▲
//!
//! file ──▶ verify: every checksum, every key, the ending; changes nothing
//!      ──▶ restore: marker ─▶ fence ─▶ keys in batches, blobs ─▶ version, new epoch, marker gone: one transaction
//! ```
//!
//! - [`writer`] and [`reader`]: the file. It begins with a manifest and ends with a checksum, so that a truncated file is
//!   refused before anything is written.
//! - [`create`]: what goes into it. Keys of running processes (replicas, locks, connections) do not.
//! - [`restore_plan`]: what a restore may do and does. Pure. [`restore`]: executes it.
//!
//! Invariants: a partial restore is always marked as such, keys of other environments are not touched, blobs are never all in
//! memory, and agents never take an older state for a newer one.

mod create;
mod reader;
mod restore;
mod restore_plan;
mod writer;

pub use create::{Backup, BackupError, WrittenBackup, read_environment};
pub use reader::{BackupReadError, Contents, verify};
pub use restore::{RestoreError, RestoreProgress, RestoreTarget, check, restore};
pub use restore_plan::RefusedRestore;
pub use writer::BackupWriteError;

/// Format of the archive that this version writes, and the newest that it reads.
const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const KEYS: &str = "keys/";
const BLOBS: &str = "blobs/";
const END: &str = "end.json";
/// Larger blobs are never in memory as a whole. Reports are smaller; bundles may be larger.
const HELD: u64 = 4 * 1024 * 1024;

/// Keys of running processes. They have no meaning after a restore.
const OF_PROCESSES: [&str; 4] = ["replicas/", "controllers/", "presence/", "tokens/"];
/// Written by a restore itself, not copied from a backup.
const EPOCH: &str = "store_epoch";
const RESTORING: &str = "restoring";
const DESTROYING: &str = "destroying";
const CURRENT_VERSION: &str = "current_version";

/// Returns true if backups hold the key, given without the prefix of its environment.
fn is_kept(key: &str) -> bool {
    key != EPOCH && key != RESTORING && key != DESTROYING && !OF_PROCESSES.iter().any(|prefix| key.starts_with(prefix))
}
