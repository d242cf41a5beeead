//! What the agent must not forget: who it is, what it was told, how its last run ended, which run goes on.
//!
//! The ledger is written before the agent acts on what is in it. It belongs to the queue task alone.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use muster_core::lookup::snapshot::Snapshot;
use muster_core::lookup::{Lookups, Tag};
use muster_core::names::{EnvName, NodeName, Role, RunId, Version};
use muster_core::node::pause::NodePause;
use muster_core::report::reason::Need;
use muster_core::report::{Cause, FirstFailure, Report, Verdict};
use muster_core::txn::Generation;
use muster_wire::sync::DesiredState;

use crate::durable::{self, WriteError};
use crate::queue::hooks::{HookMemories, HookOn};
use crate::queue::server_time::ServerTime;
use crate::state_dir::Layout;
use crate::trial::{Stage, Trial};

#[derive(Debug, Error)]
pub enum LoadError {
    #[error("cannot read {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the state directory belongs to node {found} of environment {env}, and this agent is configured as {node}: \
         correct the configuration, or give the agent an empty state directory"
    )]
    AnotherNode { found: NodeName, env: EnvName, node: NodeName },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    pub env: EnvName,
    pub node: NodeName,
    /// Given out by the server. None until the first hello.
    pub incarnation: Option<u64>,
    /// The number of the next report. It only grows, also from one incarnation to the next.
    pub next_seq: u64,
    pub role: Option<Role>,
    pub desired: Option<DesiredState>,
    /// What the node has proved to run: set only after its validation passed. For the person who looks at the node
    /// itself, in the log of each start and in this file; nothing is decided on it.
    pub local: Option<LocalVersion>,
    pub last: Option<LastRun>,
    /// The run that goes on; found at a start, it was cut off.
    pub running: Option<RunningRun>,
    /// The release that the node was last brought to. Between runs it is what is validated, and its hooks are those that react.
    #[serde(default)]
    pub applied: Option<AppliedRelease>,
    /// What the last validation said; one that says the same is not told.
    #[serde(default)]
    pub proved: Option<Proved>,
    #[serde(default)]
    pub hooks: HookMemories,
    /// The node is not to run.
    #[serde(default)]
    pub pause: Option<NodePause>,
    #[serde(default)]
    pub server_time: Option<ServerTime>,
    /// The last request of a person that was taken; the server may say it again after a reconnection.
    #[serde(default)]
    pub asked: Option<String>,
    /// Causes of the run that waits, as they were when the ledger was last written. A pause may be long, and a person who
    /// asked for a run is waiting for it.
    #[serde(default)]
    pub waiting: Vec<Cause>,
    /// Who has asked for a preview, and has not got it yet.
    #[serde(default)]
    pub previews: Vec<Cause>,
    /// The desired state that the node goes back from unless a server takes a report of it.
    #[serde(default)]
    pub trial: Option<Trial>,
}

/// A release that was carried out, whole or with nothing left to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedRelease {
    pub desired: DesiredState,
    pub validate_every: SignedDuration,
    /// Those for the node's role.
    pub hooks: Vec<HookOn>,
}

/// How a validation ended, as far as it matters whether the next says the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proved {
    pub version: Version,
    /// Which start of the machine it was in: what was proved before another one proves nothing.
    pub boot: Option<String>,
    pub failed: BTreeSet<String>,
}

