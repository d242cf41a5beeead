//! Where a cluster keeps its things, and the end of those whose test was killed.

use std::fs;
use std::path::Path;

use muster_marked::{Signal, find};
use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

/// Every member carries this with the directory of its cluster.
pub(crate) const MARK: &str = "MUSTER_ETCD_RIG";
/// Directories are named for the process that made them, so that what a killed test has left can be told from what is
/// in use.
const PREFIX: &str = "muster-etcd-";

/// A directory for a cluster.
pub(crate) fn directory() -> TempDir {
    end_what_killed_tests_left();
    tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", std::process::id())).tempdir().unwrap()
}

/// Kills all members that were started in a directory.
pub(crate) fn kill_all(directory: &Path) {
    for process in find(MARK, directory).unwrap_or_default() {
        let _ = process.signal(Signal::KILL);
    }
}

fn end_what_killed_tests_left() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let pid = rest.and_then(|rest| rest.split('-').next()).and_then(|pid| pid.parse().ok());
        if pid.and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid).is_err()) {
            kill_all(&entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
