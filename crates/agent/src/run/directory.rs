//! The id and the directory of a run: its input files, its output files, and the removal of old ones.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{Role, RunId, Version};
use muster_core::release::dir::hex;
use muster_core::report::Interfaces;
use muster_removal::OwnedDir;
use muster_supervisor::output::truncate;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::config::{AgentNode, RunNames};
use crate::run::environment;
use crate::state::directory::Layout;
use crate::state::durable::StateWriteError;

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
    host: &'a str,
    role: &'a str,
    version: &'a str,
    interfaces: &'a Interfaces,
    #[serde(flatten)]
    snapshot: &'a Snapshot,
}

impl RunDirectory {
    /// The directory of a run that an earlier agent has started.
    pub fn existing(runs: &Path, run: &RunId) -> Self {
        Self { path: runs.join(run.as_str()) }
    }

    /// Creates an empty directory and removes those of old runs. Only the agent's user may read it: the input and output
    /// of a run may contain secrets.
    pub fn create(runs: &Path, run: &RunId) -> Result<Self, StateWriteError> {
        remove_old(runs);
        let path = runs.join(run.as_str());
        let is_free = fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let made = if is_free { Ok(()) } else { OwnedDir::open(runs).and_then(|runs| runs.remove(run.as_str())) };
        made.and_then(|()| DirBuilder::new().recursive(true).mode(0o700).create(&path))
            .map_err(|source| StateWriteError::Io { path: path.clone(), source })?;
        Ok(Self { path })
    }

