//! Files and directories that only the user of the server can read.
//!
//! They are created with their modes. Those of older versions are corrected when a server starts, without following links:
//! a link to a foreign file must not change the mode of that file.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, RawMode, fchmod, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Mode bits of the group and of other users.
const FOREIGN: RawMode = 0o077;
/// Directories below a directory of blobs: its parts, and a release that is being unpacked.
const DEEPEST: usize = 16;

/// Options for a file with mode 0600.
pub fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Creates a file with mode 0600 that must not exist.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    private_file().write(true).create_new(true).open(path)
}

/// Creates a directory with mode 0700, and its missing parents. An existing directory is no error.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Takes the rights of other users from a file or directory of this user. A missing one, a link, and one of another user
/// are left as they are.
pub fn restrict(path: &Path) -> io::Result<()> {
    match open(CWD, path) {
        Ok(file) => restrict_open(&file).map(drop),
        Err(error) => ignore(error),
    }
}

/// As [`restrict`], for a directory and all files below it. A directory that is restricted already is not read: it is
/// restricted last, when all files below it are.
pub fn restrict_tree(path: &Path) -> io::Result<()> {
    match open(CWD, path) {
        Ok(file) if is_foreign(&file)? => restrict_below(&file, DEEPEST),
        Ok(_) => Ok(()),
        Err(error) => ignore(error),
    }
}

fn restrict_below(file: &OwnedFd, depth: usize) -> io::Result<()> {
    if FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::Directory && depth > 0 {
        for entry in Dir::read_from(file)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            match open(file, name) {
                Ok(file) => restrict_below(&file, depth - 1)?,
                Err(error) => ignore(error)?,
            }
        }
    }
    restrict_open(file)
}

/// Opens a file or directory, and no link.
fn open(dir: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    openat(dir, path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

/// Links, sockets, missing files and files of other users stay as they are.
fn ignore(error: Errno) -> io::Result<()> {
    match error {
        Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ACCESS | Errno::PERM => Ok(()),
        error => Err(error.into()),
    }
}

/// True if this user owns the file, and others have rights on it.
fn is_foreign(file: &OwnedFd) -> io::Result<bool> {
    let found = fstat(file)?;
    Ok(found.st_uid == geteuid().as_raw() && found.st_mode & FOREIGN != 0)
}

fn restrict_open(file: &OwnedFd) -> io::Result<()> {
    let found = fstat(file)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    if is_foreign(file)? && matches!(kind, FileType::Directory | FileType::RegularFile) {
        fchmod(file, Mode::from_raw_mode(found.st_mode & 0o7777 & !FOREIGN))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn make(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn tree_of_an_older_version_is_restricted_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let (blobs, foreign) = (dir.path().join("blobs"), dir.path().join("foreign"));
        let blob = blobs.join("ab/cdef");
        fs::create_dir_all(blobs.join("ab")).unwrap();
        fs::write(&blob, "text").unwrap();
        fs::write(&foreign, "text").unwrap();
        symlink(&foreign, blobs.join("ab/link")).unwrap();
        symlink(dir.path(), blobs.join("dir")).unwrap();
        for (path, mode) in
            [(dir.path(), 0o755), (&blobs, 0o755), (&blobs.join("ab"), 0o775), (&blob, 0o644), (&foreign, 0o644)]
        {
            make(path, mode);
        }
        restrict_tree(&blobs).unwrap();
        assert_eq!([mode(&blobs), mode(&blobs.join("ab")), mode(&blob)], [0o700, 0o700, 0o600]);
        assert_eq!([mode(&foreign), mode(dir.path())], [0o644, 0o755]);

        let link = dir.path().join("link");
        symlink(&foreign, &link).unwrap();
        restrict(&link).unwrap();
        restrict(&dir.path().join("missing")).unwrap();
        assert_eq!(mode(&foreign), 0o644);
        restrict(&foreign).unwrap();
        assert_eq!(mode(&foreign), 0o600);
    }

    #[test]
    fn new_files_and_directories_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        create_private_dir(&path).unwrap();
        create_private_dir(&path).unwrap();
        create_private_file(&path.join("file")).unwrap();
        assert_eq!([mode(&path), mode(&path.join("file"))], [0o700, 0o600]);
    }
}
