//! The disk.

use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::namespace::is_own;

/// A file system of its own.
#[derive(Debug)]
pub struct SmallDisk {
    at: PathBuf,
    /// Removed after the disk is unmounted.
    _directory: TempDir,
}

impl SmallDisk {
    /// `size` as mount(8) takes it, such as `8m`.
    pub fn mount(size: &str) -> Self {
        assert!(is_own(), "a test that mounts must begin with `if passed_in_a_namespace() {{ return; }}`");
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("disk");
        fs::create_dir(&at).unwrap();
        let options = CString::new(format!("size={size}")).unwrap();
        mount("muster", &at, "tmpfs", MountFlags::empty(), &*options)
            .expect("cannot mount a small tmpfs, though this is a mount namespace of its own");
        Self { at, _directory: directory }
    }

    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Takes all the space that is left.
    pub fn fill(&self) {
        let mut ballast = fs::OpenOptions::new().create(true).append(true).open(self.ballast()).unwrap();
        for size in [64 * 1024, 4096, 1] {
            let piece = vec![1; size];
            while ballast.write_all(&piece).is_ok() {}
        }
    }

    /// Gives it back.
    pub fn make_space(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::passed_in_a_namespace;

    #[test]
    fn it_is_full_when_told_so_and_nobody_else_sees_it() {
        if passed_in_a_namespace() {
            return;
        }
        let disk = SmallDisk::mount("1m");
        fs::write(disk.path().join("before"), "x").unwrap();
        disk.fill();
        let full = fs::write(disk.path().join("after"), "x").unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        disk.make_space();
        fs::write(disk.path().join("after"), "x").unwrap();
        assert_eq!(fs::read_to_string(disk.path().join("before")).unwrap(), "x");
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero();
        if let Ok(mounts) = fs::read_to_string(format!("/proc/{parent}/mounts")) {
            assert!(!mounts.contains(disk.path().to_str().unwrap()), "{mounts}");
        }
    }

    #[test]
    #[should_panic(expected = "must begin with `if passed_in_a_namespace()")]
    fn a_test_that_would_mount_for_everybody_is_stopped() {
        SmallDisk::mount("1m");
    }
}