    /// Writes the snapshot that the run looks keys up in.
    pub fn write_snapshot(
        &self,
        node: &AgentNode,
        names: &RunNames,
        role: &Role,
        version: &Version,
        snapshot: &Snapshot,
    ) -> Result<(), StateWriteError> {
        let file = SnapshotFile {
            env: node.env.as_str(),
            node: node.name.as_str(),
            host: &names.host,
            role: role.as_str(),
            version: version.as_str(),
            interfaces: &node.interfaces.addresses(),
            snapshot,
        };
        let path = self.snapshot();
        let bytes = serde_json::to_vec(&file).map_err(|source| StateWriteError::Json { path: path.clone(), source })?;
        // Not durable: no run survives a power failure.
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        opened.and_then(|mut file| file.write_all(&bytes)).map_err(|source| StateWriteError::Io { path, source })
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

    /// Directory of the applier's supervisor.
    pub fn applier(&self) -> PathBuf {
        self.path.join("applier")
    }

    /// Directory of the supervisor of a hook.
    pub fn hook(&self, number: usize) -> PathBuf {
        self.path.join(format!("hook-{number}"))
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
///
/// Only names that [`new_run_id`] makes are removed: what else is there was not made by the agent.
fn remove_old(runs: &Path) {
    let owned = OwnedDir::open(runs).and_then(|owned| Ok((owned.names()?, owned)));
    let (names, owned) = match owned {
        Ok(owned) => owned,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            tracing::error!(directory = %runs.display(), %error, "cannot remove the directories of old runs");
            return;
        }
    };
    let mut all: Vec<_> = names.into_iter().filter_map(|name| Some((seq_of(&name)?, name))).collect();
    // By sequence number and not by time: a clock that was set back must not make the last run the oldest.
    all.sort();
    let mut too_many = (all.len() + 1).saturating_sub(KEPT);
    for (_, name) in all {
        if too_many > 0 && !has_processes(&name) {
            too_many -= 1;
            if let Err(error) = owned.remove(&name) {
                tracing::warn!(directory = %runs.join(&name).display(), %error, "cannot remove the directory of an old run");
            }
        } else if let Err(error) = truncate(&runs.join(&name).join(OUTPUT)) {
            tracing::warn!(directory = %runs.join(&name).display(), %error, "cannot truncate the output of an old run");
        }
    }
}

/// True if a process of the run is still there. If that is unknown the directory counts as unused, or directories would
/// accumulate.
fn has_processes(run: &str) -> bool {
    muster_marked::find(environment::RUN_ID, run).is_ok_and(|found| !found.is_empty())
}

/// Makes the id of a run: its start time, the sequence number of its first report, and a hash. Ids sort by time, and by
/// number within one second. The hash covers environment, node and state directory, because several agents may run on one
/// machine and each finds its processes by the id of the run.
pub fn new_run_id(node: &AgentNode, seq: u64, started: Timestamp) -> RunId {
    let mut hasher = Sha256::new();
    for part in [node.env.as_str(), node.name.as_str(), &node.layout.runs().display().to_string()] {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher.update(started.as_nanosecond().to_le_bytes());
    let hash = hex(&hasher.finalize());
    let text = format!("{}-{seq:06}-{}", started.strftime("%Y%m%dt%H%M%S"), &hash[..8]);
    match RunId::new(text) {
        Ok(run) => run,
        // Digits, `t`, `-` and hexadecimal digits are legal, and there are fewer than 64.
        Err(error) => unreachable!("{error}"),
    }
}

/// Sequence number in a name that [`new_run_id`] has made: `20270115t080000-000007-abcdef01`. `None` for any other name.
fn seq_of(name: &str) -> Option<u64> {
    let parts: Vec<&str> = name.split('-').collect();
    let [started, seq, hash] = parts[..] else { return None };
    let (day, time) = started.split_once('t')?;
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_hash = hash.len() == 8 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (digits(day, 8) && digits(time, 6) && is_hash && seq.len() >= 6 && digits(seq, seq.len()))
        .then(|| seq.parse().ok())?
}

/// A sequence number after those of all stored runs, for an agent that has lost its ledger. A run uses two numbers.
pub fn next_seq(layout: &Layout) -> u64 {
    let directories = [layout.runs(), layout.validations()];
    let names = directories.into_iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten().flatten();
    names.filter_map(|entry| seq_of(entry.file_name().to_str()?)).max().map_or(1, |last| last.saturating_add(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node;

    fn names(runs: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn run_name(seq: usize) -> String {
        format!("20270115t090000-{seq:06}-abcdef01")
    }

    #[test]
    fn only_names_of_runs_are_removed() {
        let runs = tempfile::tempdir().unwrap();
        let foreign =
            ["etc", "r1", "20270115t090000-000001-abcdef0", "20270115t090000-000001-ABCDEF01", "2027-000001-abcdef01"];
        for name in foreign {
            fs::create_dir(runs.path().join(name)).unwrap();
        }
        for number in 0..2 * KEPT {
            RunDirectory::create(runs.path(), &RunId::new(run_name(number)).unwrap()).unwrap();
        }
        let names = names(runs.path());
        assert_eq!(names.len(), KEPT + foreign.len());
        assert!(foreign.iter().all(|name| names.iter().any(|found| found == name)), "{names:?}");
    }

    #[test]
    fn nothing_is_removed_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (etc, runs) = (dir.path().join("etc"), dir.path().join("runs"));
        for number in 0..2 * KEPT {
            fs::create_dir_all(etc.join(run_name(number))).unwrap();
        }
        std::os::unix::fs::symlink(&etc, &runs).unwrap();
        RunDirectory::create(&runs, &RunId::new(run_name(99)).unwrap()).unwrap();
        assert_eq!(names(&etc).len(), 2 * KEPT + 1);
        assert!(RunDirectory::create(&runs, &RunId::new(run_name(1)).unwrap()).is_err(), "it would have to be emptied");
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
        let held = format!("20270115t080000-000001-{:08x}", std::process::id());
        RunDirectory::create(runs.path(), &RunId::new(held.clone()).unwrap()).unwrap();
        let mut service = std::process::Command::new("sleep").arg("1000").env("MUSTER_RUN_ID", &held).spawn().unwrap();
        // `spawn` returns shortly before the environment of the program can be read.
        let environment = || std::fs::read(format!("/proc/{}/environ", service.id())).unwrap_or_default();
        while !String::from_utf8_lossy(&environment()).contains(&held) {
            std::thread::yield_now();
        }
        for number in 10..50 {
            RunDirectory::create(runs.path(), &RunId::new(run_name(number)).unwrap()).unwrap();
        }
        assert!(names(runs.path()).contains(&held));
        assert_eq!(names(runs.path()).len(), KEPT);
        service.kill().unwrap();
        service.wait().unwrap();
        RunDirectory::create(runs.path(), &RunId::new(run_name(50)).unwrap()).unwrap();
        assert!(!names(runs.path()).contains(&held));
    }

    #[test]
    fn run_directory_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let (_directory, node) = crate::testing::node("web1");
        let made = RunDirectory::create(&node.layout.runs(), &RunId::new("r1").unwrap()).unwrap();
        let (role, version) = (Role::new("web").unwrap(), Version::new("v1").unwrap());
        made.write_snapshot(&node, &node.names(None), &role, &version, &Snapshot::default()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(made.path()), mode(&made.snapshot())), (0o700, 0o600));
    }

    #[test]
    fn only_the_last_runs_are_kept() {
        let runs = tempfile::tempdir().unwrap();
        for number in 10..50 {
            RunDirectory::create(runs.path(), &RunId::new(run_name(number)).unwrap()).unwrap();
        }
        assert_eq!(names(runs.path()), (30..50).map(run_name).collect::<Vec<_>>());
    }

    #[test]
    fn ids_sort_by_time_and_differ_between_agents() {
        let (dir_a, a) = node("web1");
        let (_dir_b, b) = node("web1");
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        assert!(new_run_id(&a, 7, at).as_str().starts_with("20270115t080000-000007-"), "{}", new_run_id(&a, 7, at));
        assert!(new_run_id(&a, 9, at).as_str() < new_run_id(&a, 11, at).as_str(), "within one second by number");
        assert!(new_run_id(&a, u64::MAX, at).as_str().len() <= 64);
        assert_ne!(new_run_id(&a, 7, at), new_run_id(&b, 7, at));
        drop(dir_a);
    }

    #[test]
    fn next_seq_follows_the_stored_runs() {
        let (_dir, node) = node("web1");
        let runs = node.layout.runs();
        assert_eq!(next_seq(&node.layout), 1);
        for name in ["odd", "20270115t090000-000007-abcdef01", "20270115t080000-000009-abcdef01"] {
            std::fs::create_dir_all(runs.join(name)).unwrap();
        }
        assert_eq!(next_seq(&node.layout), 11);
    }
}
