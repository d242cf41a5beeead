//! What the node itself knows, read without a lock and without changing anything: an agent may live in the directory.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};

use crate::config::Config;
use crate::ledger::Ledger;
use crate::state_dir::Layout;

#[derive(Debug)]
pub struct Known {
    /// None on a node whose agent has never been started.
    pub ledger: Option<Ledger>,
    /// Whether an agent lives in the state directory now.
    pub lives: bool,
    /// How many reports wait to be sent.
    pub waiting: usize,
}

impl Known {
    pub fn read(config: &Config) -> anyhow::Result<Self> {
        let layout = Layout::at(&config.state_dir);
        let path = layout.ledger();
        let ledger = match fs::read(&path) {
            Ok(bytes) => {
                let understood = serde_json::from_slice::<Ledger>(&bytes);
                let ledger = understood.with_context(|| format!("the agent's memory {} is damaged", path.display()))?;
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
        let waiting = fs::read_dir(layout.outbox()).map_or(0, |entries| entries.flatten().filter(is_report).count());
        Ok(Self { ledger, lives: lives(&layout.lock()), waiting })
    }

    /// The version that the node has proved to run.
    pub fn local(&self) -> Option<&crate::ledger::LocalVersion> {
        self.ledger.as_ref()?.local.as_ref()
    }
}

fn is_report(entry: &fs::DirEntry) -> bool {
    entry.path().extension().is_some_and(|extension| extension == "json")
}

/// Whether somebody holds the lock. It is held here for no longer than it takes to ask, and whoever starts at this moment
/// waits for it.
fn lives(lock: &Path) -> bool {
    let Ok(lock) = File::open(lock) else { return false };
    flock(&lock, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}
