//! Removal below a directory of the agent. The directory is opened without following links and must belong to the agent's
//! user. Everything below it is reached from that handle, so that no link leads the removal to another place.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, open, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// A directory that belongs to the agent.
#[derive(Debug)]
pub struct OwnedDir {
    handle: OwnedFd,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl OwnedDir {
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = open(path, DIRECTORY, Mode::empty()).map_err(|error| match error {
            Errno::NOTDIR | Errno::LOOP => io::Error::new(
                io::ErrorKind::NotADirectory,
                "it is a symbolic link or a file, and must be a directory of the agent",
            ),
            other => other.into(),
        })?;
        let owner = fstat(&handle)?.st_uid;
        if owner != geteuid().as_raw() {
            let problem = format!("it belongs to user {owner}, and must belong to the agent's user");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
        Ok(Self { handle })
    }

    /// Names of the entries that are valid UTF-8. The agent makes no others.
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
    pub fn remove(&self, name: &str) -> io::Result<()> {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is not that of an entry"));
        }
        let name = std::ffi::CString::new(name)?;
        remove_at(self.handle.as_fd(), &name, FileType::Unknown).map_err(Into::into)
    }
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
    fn link_to_a_directory_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("other")).unwrap();
        symlink("other", dir.path().join("runs")).unwrap();
        let refused = OwnedDir::open(&dir.path().join("runs")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotADirectory);
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
