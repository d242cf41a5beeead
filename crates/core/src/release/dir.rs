//! Content of a release in a directory, and its digest.
//!
//! The digest covers path, executable bit and bytes of each file. It ignores what differs between two copies of the
//! same content: times, owners and the order of directory entries.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

/// Maximum size of a release in bytes. A larger one is a mistake, such as a package or an image in the wrong place.
pub const SIZE_LIMIT: u64 = 256 * 1024 * 1024;
/// Maximum number of files of a release.
pub const FILE_LIMIT: usize = 50_000;

#[derive(Debug, Error)]
pub enum ReadReleaseError {
    #[error("cannot read {path} of the release")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is neither a file nor a directory: a release holds no links, devices or sockets")]
    NotAFile { path: PathBuf },
    #[error("the name of {path} is not UTF-8")]
    Name { path: PathBuf },
    #[error("the release has more than {FILE_LIMIT} files")]
    TooManyFiles,
    #[error("the release is larger than {} MiB", SIZE_LIMIT / 1024 / 1024)]
    TooLarge,
}

/// One file of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseFile {
    /// Relative to the release, with `/`.
    pub path: String,
    pub executable: bool,
}

/// Lists the files of a release, sorted by path.
pub fn list(root: &Path) -> Result<Vec<ReleaseFile>, ReadReleaseError> {
    let mut files = Vec::new();
    visit(root, |file, _| {
        files.push(file);
        Ok(())
    })?;
    Ok(files)
}

/// Calls `visitor` with each file and its full path, in the order of the paths in the release. Only one directory at each
/// level is in memory, not the list of all files.
fn visit(
    root: &Path,
    mut visitor: impl FnMut(ReleaseFile, &Path) -> Result<(), ReadReleaseError>,
) -> Result<(), ReadReleaseError> {
    // The next entry of the release is the last one. Directories end with `/`: in this order, paths of files are sorted
    // as a whole.
    let mut left = vec![String::new()];
    let (mut files, mut size) = (0, 0);
    while let Some(inside) = left.pop() {
        let path = if inside.is_empty() { root.to_owned() } else { root.join(&inside) };
        let failed = |source| ReadReleaseError::Io { path: path.clone(), source };
        if inside.is_empty() || inside.ends_with('/') {
            let first = left.len();
            for entry in fs::read_dir(&path).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name =
                    entry.file_name().into_string().map_err(|_| ReadReleaseError::Name { path: entry.path() })?;
                let end = if entry.file_type().map_err(failed)?.is_dir() { "/" } else { "" };
                left.push(format!("{inside}{name}{end}"));
                if left.len() > 2 * FILE_LIMIT {
                    return Err(ReadReleaseError::TooManyFiles);
                }
            }
            left[first..].sort_unstable_by(|a, b| b.cmp(a));
            continue;
        }
        let meta = fs::symlink_metadata(&path).map_err(failed)?;
        if !meta.is_file() {
            return Err(ReadReleaseError::NotAFile { path });
        }
        files += 1;
        if files > FILE_LIMIT {
            return Err(ReadReleaseError::TooManyFiles);
        }
        size += meta.len();
        if size > SIZE_LIMIT {
            return Err(ReadReleaseError::TooLarge);
        }
        visitor(ReleaseFile { path: inside, executable: meta.permissions().mode() & 0o111 != 0 }, &path)?;
    }
    Ok(())
}

/// Digest of the release in a directory, as `sha256:<hex>`.
pub fn digest(root: &Path) -> Result<String, ReadReleaseError> {
    let mut content = ContentHash::default();
    let mut buffer = vec![0; 64 * 1024];
    visit(root, |file, path| {
        let hashed = (|| {
            let mut reading = fs::File::open(path)?;
            let mut left = reading.metadata()?.len();
            content.begin(&file.path, file.executable, left);
            loop {
                let read = reading.read(&mut buffer)?;
                if read == 0 {
                    break;
                }
                content.add(&buffer[..read]);
                left = left.checked_sub(read as u64).ok_or_else(changed)?;
            }
            if left == 0 { Ok(()) } else { Err(changed()) }
        })();
        hashed.map_err(|source| ReadReleaseError::Io { path: path.to_owned(), source })
    })?;
    Ok(content.finish().into())
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was being read")
}

/// Hash of a release's content. Files are added in the order of their paths.
#[derive(Clone, Debug, Default)]
pub struct ContentHash(Sha256);

impl ContentHash {
    /// Begins the next file. Exactly `size` bytes follow.
    pub fn begin(&mut self, path: &str, executable: bool, size: u64) {
        self.0.update((path.len() as u64).to_le_bytes());
        self.0.update(path.as_bytes());
        self.0.update([u8::from(executable)]);
        self.0.update(size.to_le_bytes());
    }

    /// Adds bytes of the current file.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> crate::release::manifest::Digest {
        crate::release::manifest::Digest::of_sha256(&self.0.finalize().into())
    }
}

/// Bytes as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(files: &[(&str, &str, u32)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text, mode) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
        }
        dir
    }

    #[test]
    fn digest_depends_on_content_only() {
        let base = digest(release(&[("a/b", "1", 0o644), ("c", "2", 0o644)]).path()).unwrap();
        assert_eq!(base, digest(release(&[("c", "2", 0o600), ("a/b", "1", 0o640)]).path()).unwrap());
        for other in [
            &[("a/b", "1", 0o644), ("c", "3", 0o644)][..],
            &[("a/b", "1", 0o644), ("d", "2", 0o644)],
            &[("a/b", "1", 0o755), ("c", "2", 0o644)],
            &[("a/b", "1", 0o644)],
        ] {
            assert_ne!(base, digest(release(other).path()).unwrap(), "{other:?}");
        }
    }

    #[test]
    fn files_are_listed_in_the_order_of_their_paths() {
        let dir = release(&[
            ("b", "", 0o644),
            ("a/z", "", 0o644),
            ("a-b", "", 0o644),
            ("a0/c/d", "", 0o644),
            ("a.b", "", 0o644),
        ]);
        let paths: Vec<_> = list(dir.path()).unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(paths, ["a-b", "a.b", "a/z", "a0/c/d", "b"]);
    }

    #[test]
    fn symlinks_are_refused() {
        let dir = release(&[("a", "1", 0o644)]);
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("b")).unwrap();
        assert!(matches!(digest(dir.path()), Err(ReadReleaseError::NotAFile { .. })));
    }

    #[test]
    fn missing_release_is_named() {
        let error = digest(Path::new("/nonexistent/release")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /nonexistent/release of the release");
    }
}
