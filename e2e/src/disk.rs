//! A disk that is full when the test says so.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A small file system of its own, below a stage.
#[derive(Debug)]
pub struct Disk {
    at: PathBuf,
}

impl Disk {
    /// `size` as mount(8) takes it, such as `8m`.
    pub fn mount(at: PathBuf, size: &str) -> Self {
        fs::create_dir_all(&at).unwrap();
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        mount("tmpfs", &at, "tmpfs", MountFlags::empty(), &*options)
            .expect("this test mounts a small tmpfs: run it as root, in a place where mounting is allowed");
        Self { at }
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

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

/// Takes away what a test has left mounted that was killed.
pub(crate) fn unmount_below(directory: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let at = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for at in at.filter(|at| Path::new(at).starts_with(directory)) {
        let _ = unmount(at, UnmountFlags::DETACH);
    }
}
