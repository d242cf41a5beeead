//! The cache of unpacked releases: one directory each, named by the digest of its bundle, and partial downloads.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use muster_core::release::manifest::Digest;

use crate::clock;

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
        self.directory.join(format!("incoming-{}.part", digest.hex()))
    }

    /// Directory in which a bundle is unpacked before it is verified.
    pub fn unpacking(&self, digest: &Digest) -> PathBuf {
        self.directory.join(format!("incoming-{}", digest.hex()))
    }

    /// Marks a release as used now. This only decides which release is evicted first.
    pub fn mark_used(&self, release: &Path) {
        let _ = File::open(release).and_then(|directory| directory.set_modified(clock::now().into()));
    }

    /// Removes incomplete releases of an earlier agent and the least recently used releases, down to `keep` in total.
    /// Releases whose bundle digest is in `needed`, and their partial downloads, always stay.
    pub fn evict(&self, needed: &[&str], keep: usize) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        let needed: BTreeSet<&str> = needed.iter().map(|digest| digest.trim_start_matches("sha256:")).collect();
        let (mut needed_here, mut others) = (0, Vec::new());
        for entry in entries.flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.to_string_lossy();
            let part = name.strip_prefix("incoming-").and_then(|name| name.strip_suffix(".part"));
            if needed.contains(&*name) {
                needed_here += 1;
            } else if is_release(&name) {
                let used = entry.metadata().and_then(|meta| meta.modified()).ok();
                others.push((used, path));
            } else if !part.is_some_and(|digest| needed.contains(digest)) {
                remove(&path);
            }
        }
        others.sort();
        let surplus = others.len().saturating_sub(keep.saturating_sub(needed_here));
        for (_, path) in others.drain(..surplus) {
            tracing::info!(directory = %path.display(), "removing an old release");
            remove(&path);
        }
    }
}

fn is_release(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn remove(path: &Path) {
    let is_directory = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    let removed = if is_directory { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    if let Err(error) = removed {
        tracing::warn!(path = %path.display(), %error, "cannot remove an unused release");
    }
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
            assert_eq!(left(&dir), stay);
        }
    }

    #[test]
    fn incomplete_releases_are_removed_unless_needed() {
        let (dir, cache) = cache("a");
        let (wanted, other) = (digest('b'), digest('c'));
        for digest in [&wanted, &other] {
            fs::write(cache.part(digest), "half").unwrap();
            fs::create_dir(cache.unpacking(digest)).unwrap();
        }
        fs::write(dir.path().join("stray"), "").unwrap();
        cache.evict(&[wanted.as_str()], 3);
        assert_eq!(left(&dir), "ai");
        assert!(cache.part(&wanted).exists());
    }
}
