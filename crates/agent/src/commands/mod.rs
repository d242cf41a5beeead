//! Subcommands of `muster-agent` besides `run`. All except `once` and `join` only read, and work while an agent runs.

pub mod check;
pub mod join;
pub mod lookup;
pub mod once;
pub mod status;
pub mod version;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use std::{fmt, fs, io};

use anyhow::Context;
use muster_wire::sync::DesiredResponse;
use rustix::fs::{FlockOperation, flock};
use tokio::time::timeout;

use crate::config::ConfigFile;
use crate::state::directory::Layout;
use crate::state::ledger::Ledger;
use crate::state::outbox::Outbox;
use crate::sync::error_chain;
use crate::sync::handshake::incompatible;
use crate::sync::servers::ServerClients;

/// Exit codes, which are a contract with scripts. The help of each subcommand lists its own.
pub const SUCCESS: u8 = 0;
pub const FAILURE: u8 = 1;
pub const UNKNOWN: u8 = 2;
/// `pending-update`: unknown, and the node was never configured.
pub const NEVER_CONFIGURED: u8 = 3;
/// `once`: an agent is running.
pub const AGENT_RUNNING: u8 = 3;
pub const PAUSED: u8 = 9;
/// The run waits for another node.
pub const PENDING: u8 = 75;

/// Prints a line. A closed pipe is no error.
fn print_line(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Timeout of each server. A healthy one answers in a millisecond; a frozen one accepts the connection and never answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The answer of the first server that answers, or why none did.
pub(super) async fn request_desired(config: &ConfigFile) -> Result<DesiredResponse, String> {
    let servers = ServerClients::from_config(config).map_err(|error| error_chain(&error))?;
    let mut why = String::new();
    for client in servers.all().iter() {
        match timeout(ANSWER_TIMEOUT, client.desired(&config.env, &config.node)).await {
            Ok(Ok(response)) => match incompatible(response.protocol) {
                None => return Ok(response),
                Some(protocols) => why = format!("the server at {}: {protocols}; {}", client.base(), protocols.hint()),
            },
            Ok(Err(error)) => why = error_chain(&error),
            Err(_) => why = format!("the server at {} does not answer", client.base()),
        }
    }
    Err(why)
}

#[derive(Debug)]
pub(super) struct LocalState {
    /// `None` if no agent was ever started on this node.
    pub(super) ledger: Option<Ledger>,
    /// An agent is running in the state directory.
    pub(super) agent_running: bool,
    /// Number of unsent reports.
    pub(super) unsent_reports: usize,
    /// Names of the files in the outbox that the agent did not write.
    pub(super) foreign_files: Vec<String>,
}

impl LocalState {
    pub(super) fn read(config: &ConfigFile) -> anyhow::Result<Self> {
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
        let outbox = Outbox::new(layout.outbox());
        let (unsent_reports, foreign_files) = (outbox.count(), outbox.foreign());
        Ok(Self { ledger, agent_running: is_locked(&layout.lock()), unsent_reports, foreign_files })
    }

    /// The version that was validated last.
    pub(super) fn local(&self) -> Option<&crate::state::ledger::LocalVersion> {
        self.ledger.as_ref()?.local.as_ref()
    }
}

/// True if an agent holds the lock. The test itself holds the lock for an instant; an agent that starts then waits for it.
fn is_locked(lock: &Path) -> bool {
    let Ok(lock) = File::open(lock) else { return false };
    flock(&lock, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}
