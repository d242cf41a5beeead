//! Verified local copies of large blobs: a bundle is fetched once for all the nodes that download it.
//!
//! A copy is a file without a name: it ends with its last reader, and no server leaves it behind.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::blobs::directory::FileReader;
use crate::blobs::store::BlobReader;

/// Bytes of all copies. The newest one is kept even if it is larger.
const LIMIT: u64 = 1024 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct LocalCopies {
    directory: PathBuf,
    state: Mutex<CopiesState>,
}

#[derive(Debug, Default)]
struct CopiesState {
    /// Counts uses.
    clock: u64,
    copies: HashMap<String, LocalCopy>,
}

#[derive(Debug, Default)]
struct LocalCopy {
    used: u64,
    /// Locked while the blob is fetched: other readers wait for it.
    slot: Arc<Mutex<Option<Arc<FileReader>>>>,
    size: u64,
}

impl LocalCopies {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), state: Mutex::default() }
    }

    /// Temporary file without a name.
    pub(super) fn spool(&self) -> io::Result<std::fs::File> {
        tempfile::tempfile_in(&self.directory)
    }

    /// The copy of a blob. The first caller fetches it.
    pub(super) fn get_or_fetch(
        &self,
        digest: &str,
        fetch: impl FnOnce() -> io::Result<Arc<FileReader>>,
    ) -> io::Result<Arc<FileReader>> {
        let slot = self.state().touch(digest);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copy) = &*slot {
            return Ok(copy.clone());
        }
        let fetched = fetch();
        // After an error the next reader fetches again.
        if let Ok(copy) = &fetched {
            *slot = Some(copy.clone());
            drop(slot);
            self.state().stored(digest, copy.size());
        }
        fetched
    }

    /// Keeps a copy that was verified.
    pub(super) fn insert(&self, digest: &str, copy: Arc<FileReader>) {
        let slot = self.state().touch(digest);
        let size = copy.size();
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
        self.state().stored(digest, size);
    }

    /// The copy of a blob, if there is one now.
    pub(super) fn get(&self, digest: &str) -> Option<Arc<FileReader>> {
        let slot = self.state().copies.get(digest)?.slot.clone();
        // A locked one is being fetched.
        slot.try_lock().ok()?.clone()
    }

    pub(super) fn remove(&self, digest: &str) {
        self.state().copies.remove(digest);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, CopiesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CopiesState {
    fn touch(&mut self, digest: &str) -> Arc<Mutex<Option<Arc<FileReader>>>> {
        self.clock += 1;
        let copy = self.copies.entry(digest.to_owned()).or_default();
        copy.used = self.clock;
        copy.slot.clone()
    }

    /// Records the size of a copy, and forgets the copies that were not used for longest. Their readers keep them.
    fn stored(&mut self, digest: &str, size: u64) {
        if let Some(copy) = self.copies.get_mut(digest) {
            copy.size = size;
        }
        while self.copies.values().map(|copy| copy.size).sum::<u64>() > LIMIT {
            let others = self.copies.iter().filter(|(other, copy)| *other != digest && copy.size > 0);
            let Some(oldest) = others.min_by_key(|(_, copy)| copy.used).map(|(oldest, _)| oldest.clone()) else {
                return;
            };
            self.copies.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(size: u64) -> Arc<FileReader> {
        Arc::new(FileReader::new(tempfile::tempfile().unwrap(), size))
    }

    #[test]
    fn blob_is_fetched_once_and_again_after_an_error() {
        let copies = LocalCopies::new(&std::env::temp_dir());
        assert!(copies.get_or_fetch("a", || Err(io::Error::other("503"))).is_err());
        assert!(copies.get("a").is_none());
        assert_eq!(copies.get_or_fetch("a", || Ok(copy(7))).unwrap().size(), 7);
        assert_eq!(copies.get_or_fetch("a", || Err(io::Error::other("503"))).unwrap().size(), 7);
        copies.remove("a");
        assert!(copies.get("a").is_none());
    }

    #[test]
    fn least_recently_used_copies_are_forgotten() {
        let copies = LocalCopies::new(&std::env::temp_dir());
        for (digest, size) in [("a", LIMIT / 2), ("b", LIMIT / 2)] {
            copies.insert(digest, copy(size));
        }
        copies.get_or_fetch("a", || Err(io::Error::other("503"))).unwrap();
        copies.insert("c", copy(1));
        assert_eq!(["a", "b", "c"].map(|digest| copies.get(digest).is_some()), [true, false, true]);
        copies.insert("d", copy(2 * LIMIT));
        assert_eq!(["a", "c", "d"].map(|digest| copies.get(digest).is_some()), [false, false, true]);
    }
}
