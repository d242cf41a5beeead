//! The ledger: identity, desired state, last run and run in progress of the agent, stored in one file.
//!
//! The ledger is written before the agent acts on it. Only the queue task writes it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use muster_core::lookup::snapshot::Snapshot;
use muster_core::lookup::{Lookups, Tag};
use muster_core::names::{EnvName, HostName, NodeName, Role, RunId, Version};
use muster_core::node::pause::NodePause;
use muster_core::release::timed_runs::DriftPolicy;
use muster_core::report::reason::Need;
use muster_core::report::{Cause, FirstFailure, Interfaces, Verdict};
use muster_core::txn::Generation;
use muster_wire::sync::DesiredState;

use crate::clock::ServerTime;
use crate::queue::auto_rollback::{AutoRollback, RollbackStage};
use crate::queue::hooks::{HookRecords, HookTrigger};
use crate::report::unsent::UnsentReport;
use crate::state::directory::Layout;
use crate::state::durable::{self, StateWriteError};

#[derive(Debug, Error)]
pub enum LoadError {
    #[error("cannot read {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the state directory belongs to node {found} of environment {env}, but this agent is configured as {node}: \
         correct the configuration, or give the agent an empty state directory"
    )]
    AnotherNode { found: NodeName, env: EnvName, node: NodeName },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    pub env: EnvName,
    pub node: NodeName,
    /// Assigned by the server. None until the first hello.
    pub incarnation: Option<u64>,
    /// Sequence number of the next report. It only grows, also across incarnations.
    pub next_seq: u64,
    pub role: Option<Role>,
    /// Host name in the design.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<HostName>,
    pub desired: Option<DesiredState>,
    /// The version that last passed its validation. For operators who inspect the node; no decision reads it.
    pub local: Option<LocalVersion>,
    pub last: Option<PreviousRun>,
    /// The work in progress. If the agent finds one at its start, it adopts that work.
    pub running: Option<RunningRun>,
    /// The release that was applied last. Its checks and hooks run between runs.
    #[serde(default)]
    pub applied: Option<AppliedRelease>,
    /// Result of the last validation. One with the same result is not reported.
    #[serde(default, rename = "proved")]
    pub last_validation: Option<ValidationRecord>,
    #[serde(default)]
    pub hooks: HookRecords,
    /// Tag of the values that the last reported run published.
    #[serde(default)]
    pub published: Option<Tag>,
    /// Digest of the drift that was reported last; see [`drift::digest`](muster_core::report::drift::digest).
    #[serde(default)]
    pub drift: Option<String>,
    /// The pause of this node, if it is paused.
    #[serde(default)]
    pub pause: Option<NodePause>,
    #[serde(default)]
    pub server_time: Option<ServerTime>,
    /// Id of the last accepted run request. The server may send it again after a reconnection.
    #[serde(default, rename = "asked")]
    pub run_request: Option<String>,
    /// Causes of the waiting run when the ledger was last written. A pause may be long, and an operator may wait for a
    /// requested run.
    #[serde(default)]
    pub waiting: Vec<Cause>,
    /// Requests for a preview that are not answered yet.
    #[serde(default)]
    pub previews: Vec<Cause>,
    /// The releases of those that are not for the desired one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preview_releases: Vec<DesiredState>,
    /// Confirmation of the desired state, which is rolled back without it.
    #[serde(default, rename = "trial")]
    pub auto_rollback: Option<AutoRollback>,
}

/// A release that the applier has applied successfully.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedRelease {
    pub desired: DesiredState,
    pub validate_every: SignedDuration,
    /// Interval of timed runs. `None`: there are none.
    #[serde(default)]
    pub run_every: Option<SignedDuration>,
    /// Timed runs repair drift, or report it.
    #[serde(default)]
    pub drift: DriftPolicy,
    /// The hooks for the node's role.
    pub hooks: Vec<HookTrigger>,
}

/// Result of a validation, to compare with the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidationRecord {
    pub version: Version,
    /// Boot id of the machine. A validation before a reboot proves nothing after it.
    pub boot: Option<String>,
    pub failed: BTreeSet<String>,
    /// Addresses in the report. An older agent has stored none.
    #[serde(default)]
    pub interfaces: Interfaces,
}

