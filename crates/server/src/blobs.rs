//! What is too large for the store: reports with their logs, each a file named by the digest of its content.
//!
//! A blob is written whole and then renamed into place, before the key that names it is committed. It is not synced to
//! disk on its own: after a power cut a log can be missing, and readers say so; the status that names it is never lost.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use muster_core::release_dir::hex;
use sha2::{Digest, Sha256};

/// How a file is named that is being written.
const UNFINISHED: &str = "unfinished";

#[derive(Debug)]
pub struct Blobs {
    root: PathBuf,
    counter: AtomicU64,
}

impl Blobs {
    /// Opens the directory, and makes it if it is not there. What a killed server has not finished writing goes.
    pub fn open(root: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        for entry in std::fs::read_dir(root)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == UNFINISHED) {
                std::fs::remove_file(path)?;
            }
        }
        Ok(Self { root: root.to_owned(), counter: AtomicU64::new(0) })
    }

    /// Keeps bytes, and says under which digest.
    pub fn put(&self, bytes: &[u8]) -> io::Result<String> {
        let digest = hex(&Sha256::digest(bytes));
        let path = self.path(&digest);
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        let temporary = self.root.join(format!("{}-{number}.{UNFINISHED}", std::process::id()));
        let written = std::fs::write(&temporary, bytes).and_then(|()| into_place(&temporary, &path));
        if written.is_err() {
            // A full disk: nothing that could not be finished stays behind.
            let _ = std::fs::remove_file(&temporary);
        }
        written.map(|()| digest)
    }

    /// The bytes of a digest; none if they are not there, or are not what the digest says.
    pub fn get(&self, digest: &str) -> Option<Vec<u8>> {
        let legal = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes = legal.then(|| std::fs::read(self.path(digest)).ok()).flatten()?;
        (hex(&Sha256::digest(&bytes)) == digest).then_some(bytes)
    }

    /// Forgets a blob that nothing refers to any more. One that is gone already is no error.
    pub fn remove(&self, digest: &str) {
        if let Err(error) = std::fs::remove_file(self.path(digest))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, digest, "a blob cannot be removed");
        }
    }

    fn path(&self, digest: &str) -> PathBuf {
        let (head, tail) = digest.split_at(digest.len().min(2));
        self.root.join(head).join(tail)
    }
}

/// Makes the directory only when it is missing, which is 256 times in the life of a store: a report costs one rename.
fn into_place(temporary: &Path, path: &Path) -> io::Result<()> {
    match (std::fs::rename(temporary, path), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(parent)?;
            std::fs::rename(temporary, path)
        }
        (renamed, _) => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_got_and_what_was_damaged_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path()).unwrap();
        let digest = blobs.put(b"a log").unwrap();
        std::fs::write(dir.path().join("1-1.unfinished"), b"ha").unwrap();
        let blobs = Blobs::open(dir.path()).unwrap();
        assert!(!dir.path().join("1-1.unfinished").exists());
        assert_eq!(blobs.put(b"a log").unwrap(), digest);
        assert_eq!(blobs.get(&digest).as_deref(), Some(&b"a log"[..]));
        std::fs::write(blobs.path(&digest), b"another").unwrap();
        assert_eq!(blobs.get(&digest), None);
        blobs.remove(&digest);
        blobs.remove(&digest);
        assert_eq!(blobs.get(&digest), None);
        assert_eq!(blobs.get("../../etc/passwd"), None);
    }
}