impl Proved {
    /// What a report of a validation says.
    pub fn by(report: &Report) -> Self {
        let failed = report.checks.iter().filter(|check| check.verdict == Verdict::Failed);
        Self {
            version: report.version.clone(),
            boot: report.facts.boot.clone(),
            failed: failed.map(|check| check.name.clone()).collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalVersion {
    pub version: Version,
    pub digest: String,
}

/// What the next decision needs to know of the last run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    pub run: RunId,
    pub generation: Generation,
    pub end: RunEnd,
    /// What a pending run waits for.
    pub needs: Vec<Need>,
    pub lookups: Lookups,
    /// How many runs in a row have failed at this generation.
    pub attempt: u32,
    /// How that began.
    #[serde(default)]
    pub first_failure: Option<FirstFailure>,
    /// The applier did well, and the checks after it, or after a while, did not. When they pass, all is well again.
    #[serde(default)]
    pub only_checks_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    Validated,
    Pending,
    Failed,
}

/// What the one slot is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A whole run: the applier, then the checks.
    #[default]
    Run,
    /// The applier says what it would do.
    Preview,
    /// Hooks react to a change; then the checks are made.
    Hooks,
    /// Nothing but the checks.
    Validation,
}

/// A piece of work from its start to its last report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRun {
    pub run: RunId,
    #[serde(default)]
    pub work: Work,
    /// The number of its first report. The one after it is set aside for its second.
    pub seq: u64,
    pub phase: RunPhase,
    pub version: Version,
    pub digest: String,
    pub generation: Generation,
    pub causes: Vec<Cause>,
    /// How many runs in a row had failed at this generation before it, and how that began.
    pub failures: u32,
    #[serde(default)]
    pub first_failure: Option<FirstFailure>,
    /// Those that are to run.
    #[serde(default)]
    pub hooks: Vec<HookOn>,
    pub started: Timestamp,
    /// When the agent that ended it in passing did so; none if the agent itself was killed.
    pub ended: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    Applying,
    /// The applier ended well and that is in the outbox: what it started is meant to stay.
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
            desired: None,
            local: None,
            last: None,
            running: None,
            applied: None,
            proved: None,
            hooks: HookMemories::new(),
            pause: None,
            server_time: None,
            asked: None,
            waiting: Vec::new(),
            previews: Vec::new(),
            trial: None,
        }
    }

    /// Reads the ledger. One that is not understood is moved aside, with a word to the operator: the agent starts
    /// afresh, and the server tells it all it needs.
    pub fn load(layout: &Layout, env: &EnvName, node: &NodeName) -> Result<Self, LoadError> {
        let Some(found) = read_or_move_aside::<Ledger>(&layout.ledger())? else {
            return Ok(Self::new(env.clone(), node.clone()));
        };
        if found.node != *node || found.env != *env {
            return Err(LoadError::AnotherNode { found: found.node, env: found.env, node: node.clone() });
        }
        Ok(found)
    }

    pub fn save(&self, layout: &Layout) -> Result<(), WriteError> {
        durable::write_json(&layout.ledger(), self)
    }

    /// What a run is made of: what the node should run or, if it has given that up, what it ran before.
    pub fn target(&self) -> Option<DesiredState> {
        self.trial_now().and_then(Trial::instead).or_else(|| self.desired.clone())
    }

    /// The trial of what the node should run now.
    pub fn trial_now(&self) -> Option<&Trial> {
        let desired = self.desired.as_ref()?;
        self.trial.as_ref().filter(|trial| trial.generation == desired.generation)
    }

    /// The generation that the node does not try again.
    pub fn gave_up(&self) -> Option<Generation> {
        self.trial_now().filter(|trial| trial.stage == Stage::GivenUp).map(|trial| trial.generation)
    }

    /// Whether it is not yet known if the node goes back from what it was brought to.
    pub fn awaits_confirmation(&self) -> bool {
        self.trial_now().is_some_and(Trial::is_unconfirmed)
    }

    /// Whether the run that goes back has still to begin.
    pub fn is_to_go_back(&self) -> bool {
        self.waiting.iter().any(|cause| matches!(cause, Cause::WentBack { .. }))
    }

    /// How many runs in a row have failed at what the node should run now.
    pub fn failures(&self) -> u32 {
        let (Some(last), Some(desired)) = (&self.last, &self.desired) else { return 0 };
        if last.generation == desired.generation { last.attempt } else { 0 }
    }

    /// How the failures of [`Ledger::failures`] began.
    pub fn first_failure(&self) -> Option<&FirstFailure> {
        if self.failures() == 0 { None } else { self.last.as_ref()?.first_failure.as_ref() }
    }

    /// What the server is to watch for the node: what its last run looked up, and what its hooks are about. Of the latter
    /// the agent says what it has got; whether a hook has seen it is its own affair.
    pub fn watched(&self, snapshot: Option<&Snapshot>) -> Lookups {
        let mut watched = self.last.as_ref().map(|last| last.lookups.clone()).unwrap_or_default();
        self.watch_hooks(&mut watched, snapshot);
        watched
    }

    /// Adds what the hooks are about to what a run has looked up.
    pub fn watch_hooks(&self, lookups: &mut Lookups, snapshot: Option<&Snapshot>) {
        let keys = self.applied.iter().flat_map(|applied| &applied.hooks).flat_map(|hook| &hook.keys);
        for key in keys {
            let tag = || snapshot.map_or_else(Tag::absent, |snapshot| snapshot.tag(key));
            lookups.entry(key.clone()).or_insert_with(tag);
        }
    }
}

/// Reads the snapshot that a run saw, if it is still there: only what changed since is said with it.
pub fn seen_by(layout: &Layout, last: Option<&LastRun>) -> Option<Snapshot> {
    let path = layout.runs().join(last?.run.as_str()).join("snapshot.json");
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Reads the snapshot that the server sent last.
pub fn load_snapshot(layout: &Layout) -> Result<Option<Snapshot>, LoadError> {
    read_or_move_aside(&layout.snapshot())
}

pub(crate) fn read_or_move_aside<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, LoadError> {
    let failed = |source| LoadError::Io { path: path.to_owned(), source };
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            let aside = durable::move_aside(path).map_err(failed)?;
            tracing::error!(
                file = %path.display(), kept = %aside.display(), %error,
                "a file of the agent's memory is not understood; going on without it: the server knows what is needed",
            );
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_dir::StateDir;

    fn names() -> (EnvName, NodeName) {
        (EnvName::new("test").unwrap(), NodeName::new("web1").unwrap())
    }

    #[test]
    fn it_comes_back_as_it_was_written() {
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
    fn one_that_is_broken_is_kept_aside_and_the_agent_starts_afresh() {
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
    fn one_of_an_older_agent_is_understood() {
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
    fn a_crash_while_writing_leaves_the_old_one() {
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
    fn the_directory_of_another_node_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let layout = StateDir::open(dir.path()).unwrap().layout();
        let (env, node) = names();
        Ledger::new(env.clone(), node).save(&layout).unwrap();
        let refused = Ledger::load(&layout, &env, &NodeName::new("web2").unwrap()).unwrap_err();
        assert!(refused.to_string().starts_with("the state directory belongs to node web1"), "{refused}");
    }
}