impl From<&UnsentReport> for ValidationRecord {
    fn from(report: &UnsentReport) -> Self {
        let failed = report.checks.iter().filter(|check| check.verdict == Verdict::Failed);
        Self {
            version: report.version.clone(),
            boot: report.facts.boot.clone(),
            failed: failed.map(|check| check.name.clone()).collect(),
            interfaces: report.facts.interfaces.clone(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalVersion {
    pub version: Version,
    pub digest: String,
}

/// The part of the last run that the next decision needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousRun {
    pub run: RunId,
    pub generation: Generation,
    pub end: LedgerRunEnd,
    /// Unmet needs of a pending run.
    pub needs: Vec<Need>,
    pub lookups: Lookups,
    /// Failed runs in a row at this generation.
    pub attempt: u32,
    /// The first of those failures.
    #[serde(default)]
    pub first_failure: Option<FirstFailure>,
    /// The applier succeeded, and only checks failed, after the run or later. The node is healthy when they pass again.
    #[serde(default)]
    pub only_checks_failed: bool,
    /// The run has ended without a result. Passing checks prove nothing until a run has ended by itself.
    #[serde(default)]
    pub lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerRunEnd {
    Validated,
    Pending,
    Failed,
}

/// Kind of work in the one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A run: the applier, then the checks.
    #[default]
    Run,
    /// The applier reports the changes that it would make.
    Preview,
    /// Hooks react to a change; then the checks run.
    Hooks,
    /// Only the checks.
    Validation,
}

/// Work in progress, from its start to its last report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRun {
    pub run: RunId,
    #[serde(default)]
    pub work: Work,
    /// Sequence number of its first report. The next number is reserved for its second report.
    pub seq: u64,
    pub phase: RunPhase,
    pub version: Version,
    pub digest: String,
    pub generation: Generation,
    pub causes: Vec<Cause>,
    /// Failed runs in a row at this generation before it, and the first of those failures.
    pub failures: u32,
    #[serde(default)]
    pub first_failure: Option<FirstFailure>,
    /// The hooks to run.
    #[serde(default)]
    pub hooks: Vec<HookTrigger>,
    /// The applier of a timed run has changed nothing. The run is reported only if its validation differs from the last one.
    #[serde(default)]
    pub unchanged: bool,
    pub started: Timestamp,
    /// The order, for an agent that adopts the work. `None` if an older agent has started it.
    #[serde(default)]
    pub order: Option<Box<StoredOrder>>,
}

impl RunningRun {
    /// True for a run or a preview that only the time has caused.
    pub fn is_timed(&self) -> bool {
        match self.work {
            Work::Run | Work::Preview => self.causes == [Cause::Schedule],
            Work::Hooks | Work::Validation => false,
        }
    }
}

/// The part of a work order that the ledger does not have otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredOrder {
    pub desired: DesiredState,
    pub role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    Applying,
    /// The applier succeeded, and its report, if it has one, is in the outbox. The processes that it started are kept.
    Validating,
}

impl Ledger {
    pub fn new(env: EnvName, node: NodeName) -> Self {
        Self {
            env,
            node,
            incarnation: None,
            next_seq: 1,
            role: None,
            host_name: None,
            desired: None,
            local: None,
            last: None,
            running: None,
            applied: None,
            last_validation: None,
            hooks: HookRecords::new(),
            published: None,
            drift: None,
            pause: None,
            server_time: None,
            run_request: None,
            waiting: Vec::new(),
            previews: Vec::new(),
            preview_releases: Vec::new(),
            auto_rollback: None,
        }
    }

    /// Reads the ledger. A damaged one is moved aside and logged: the agent starts with an empty ledger, and the server
    /// sends what it needs.
    pub fn load(layout: &Layout, env: &EnvName, node: &NodeName) -> Result<Self, LoadError> {
        let Some(found) = read_or_move_aside::<Ledger>(&layout.ledger())? else {
            return Ok(Self::new(env.clone(), node.clone()));
        };
        if found.node != *node || found.env != *env {
            return Err(LoadError::AnotherNode { found: found.node, env: found.env, node: node.clone() });
        }
        Ok(found)
    }

