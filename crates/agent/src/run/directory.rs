//! The directory of one run: its input files, its output files, and the removal of old ones.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{Role, RunId, Version};
use muster_core::report::Interfaces;

use crate::node::Node;
use crate::process::output;
use crate::run::{environment, id};
use crate::state::durable::WriteError;

/// Number of run directories that stay on the node, for debugging.
const KEPT: usize = 20;
const OUTPUT: &str = "output.log";

#[derive(Clone, Debug)]
pub struct RunDirectory {
    path: PathBuf,
}

/// The snapshot as runs read it.
#[derive(Debug, Serialize)]
struct SnapshotFile<'a> {
    env: &'a str,
    node: &'a str,
    host: String,
    role: &'a str,
    version: &'a str,
    interfaces: &'a Interfaces,
    #[serde(flatten)]
    snapshot: &'a Snapshot,
}

impl RunDirectory {
    /// Creates an empty directory and removes those of old runs. Only the agent's user may read it: the input and output
    /// of a run may contain secrets.
    pub fn create(runs: &Path, run: &RunId) -> Result<Self, WriteError> {
        remove_old(runs);
        let path = runs.join(run.as_str());
        let made = if path.exists() { fs::remove_dir_all(&path) } else { Ok(()) };
        made.and_then(|()| DirBuilder::new().recursive(true).mode(0o700).create(&path))
            .map_err(|source| WriteError::Io { path: path.clone(), source })?;
        Ok(Self { path })
    }

    /// Writes the snapshot that the run looks keys up in.
    pub fn write_snapshot(
        &self,
        node: &Node,
        role: &Role,
        version: &Version,
        snapshot: &Snapshot,
    ) -> Result<(), WriteError> {
        let file = SnapshotFile {
            env: node.env.as_str(),
            node: node.name.as_str(),
            host: node.name.host(),
            role: role.as_str(),
            version: version.as_str(),
            interfaces: &node.interfaces,
            snapshot,
        };
        let path = self.snapshot();
        let bytes = serde_json::to_vec(&file).map_err(|source| WriteError::Json { path: path.clone(), source })?;
        // Not durable: no run survives a power failure.
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        opened.and_then(|mut file| file.write_all(&bytes)).map_err(|source| WriteError::Io { path, source })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn snapshot(&self) -> PathBuf {
        self.path.join("snapshot.json")
    }

    pub fn lookups(&self) -> PathBuf {
        self.path.join("lookups")
    }

    pub fn pending(&self) -> PathBuf {
        self.path.join("pending")
    }

    /// The values that the run publishes to other nodes.
    pub fn published(&self) -> PathBuf {
        self.path.join("published")
    }

    pub fn report(&self) -> PathBuf {
        self.path.join("report.json")
    }

    /// Puppet's log, one JSON object per line.
    pub fn puppet_log(&self) -> PathBuf {
        self.path.join("log.jsonl")
    }

    /// Standard output and error of the applier.
    pub fn output(&self) -> PathBuf {
        self.path.join(OUTPUT)
    }

    /// Output of a check. The file is named by the check's number, because names may contain any character.
    pub fn check_output(&self, number: usize) -> PathBuf {
        self.path.join(format!("check-{number}.log"))
    }

    /// Output of a hook.
    pub fn hook_output(&self, number: usize) -> PathBuf {
        self.path.join(format!("hook-{number}.log"))
    }
}

/// Removes the directories of old runs, and truncates the output files that services still write to. The directory of a
/// run stays while one of its services runs: a removed file that is still written to can no longer be truncated.
fn remove_old(runs: &Path) {
    let mut all: Vec<_> = fs::read_dir(runs).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    // By sequence number and not by time: a clock that was set back must not make the last run the oldest.
    all.sort_by_cached_key(|path| (id::seq_of(path), path.clone()));
    let mut too_many = (all.len() + 1).saturating_sub(KEPT);
    for path in all {
        if too_many > 0 && !has_processes(&path) {
            too_many -= 1;
            if let Err(error) = fs::remove_dir_all(&path) {
                tracing::warn!(directory = %path.display(), %error, "cannot remove the directory of an old run");
            }
        } else if let Err(error) = output::file::truncate(&path.join(OUTPUT)) {
            tracing::warn!(directory = %path.display(), %error, "cannot truncate the output of an old run");
        }
    }
}

/// True if a process of the run is still there. If that is unknown the directory counts as unused, or directories would
/// accumulate.
fn has_processes(directory: &Path) -> bool {
    let run = directory.file_name().unwrap_or_default();
    muster_marked::find(environment::RUN_ID, run).is_ok_and(|found| !found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(runs: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn clock_set_back_keeps_the_order_of_runs() {
        let runs = tempfile::tempdir().unwrap();
        let create = |name: String| RunDirectory::create(runs.path(), &RunId::new(name).unwrap()).unwrap();
        for number in 1..=KEPT {
            create(format!("20270115t0900{number:02}-{:06}-abcdef01", number * 2));
        }
        create("20270115t080000-000042-abcdef01".into());
        create("20270115t080001-000044-abcdef01".into());
        let names = names(runs.path());
        assert_eq!(names.len(), KEPT);
        assert_eq!(
            names[..3],
            ["20270115t080000-000042-abcdef01", "20270115t080001-000044-abcdef01", "20270115t090003-000006-abcdef01"]
        );
    }

    #[test]
    fn run_directory_stays_while_its_service_runs() {
        let runs = tempfile::tempdir().unwrap();
        let held = format!("held{}", std::process::id());
        RunDirectory::create(runs.path(), &RunId::new(held.clone()).unwrap()).unwrap();
        let mut service = std::process::Command::new("sleep").arg("1000").env("MUSTER_RUN_ID", &held).spawn().unwrap();
        // `spawn` returns shortly before the environment of the program can be read.
        let environment = || std::fs::read(format!("/proc/{}/environ", service.id())).unwrap_or_default();
        while !String::from_utf8_lossy(&environment()).contains(&held) {
            std::thread::yield_now();
        }
        for number in 10..50 {
            RunDirectory::create(runs.path(), &RunId::new(format!("r{number}")).unwrap()).unwrap();
        }
        assert!(names(runs.path()).contains(&held));
        assert_eq!(names(runs.path()).len(), KEPT);
        service.kill().unwrap();
        service.wait().unwrap();
        RunDirectory::create(runs.path(), &RunId::new("r50").unwrap()).unwrap();
        assert!(!names(runs.path()).contains(&held));
    }

    #[test]
    fn run_directory_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let (_directory, node) = crate::testing::node("web1");
        let made = RunDirectory::create(&node.layout.runs(), &RunId::new("r1").unwrap()).unwrap();
        let (role, version) = (Role::new("web").unwrap(), Version::new("v1").unwrap());
        made.write_snapshot(&node, &role, &version, &Snapshot::default()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(made.path()), mode(&made.snapshot())), (0o700, 0o600));
    }

    #[test]
    fn only_the_last_runs_are_kept() {
        let runs = tempfile::tempdir().unwrap();
        for number in 10..50 {
            RunDirectory::create(runs.path(), &RunId::new(format!("r{number}")).unwrap()).unwrap();
        }
        assert_eq!(names(runs.path()), (30..50).map(|number| format!("r{number}")).collect::<Vec<_>>());
    }
}
