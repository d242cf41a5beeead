//! Sets up the process of a command: signals, logging, the limit of open files, and the state directory.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use muster_server::private_files::{create_private_dir, private_file, restrict};
use rustix::process::{Resource, getrlimit, setrlimit};
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::connect::STATE_DIR;

/// Log filter without RUST_LOG: the events that an operator on call needs.
const DEFAULT_LOG: &str = "warn,muster=info";
/// Bytes of a log file at which it is rotated on the next start; one old file is kept.
const LOG_LIMIT: u64 = 8 * 1024 * 1024;

/// Starts logging to standard error.
pub(crate) fn log_to_stderr() {
    let colors = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_env_filter(log_filter()).with_writer(io::stderr).with_ansi(colors);
    // Fails only if a test has installed a subscriber already.
    let _ = log.with_target(false).try_init();
}

/// Starts logging to a file, for a command that uses the terminal itself.
pub(crate) fn log_to_file(path: &Path) -> io::Result<()> {
    let log = tracing_subscriber::fmt()
        .with_env_filter(log_filter())
        .with_writer(Mutex::new(open_log(path)?))
        .with_ansi(false);
    let _ = log.with_target(false).try_init();
    Ok(())
}

fn open_log(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() > LOG_LIMIT) {
        std::fs::rename(path, path.with_extension("log.old"))?;
    }
    let log = private_file().create(true).append(true).open(path)?;
    restrict(path)?;
    Ok(log)
}

fn log_filter() -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG))
}

/// Raises the limit of open files to the maximum: a server holds one connection per agent, and the default is 1,024.
///
/// Child processes inherit the limit, and programs that use select(2) fail with a high one. Call this only in a process
/// that starts no other programs.
pub(crate) fn raise_open_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        // The current limit is enough for a small fleet.
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Signals that stop a command: SIGINT (Ctrl-C), SIGTERM and SIGHUP.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

#[derive(Debug, Error)]
#[error("cannot use {} as the state directory", path.display())]
pub(crate) struct StateDirError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The chosen state directory, or `.muster` in the current directory. Creates it if it does not exist. Only its owner can
/// read what is in it.
pub(crate) fn state_dir(chosen: Option<&Path>) -> Result<PathBuf, StateDirError> {
    let path = chosen.unwrap_or(Path::new(STATE_DIR)).to_owned();
    let created = create_private_dir(&path).and_then(|()| path.canonicalize());
    let private = created.and_then(|path| restrict(&path).map(|()| path));
    private.map_err(|source| StateDirError { path, source })
}

/// The default directory of blobs.
pub(crate) fn blobs_in(state: &Path) -> PathBuf {
    state.join("blobs")
}