    pub fn save(&self, layout: &Layout) -> Result<(), StateWriteError> {
        durable::write_json(&layout.ledger(), self)
    }

    /// The release of the next run: the desired one or, after a rollback, the previous one.
    pub fn target(&self) -> Option<DesiredState> {
        self.current_rollback().and_then(AutoRollback::replacement).or_else(|| self.desired.clone())
    }

    /// The auto-rollback of the current desired state.
    pub fn current_rollback(&self) -> Option<&AutoRollback> {
        let desired = self.desired.as_ref()?;
        self.auto_rollback.as_ref().filter(|rollback| rollback.generation == desired.generation)
    }

    /// The generation that the node has rolled back and does not try again.
    pub fn rolled_back_generation(&self) -> Option<Generation> {
        let rollback = self.current_rollback().filter(|rollback| rollback.stage == RollbackStage::RolledBack);
        rollback.map(|rollback| rollback.generation)
    }

    /// True if the current release was applied and is not confirmed yet.
    pub fn awaits_confirmation(&self) -> bool {
        self.current_rollback().is_some_and(AutoRollback::is_unconfirmed)
    }

    /// True if a rollback run waits to start.
    pub fn has_waiting_rollback(&self) -> bool {
        self.waiting.iter().any(|cause| matches!(cause, Cause::AutoRollback { .. }))
    }

    /// Failed runs in a row at the current desired state.
    pub fn failures(&self) -> u32 {
        let (Some(last), Some(desired)) = (&self.last, &self.desired) else { return 0 };
        if last.generation == desired.generation { last.attempt } else { 0 }
    }

    /// The first of the [`Ledger::failures`].
    pub fn first_failure(&self) -> Option<&FirstFailure> {
        if self.failures() == 0 { None } else { self.last.as_ref()?.first_failure.as_ref() }
    }

    /// Keys that the server watches for the node: the lookups of its last run and the keys of its hooks. The tag of a hook
    /// key is that of the current snapshot; whether the hook has run with it is not the server's concern.
    pub fn watched(&self, snapshot: Option<&Snapshot>) -> Lookups {
        let mut watched = self.last.as_ref().map(|last| last.lookups.clone()).unwrap_or_default();
        self.watch_hooks(&mut watched, snapshot);
        watched
    }

