//! What the agent must not forget: who it is, what it was told, how its last run ended, which run goes on.
//!
//! The ledger is written before the agent acts on what is in it. It belongs to the queue task alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use muster_core::generation::Generation;
use muster_core::lookups::Lookups;
use muster_core::names::{EnvName, NodeName, Role, RunId, Version};
use muster_core::reason::Need;
use muster_core::report::Cause;
use muster_core::snapshot::Snapshot;
use muster_wire::sync::DesiredState;

use crate::durable::{self, WriteError};
use crate::state_dir::Layout;

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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    Validated,
    Pending,
    Failed,
}

/// A run from its start to its last report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRun {
    pub run: RunId,
    /// The number of its first report. The one after it is set aside for its second.
    pub seq: u64,
    pub phase: RunPhase,
    pub version: Version,
    pub digest: String,
    pub generation: Generation,
    pub causes: Vec<Cause>,
    /// How many runs in a row had failed at this generation before it.
    pub failures: u32,
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

    /// How many runs in a row have failed at what the node should run now.
    pub fn failures(&self) -> u32 {
        let (Some(last), Some(desired)) = (&self.last, &self.desired) else { return 0 };
        if last.generation == desired.generation { last.attempt } else { 0 }
    }
}

/// Reads the snapshot that the server sent last.
pub fn load_snapshot(layout: &Layout) -> Result<Option<Snapshot>, LoadError> {
    read_or_move_aside(&layout.snapshot())
}

fn read_or_move_aside<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, LoadError> {
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
        for broken in ["", "{", "null", "{\"env\":\"test\"}", "\0\0\0\0"] {
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
