//! The cache of unpacked releases: one directory each, named by the digest of its bundle, and partial downloads.
//!
//! An entry is evicted by renaming it, which takes no time. Removing a large release takes minutes on some disks, and is done
//! later, on a thread of its own.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use muster_core::release::manifest::Digest;
use muster_removal::OwnedDir;

use crate::clock;

/// Prefixes of a release that is being downloaded or unpacked, and of an entry that is to be removed.
const INCOMING: &str = "incoming-";
const EVICTED: &str = "evicted-";

/// `releases/` of the state directory.
#[derive(Clone, Debug)]
pub struct ReleaseCache {
    directory: PathBuf,
}

impl ReleaseCache {
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Directory of an unpacked release.
    pub fn release(&self, digest: &Digest) -> PathBuf {
        self.directory.join(digest.hex())
    }

    /// File of a partly downloaded bundle.
    pub fn part(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("{INCOMING}{}.part", digest.hex()))
    }

    /// File of a downloaded delta.
    pub fn delta(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("{INCOMING}{}.delta", digest.hex()))
    }

    /// Directory in which a bundle is unpacked before it is verified.
    pub fn unpacking(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("{INCOMING}{}", digest.hex()))
    }

    /// Marks a release as used now. This only decides which release is evicted first.
    pub fn mark_used(&self, release: &Path) {
        let _ = File::open(release).and_then(|directory| directory.set_modified(clock::now().into()));
    }

    /// Evicts incomplete releases of an earlier agent and the least recently used releases, down to `keep` in total. Releases
    /// whose bundle digest is in `needed`, and their partial downloads, always stay. Names that the agent does not make stay.
    pub fn evict(&self, needed: &[&str], keep: usize) {
        let (names, owned) = match OwnedDir::open(&self.directory).and_then(|owned| Ok((owned.names()?, owned))) {
            Ok(opened) => opened,
            Err(error) => return self.log_problem(&error),
        };
        let needed: BTreeSet<&str> = needed.iter().map(|digest| digest.trim_start_matches("sha256:")).collect();
        let (mut needed_here, mut others, mut evicted) = (0, Vec::new(), Vec::new());
        for name in names {
            let incoming = name.strip_prefix(INCOMING);
            let part = incoming.and_then(|name| name.strip_suffix(".part"));
            let incoming = incoming.map(|name| name.strip_suffix(".delta").unwrap_or(name));
            if needed.contains(&*name) {
                needed_here += 1;
            } else if is_release(&name) {
                let used = fs::symlink_metadata(self.directory.join(&name)).and_then(|meta| meta.modified()).ok();
                others.push((used, name));
            } else if part.or(incoming).is_some_and(is_release) && !part.is_some_and(|digest| needed.contains(digest)) {
                evicted.push(name);
            }
        }
        others.sort();
        let surplus = others.len().saturating_sub(keep.saturating_sub(needed_here));
        for (_, name) in others.drain(..surplus) {
            tracing::info!(directory = %self.directory.join(&name).display(), "removing an old release");
            evicted.push(name);
        }
        for name in evicted {
            if let Err(error) = owned.rename(&name, &evicted_name(&name)) {
                tracing::warn!(path = %self.directory.join(&name).display(), %error, "cannot evict an unused release");
            }
        }
    }

    /// Evicts one entry, for example a damaged release. A missing entry is no error.
    pub fn evict_entry(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match OwnedDir::open(&self.directory)?.rename(name, &evicted_name(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes what was evicted, which may take minutes.
    pub fn remove_evicted(&self) {
        let (names, owned) = match OwnedDir::open(&self.directory).and_then(|owned| Ok((owned.names()?, owned))) {
            Ok(opened) => opened,
            Err(error) => return self.log_problem(&error),
        };
        for name in names.iter().filter(|name| name.starts_with(EVICTED)) {
            if let Err(error) = owned.remove(name) {
                tracing::warn!(path = %self.directory.join(name).display(), %error, "cannot remove an unused release");
            }
        }
    }

    fn log_problem(&self, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::error!(directory = %self.directory.display(), %error, "cannot remove unused releases");
        }
    }
}

/// A name that no other evicted entry has.
fn evicted_name(name: &str) -> String {
    format!("{EVICTED}{name}-{}", clock::now().as_nanosecond())
}

fn is_release(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::{Duration, SystemTime};

    fn digest(letter: char) -> Digest {
        Digest::new(format!("sha256:{}", letter.to_string().repeat(64))).unwrap()
    }

    /// One release per letter, the first used longest ago.
    fn cache(letters: &str) -> (tempfile::TempDir, ReleaseCache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = ReleaseCache::new(dir.path().to_owned());
        for (age, letter) in letters.chars().enumerate() {
            let release = cache.release(&digest(letter));
            fs::create_dir(&release).unwrap();
            let used = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + age as u64);
            File::open(&release).unwrap().set_modified(used).unwrap();
        }
        (dir, cache)
    }

    fn left(dir: &tempfile::TempDir) -> String {
        let entries = fs::read_dir(dir.path()).unwrap().flatten();
        let mut left: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        left.sort();
        left.iter().map(|name| name.strip_prefix("incoming-").map_or(&name[..1], |_| "i")).collect()
    }

    #[test]
    fn recent_and_needed_releases_are_kept() {
        for (needed, keep, stay) in [
            (vec![], 3, "cde"),
            (vec!['e'], 3, "cde"),
            (vec!['a'], 3, "ade"),
            (vec!['a', 'b'], 1, "ab"),
            (vec![], 1, "e"),
            (vec!['a'], 9, "abcde"),
        ] {
            let (dir, cache) = cache("abcde");
            let needed: Vec<_> = needed.into_iter().map(digest).collect();
            cache.evict(&needed.iter().map(Digest::as_str).collect::<Vec<_>>(), keep);
            cache.remove_evicted();
            assert_eq!(left(&dir), stay);
        }
    }

    #[test]
    fn incomplete_releases_are_removed_unless_needed() {
        let (dir, cache) = cache("a");
        let (wanted, other) = (digest('b'), digest('c'));
        for digest in [&wanted, &other] {
            fs::write(cache.part(digest), "half").unwrap();
            fs::write(cache.delta(digest), "half").unwrap();
            fs::create_dir(cache.unpacking(digest)).unwrap();
        }
        fs::write(dir.path().join("stray"), "").unwrap();
        cache.evict(&[wanted.as_str()], 3);
        cache.remove_evicted();
        assert_eq!(left(&dir), "ais", "the agent did not make the stray file");
        assert!(cache.part(&wanted).exists());
    }

    #[test]
    fn eviction_renames_and_leaves_the_removal_for_later() {
        let (dir, cache) = cache("abcde");
        let oldest = cache.release(&digest('a'));
        fs::create_dir_all(oldest.join("deep/tree")).unwrap();
        File::open(&oldest).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        cache.evict(&[], 3);
        let evicted = |dir: &tempfile::TempDir| {
            let entries = fs::read_dir(dir.path()).unwrap().flatten();
            entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with(EVICTED)).collect::<Vec<_>>()
        };
        assert_eq!(evicted(&dir).len(), 2);
        assert!(evicted(&dir).iter().any(|entry| entry.path().join("deep/tree").is_dir()));
        assert!(!cache.release(&digest('a')).exists() && cache.release(&digest('c')).exists());
        // The same release again, before the removal.
        fs::create_dir(cache.release(&digest('a'))).unwrap();
        cache.evict_entry(&cache.release(&digest('a'))).unwrap();
        cache.evict_entry(&cache.release(&digest('a'))).unwrap();
        assert_eq!(evicted(&dir).len(), 3);
        cache.remove_evicted();
        assert_eq!(left(&dir), "cde");
    }

    #[test]
    fn nothing_is_evicted_through_a_link() {
        let (dir, real) = cache("abcde");
        let link = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(dir.path(), link.path().join("releases")).unwrap();
        let cache = ReleaseCache::new(link.path().join("releases"));
        cache.evict(&[], 1);
        cache.remove_evicted();
        assert_eq!(left(&dir), "abcde");
        assert!(cache.evict_entry(&real.release(&digest('a'))).is_err());
    }
}
