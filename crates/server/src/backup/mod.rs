//! Backups: one environment's keys at one revision, with the blobs that they name, in one file; and the way back.
//!
//! ```text
//! store ──keys at one revision──▶ take ──▶ archive (tar, zstd) ──▶ file or HTTP body
//! blobs ──one at a time────────────▲
//!
//! file ──▶ verify: every checksum, every key, the ending; changes nothing
//!      ──▶ restore: marker ─▶ fence ─▶ keys in batches, blobs ─▶ version, new epoch, marker gone: one transaction
//! ```
//!
//! - [`writer`] and [`reader`]: the file. It begins with a manifest and ends with a checksum of everything before it, so
//!   that a file that was cut off is refused before anything is touched.
//! - [`create`]: what goes into it. What belongs to running processes (replicas, who holds what, who is connected) does not.
//! - [`restore_plan`]: what a restore may do and does, as a pure function. [`restore`]: does it.
//!
//! It must never: leave an environment half restored without a mark that says so, touch a key of another environment,
//! hold all blobs in memory, or let an agent take an older state for a newer one.

mod blob_refs;
mod create;
mod reader;
mod restore;
mod restore_plan;
mod writer;

pub use create::{Backup, BackupError, WrittenBackup, read_environment};
pub use reader::{Contents, ReadError, verify};
pub use restore::{Progress, RestoreError, Target, check, restore};
pub use restore_plan::RefusedRestore;
pub use writer::WriteError;

/// The form of the archive that this Muster writes, and the newest that it reads.
const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const KEYS: &str = "keys/";
const BLOBS: &str = "blobs/";
const END: &str = "end.json";
/// A blob that is larger is never in memory as a whole. Reports are smaller, bundles of releases may be larger.
const HELD: u64 = 4 * 1024 * 1024;

/// Keys of running processes: they are gone with them, and mean nothing to others.
const OF_PROCESSES: [&str; 3] = ["replicas/", "controllers/", "presence/"];
/// WrittenBackup by a restore itself, not taken over from a backup.
const EPOCH: &str = "store_epoch";
const RESTORING: &str = "restoring";
const DESTROYING: &str = "destroying";
const CURRENT_VERSION: &str = "current_version";

/// Whether a key, without the prefix of its environment, is one that backups hold.
fn is_kept(key: &str) -> bool {
    key != EPOCH && key != RESTORING && key != DESTROYING && !OF_PROCESSES.iter().any(|prefix| key.starts_with(prefix))
}