    /// Adds the keys of the hooks to the lookups of a run.
    pub fn watch_hooks(&self, lookups: &mut Lookups, snapshot: Option<&Snapshot>) {
        let keys = self.applied.iter().flat_map(|applied| &applied.hooks).flat_map(|hook| &hook.keys);
        for key in keys {
            let tag = || snapshot.map_or_else(Tag::absent, |snapshot| snapshot.tag(key));
            lookups.entry(key.clone()).or_insert_with(tag);
        }
    }
}

/// Reads the snapshot of a run, if it is still there.
pub fn snapshot_of_run(layout: &Layout, run: Option<&RunId>) -> Option<Snapshot> {
    let path = layout.runs().join(run?.as_str()).join("snapshot.json");
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Reads the latest snapshot of the server.
pub fn load_snapshot(layout: &Layout) -> Result<Option<Snapshot>, LoadError> {
    read_or_move_aside(&layout.snapshot())
}

pub(crate) fn read_or_move_aside<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, LoadError> {
    let failed = |source| LoadError::Io { path: path.to_owned(), source };
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory && durable::repair_directory(path) => {
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            let aside = durable::move_aside(path).map_err(failed)?;
            tracing::error!(
                file = %path.display(), kept = %aside.display(), %error,
                "cannot parse a state file of the agent; continuing without it, the server sends what is needed",
            );
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::directory::StateDir;

    fn names() -> (EnvName, NodeName) {
        (EnvName::new("test").unwrap(), NodeName::new("web1").unwrap())
    }

    #[test]
    fn saved_ledger_is_loaded_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let layout = StateDir::open(dir.path()).unwrap().layout();
        let (env, node) = names();
        let mut ledger = Ledger::load(&layout, &env, &node).unwrap();
        assert_eq!(ledger, Ledger::new(env.clone(), node.clone()));
        ledger.incarnation = Some(3);
        ledger.next_seq = 9;
        ledger.save(&layout).unwrap();
        assert_eq!(Ledger::load(&layout, &env, &node).unwrap(), ledger);
    }

    #[test]
    fn damaged_ledger_is_moved_aside_and_replaced_by_a_new_one() {
        let (env, node) = names();
        let odd_pause = r#"{"env":"test","node":"web1","incarnation":1,"next_seq":3,"role":null,"desired":null,"local":null,
            "last":null,"running":null,"pause":{"scope":"everybody"}}"#;
        for broken in ["", "{", "null", "{\"env\":\"test\"}", "\0\0\0\0", odd_pause] {
            let dir = tempfile::tempdir().unwrap();
            let layout = StateDir::open(dir.path()).unwrap().layout();
            fs::write(layout.ledger(), broken).unwrap();
            assert_eq!(
                Ledger::load(&layout, &env, &node).unwrap(),
                Ledger::new(env.clone(), node.clone()),
                "{broken:?}"
            );
            let aside = layout.ledger().with_extension("json.broken");
            assert_eq!(fs::read_to_string(aside).unwrap(), broken);
        }
    }

    #[test]
    fn directory_in_place_of_the_ledger_is_moved_aside() {
        let (env, node) = names();
        let dir = tempfile::tempdir().unwrap();
        let layout = StateDir::open(dir.path()).unwrap().layout();
        for path in [layout.ledger(), layout.snapshot()] {
            fs::create_dir_all(path.join("deep")).unwrap();
        }
        assert_eq!(Ledger::load(&layout, &env, &node).unwrap(), Ledger::new(env, node));
        assert_eq!(load_snapshot(&layout).unwrap(), None);
        assert!(layout.ledger().with_extension("json.broken").join("deep").is_dir());
        assert!(!layout.snapshot().exists());
    }

    #[test]
    fn ledger_of_an_older_agent_is_loaded() {
        let (env, node) = names();
        let dir = tempfile::tempdir().unwrap();
        let layout = StateDir::open(dir.path()).unwrap().layout();
        let old = r#"{"env":"test","node":"web1","incarnation":2,"next_seq":9,"role":"web","desired":null,"local":null,
            "last":{"run":"r1","generation":{"epoch":1,"number":1},"end":"validated","needs":[],"lookups":{},"attempt":0},
            "running":{"run":"r2","seq":7,"phase":"applying","version":"v1","digest":"sha256:x",
                       "generation":{"epoch":1,"number":1},"causes":[],"failures":0,"started":"2026-11-15T10:00:00Z","ended":null}}"#;
        fs::write(layout.ledger(), old).unwrap();
        let ledger = Ledger::load(&layout, &env, &node).unwrap();
        assert_eq!((ledger.incarnation, ledger.next_seq, ledger.pause), (Some(2), 9, None));
        assert_eq!(ledger.running.map(|running| running.work), Some(Work::Run));
    }

    #[test]
    fn crash_during_a_write_keeps_the_old_ledger() {
        let dir = tempfile::tempdir().unwrap();
        let layout = StateDir::open(dir.path()).unwrap().layout();
        let (env, node) = names();
        let ledger = Ledger::new(env.clone(), node.clone());
        ledger.save(&layout).unwrap();
        fs::write(layout.ledger().with_extension("json.tmp"), "{\"env\":").unwrap();
        assert_eq!(Ledger::load(&layout, &env, &node).unwrap(), ledger);
        ledger.save(&layout).unwrap();
        assert!(!layout.ledger().with_extension("json.tmp").exists());
    }

    #[test]
    fn state_directory_of_another_node_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let layout = StateDir::open(dir.path()).unwrap().layout();
        let (env, node) = names();
        Ledger::new(env.clone(), node).save(&layout).unwrap();
        let refused = Ledger::load(&layout, &env, &NodeName::new("web2").unwrap()).unwrap_err();
        assert!(refused.to_string().starts_with("the state directory belongs to node web1"), "{refused}");
    }
}
