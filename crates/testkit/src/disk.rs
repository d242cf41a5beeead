//! A small file system that a test can fill.

use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::namespace::is_own;

/// A tmpfs of limited size, mounted in the mount namespace of one test.
///
/// Only root may mount, so a test begins with [`crate::passed_in_a_namespace`], which runs it again in a namespace where it
/// is root. No other process sees the mount, and it ends with the test, also when the test is killed.
///
/// ```no_run
/// # use muster_testkit::{SmallDisk, passed_in_a_namespace};
/// // #[test]
/// fn full_disk_is_reported() {
///     if passed_in_a_namespace() {
///         return;
///     }
///     let disk = SmallDisk::mount("1m");
///     disk.fill();
/// }
/// ```
#[derive(Debug)]
pub struct SmallDisk {
    mount_point: PathBuf,
    /// Removed after the disk is unmounted.
    _directory: TempDir,
}

impl SmallDisk {
    /// Mounts a disk. `size` is as in mount(8), such as `8m`.
    pub fn mount(size: &str) -> Self {
        assert!(is_own(), "a test that mounts must begin with `if passed_in_a_namespace() {{ return; }}`");
        let directory = tempfile::tempdir().unwrap();
        let mount_point = directory.path().join("disk");
        fs::create_dir(&mount_point).unwrap();
        let options = CString::new(format!("size={size}")).unwrap();
        mount("muster", &mount_point, "tmpfs", MountFlags::empty(), &*options)
            .expect("cannot mount a small tmpfs in the test's own mount namespace");
        Self { mount_point, _directory: directory }
    }

    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Uses up all free space.
    pub fn fill(&self) {
        let mut ballast = fs::OpenOptions::new().create(true).append(true).open(self.ballast()).unwrap();
        for size in [64 * 1024, 4096, 1] {
            let piece = vec![1; size];
            while ballast.write_all(&piece).is_ok() {}
        }
    }

    /// Frees the space that [`Self::fill`] used up.
    pub fn make_space(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.mount_point.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.mount_point, UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::passed_in_a_namespace;

    #[test]
    fn filled_disk_is_full_and_not_seen_by_other_processes() {
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
    fn mounting_outside_a_namespace_panics() {
        SmallDisk::mount("1m");
    }
}
