//! Removal of files and directories that this process has made.
//!
//! A directory is opened once, and everything in it is reached from that handle. A link, or a directory that was renamed or
//! replaced meanwhile, does not lead the removal to another place.
//!
//! - [`OwnedDir`] is a directory of Muster, such as a state directory. Its name must not be a link, and it must belong to the
//!   user of this process.
//! - [`ParentDir`] is the place of a temporary entry. It may belong to another user, as `/tmp` does.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, open, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// A directory that belongs to the user of this process.
#[derive(Debug)]
pub struct OwnedDir {
    handle: OwnedFd,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl OwnedDir {
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = open(path, DIRECTORY, Mode::empty()).map_err(|error| match error {
            Errno::NOTDIR | Errno::LOOP => {
                io::Error::new(io::ErrorKind::NotADirectory, "it is a symbolic link or a file, and must be a directory")
            }
            other => other.into(),
        })?;
        let owner = fstat(&handle)?.st_uid;
        if owner != geteuid().as_raw() {
            let problem = format!("it belongs to user {owner}, and must belong to user {}", geteuid().as_raw());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
        Ok(Self { handle })
    }

    /// A directory in this one. `None`: there is no such directory; a link is none.
    pub fn subdirectory(&self, name: &OsStr) -> io::Result<Option<Self>> {
        match openat(&self.handle, entry_name(name)?, DIRECTORY, Mode::empty()) {
            Ok(handle) => Ok(Some(Self { handle })),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Names of the entries that are valid UTF-8. Muster makes no others.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.handle)? {
            names.extend(
                entry?.file_name().to_str().ok().filter(|name| !matches!(*name, "." | "..")).map(str::to_owned),
            );
        }
        Ok(names)
    }

    /// Renames an entry.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.handle, from, &self.handle, to)?)
    }

    /// Removes an entry, a directory with everything in it. Links are removed and not followed. A missing entry is no error.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        remove_entry(&self.handle, name.as_ref())
    }
}

/// The directory of a temporary entry.
#[derive(Debug)]
pub struct ParentDir {
    handle: OwnedFd,
}

impl ParentDir {
    /// Opens it. Links are followed: an operator may have chosen one.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { handle: open(path, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty())? })
    }

    /// Removes an entry, like [`OwnedDir::remove`].
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        remove_entry(&self.handle, name)
    }
}

fn remove_entry(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    Ok(remove_at(parent.as_fd(), &entry_name(name)?, FileType::Unknown)?)
}

/// The name of an entry, which leads to no other directory.
fn entry_name(name: &OsStr) -> io::Result<CString> {
    if matches!(name.as_bytes(), b"" | b"." | b"..") || name.as_bytes().contains(&b'/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is not that of an entry"));
    }
    Ok(CString::new(name.as_bytes())?)
}

fn remove_at(parent: BorrowedFd<'_>, name: &CStr, kind: FileType) -> rustix::io::Result<()> {
    let opened = match kind {
        FileType::Directory | FileType::Unknown => openat(parent, name, DIRECTORY, Mode::empty()),
        FileType::RegularFile
        | FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice => Err(Errno::NOTDIR),
    };
    let removed = match opened {
        Ok(directory) => {
            // Collected first: a directory that changes while it is read may return an entry twice or not at all.
            let entries = Dir::read_from(&directory)?.collect::<rustix::io::Result<Vec<_>>>()?;
            for entry in entries.iter().filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")) {
                remove_at(directory.as_fd(), entry.file_name(), entry.file_type())?;
            }
            unlinkat(parent, name, AtFlags::REMOVEDIR)
        }
        Err(Errno::NOTDIR | Errno::LOOP) => unlinkat(parent, name, AtFlags::empty()),
        Err(error) => Err(error),
    };
    match removed {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_removed_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, other) = (dir.path().join("ours"), dir.path().join("other"));
        fs::create_dir_all(ours.join("a/b/c")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("passwd"), "root").unwrap();
        fs::write(ours.join("a/b/file"), "").unwrap();
        symlink(&other, ours.join("a/b/link")).unwrap();
        symlink(&other, ours.join("link")).unwrap();
        let owned = OwnedDir::open(&ours).unwrap();
        for name in ["a", "link", "missing"] {
            owned.remove(name).unwrap();
        }
        assert_eq!(owned.names().unwrap(), [""; 0]);
        assert!(other.join("passwd").exists());
        for name in ["", ".", "..", "../other", "/"] {
            assert!(owned.remove(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn renamed_parent_of_a_temporary_entry_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("tmp/unfinished/x")).unwrap();
        fs::create_dir_all(path("other/unfinished/y")).unwrap();
        let parent = ParentDir::open(&path("tmp")).unwrap();
        fs::rename(path("tmp"), path("moved")).unwrap();
        symlink("other", path("tmp")).unwrap();
        parent.remove(OsStr::new("unfinished")).unwrap();
        assert!(!path("moved/unfinished").exists() && path("other/unfinished/y").exists());
    }

    #[test]
    fn link_to_a_directory_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("other")).unwrap();
        symlink("other", dir.path().join("runs")).unwrap();
        let refused = OwnedDir::open(&dir.path().join("runs")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotADirectory);
        let parent = OwnedDir::open(dir.path()).unwrap();
        assert!(parent.subdirectory(OsStr::new("runs")).unwrap().is_none());
        assert!(parent.subdirectory(OsStr::new("other")).unwrap().is_some());
    }

    #[test]
    fn directory_of_another_user_is_not_opened() {
        // Runs as root in containers, where `/proc/sys` belongs to root too: a directory of another user is made then.
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other");
        fs::create_dir(&other).unwrap();
        let path = match std::os::unix::fs::chown(&other, Some(12_345), None) {
            Ok(()) => other,
            Err(_) => "/".into(),
        };
        assert_eq!(OwnedDir::open(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
