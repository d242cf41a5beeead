//! What a place for blobs must be able to do.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::time::SystemTime;

use tempfile::TempDir;

/// A place that keeps blobs under their digests, and that all replicas share.
///
/// Every call blocks: it is made on a thread that may wait. A digest is 64 hexadecimal digits; whoever calls has looked.
pub trait BlobStore: fmt::Debug + Send + Sync {
    /// Keeps bytes under their digest. Returns before they would survive a power cut.
    fn keep(&self, digest: &str, bytes: &[u8]) -> io::Result<()>;

    /// Returns when a power cut can no longer take these away.
    fn sync(&self, digests: &[&str]) -> io::Result<()>;

    /// What is kept under a digest; none if nothing is. Nothing is compared.
    fn get(&self, digest: &str) -> io::Result<Option<Vec<u8>>>;

    /// Begins something large whose digest is known only at its end. Nobody sees it before it is finished.
    fn begin(&self) -> io::Result<Box<dyn Unfinished>>;

    /// Opens something large. Who has it open can read it to its end, also when it is removed meanwhile.
    fn open(&self, digest: &str) -> io::Result<Option<Box<dyn Stored>>>;

    /// Makes a blob young again, for somebody who is about to name it; false if it is not there.
    fn renew(&self, digest: &str) -> io::Result<bool>;

    /// Forgets a blob. One that is gone already is no error.
    fn remove(&self, digest: &str) -> io::Result<()>;

    /// Removes what is old and that nobody needs, and what was begun long ago and not finished. Returns how many blobs.
    fn sweep(&self, now: SystemTime, needed: &dyn Fn(&str) -> bool) -> io::Result<usize>;

    /// Whether the place belongs to this store; one that belongs to none belongs to it from now on. Another store knows
    /// nothing of what this one needs, and must not sweep it away.
    fn belong_to(&self, store: &str) -> io::Result<bool>;

    /// A file for something large that is on its way. Nobody else sees it, and it goes with its handle.
    fn spool(&self) -> io::Result<File>;

    /// An empty directory on this machine to unpack something in. It goes with its handle.
    fn workspace(&self) -> io::Result<TempDir>;
}

/// A blob that is being written. Dropped before its end, it leaves nothing behind.
pub trait Unfinished: Write + fmt::Debug + Send {
    /// Keeps what was written under its digest. When this returns, a power cut can no longer take it away.
    fn finish(self: Box<Self>, digest: &str) -> io::Result<()>;
}

/// A blob that can be read from any place in it, by several at once.
pub trait Stored: fmt::Debug + Send + Sync {
    fn size(&self) -> u64;

    /// Reads what follows a place, at most as much as the buffer holds; nothing only at the end.
    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize>;
}
