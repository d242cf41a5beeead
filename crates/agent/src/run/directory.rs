//! The directory of one run: what it is given, and what it leaves.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use muster_core::names::{Role, RunId, Version};
use muster_core::report::Interfaces;
use muster_core::snapshot::{ActiveRoles, Snapshot};
use muster_core::txn::Revision;

use crate::durable::WriteError;
use crate::node::Node;

/// So many runs stay on the node for whoever looks into one.
const KEPT: usize = 20;

#[derive(Clone, Debug)]
pub struct RunDirectory {
    path: PathBuf,
}

/// The snapshot as runs read it.
#[derive(Debug, Serialize)]
struct SnapshotFile<'a> {
    revision: Revision,
    env: &'a str,
    node: &'a str,
    host: String,
    role: &'a str,
    version: &'a str,
    interfaces: &'a Interfaces,
    active_roles: &'a ActiveRoles,
}

impl RunDirectory {
    /// Makes the directory, empty, and removes those of old runs.
    pub fn create(runs: &Path, run: &RunId) -> Result<Self, WriteError> {
        forget_old(runs);
        let path = runs.join(run.as_str());
        let made = if path.exists() { fs::remove_dir_all(&path) } else { Ok(()) };
        made.and_then(|()| fs::create_dir_all(&path))
            .map_err(|source| WriteError::Io { path: path.clone(), source })?;
        Ok(Self { path })
    }

    /// Writes what the run may look up.
    pub fn write_snapshot(
        &self,
        node: &Node,
        role: &Role,
        version: &Version,
        snapshot: &Snapshot,
    ) -> Result<(), WriteError> {
        let file = SnapshotFile {
            revision: snapshot.revision,
            env: node.env.as_str(),
            node: node.name.as_str(),
            host: node.name.host(),
            role: role.as_str(),
            version: version.as_str(),
            interfaces: &node.interfaces,
            active_roles: &snapshot.active_roles,
        };
        let path = self.snapshot();
        let bytes = serde_json::to_vec(&file).map_err(|source| WriteError::Json { path: path.clone(), source })?;
        // Not made to survive a power cut: no run does.
        fs::write(&path, bytes).map_err(|source| WriteError::Io { path, source })
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

    pub fn report(&self) -> PathBuf {
        self.path.join("report.json")
    }

    /// Puppet's log, one JSON object a line.
    pub fn puppet_log(&self) -> PathBuf {
        self.path.join("log.jsonl")
    }

    /// What the applier wrote to its standard output and error.
    pub fn output(&self) -> PathBuf {
        self.path.join("output.log")
    }

    /// The same of a check. Names of checks may hold anything, so its place in the release stands for it.
    pub fn check_output(&self, number: usize) -> PathBuf {
        self.path.join(format!("check-{number}.log"))
    }
}

/// Names of runs begin with their time, so that their order is that of their names.
fn forget_old(runs: &Path) {
    let mut all: Vec<_> = fs::read_dir(runs).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    all.sort();
    while all.len() >= KEPT {
        let path = all.remove(0);
        if let Err(error) = fs::remove_dir_all(&path) {
            tracing::warn!(directory = %path.display(), %error, "cannot remove the directory of an old run");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_runs_stay() {
        let runs = tempfile::tempdir().unwrap();
        for number in 10..50 {
            RunDirectory::create(runs.path(), &RunId::new(format!("r{number}")).unwrap()).unwrap();
        }
        let mut names: Vec<_> =
            fs::read_dir(runs.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, (30..50).map(|number| format!("r{number}")).collect::<Vec<_>>());
    }
}
