//! A small file system that a test can fill, in a mount namespace of its own.

use std::ffi::{CString, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, thread};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

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

/// Set in the namespace. Its value is a file that the test writes to prove that it ran.
const NAMESPACE: &str = "MUSTER_TEST_NAMESPACE";
const RAN: &str = "ran";

/// Arguments of unshare(1), in the order in which they are tried: for root; for root in a chroot, whose `/` is no mount
/// point; for other users.
const UNSHARE_ARGS: [&[&str]; 3] =
    [&["--mount"], &["--mount", "--propagation", "unchanged"], &["--user", "--map-root-user", "--mount"]];

const HELP: &str = "\
this test mounts a small file system in a mount namespace, and this machine does not allow it to create one. Run it as \
root, or allow users to create namespaces: `sysctl kernel.unprivileged_userns_clone=1`, on Ubuntu also \
`sysctl kernel.apparmor_restrict_unprivileged_userns=0`, in a container `--cap-add SYS_ADMIN`";

/// Runs the calling test again in a mount namespace of its own. Returns true in the outer run, when the inner run has
/// passed; false in the inner run. Panics if the inner run fails or if no namespace can be created.
#[must_use = "the test has to return when it has passed"]
pub fn passed_in_a_namespace() -> bool {
    if let Some(proof) = env::var_os(NAMESPACE) {
        fs::write(proof, RAN).unwrap();
        return false;
    }
    let test = env::current_exe().unwrap();
    let proof = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("unshare");
    command.args(unshare_args()).arg("--").arg(test).args(args_of_this_test()).env(NAMESPACE, proof.path());
    let status = command.status().unwrap();
    assert!(status.success(), "the test failed in its namespace ({status}); its output is above");
    // A test binary that finds no test of that name succeeds as well.
    assert_eq!(fs::read_to_string(proof.path()).unwrap(), RAN, "the test did not run: {command:?}");
    true
}

pub(crate) fn is_own() -> bool {
    env::var_os(NAMESPACE).is_some()
}

/// The first arguments that work on this machine.
fn unshare_args() -> &'static [&'static str] {
    let mut errors = Vec::new();
    for args in UNSHARE_ARGS {
        let tried = Command::new("unshare").args(args).arg("true").stdin(Stdio::null()).output();
        match tried {
            Ok(tried) if tried.status.success() => return args,
            Ok(tried) => errors.push(String::from_utf8_lossy(&tried.stderr).trim().to_owned()),
            Err(error) => errors.push(format!("unshare: {error}")),
        }
    }
    panic!("{HELP}\n{}", errors.join("\n"));
}

/// Arguments with which the test binary runs only the calling test.
fn args_of_this_test() -> Vec<OsString> {
    match thread::current().name() {
        Some(name) if name != "main" => vec!["--exact".into(), name.into(), "--nocapture".into()],
        // The test is alone in its process: the arguments of the process select it.
        Some(_) | None => env::args_os().skip(1).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use crate::passed_in_a_namespace;

    use super::*;

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
