//! Reads the agent's state without its lock, for commands that work while an agent runs.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};

use crate::config::Config;
use crate::state::directory::Layout;
use crate::state::ledger::Ledger;

#[derive(Debug)]
pub(super) struct LocalState {
    /// `None` if no agent was ever started on this node.
    pub(super) ledger: Option<Ledger>,
    /// An agent is running in the state directory.
    pub(super) agent_running: bool,
    /// Number of unsent reports.
    pub(super) unsent_reports: usize,
}

impl LocalState {
    pub(super) fn read(config: &Config) -> anyhow::Result<Self> {
        let layout = Layout::at(&config.state_dir);
        let path = layout.ledger();
        let ledger = match fs::read(&path) {
            Ok(bytes) => {
                let parsed = serde_json::from_slice::<Ledger>(&bytes);
                let ledger = parsed.with_context(|| format!("the ledger {} is damaged", path.display()))?;
                anyhow::ensure!(
                    ledger.node == config.node && ledger.env == config.env,
                    "the state directory {} belongs to node {} of environment {}",
                    config.state_dir.display(),
                    ledger.node,
                    ledger.env
                );
                Some(ledger)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let unsent_reports =
            fs::read_dir(layout.outbox()).map_or(0, |entries| entries.flatten().filter(is_report).count());
        Ok(Self { ledger, agent_running: is_locked(&layout.lock()), unsent_reports })
    }

    /// The version that was validated last.
    pub(super) fn local(&self) -> Option<&crate::state::ledger::LocalVersion> {
        self.ledger.as_ref()?.local.as_ref()
    }
}

fn is_report(entry: &fs::DirEntry) -> bool {
    entry.path().extension().is_some_and(|extension| extension == "json")
}

/// True if an agent holds the lock. The test itself holds the lock for an instant; an agent that starts then waits for it.
fn is_locked(lock: &Path) -> bool {
    let Ok(lock) = File::open(lock) else { return false };
    flock(&lock, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}
