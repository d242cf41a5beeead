//! Sets up the process of a command: signals, logging, the limit of open files, and the state directory.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use muster_server::private_files::{create_private_dir, private_file, restrict};
use muster_server::{Server, TOKEN_FILE, TokenFileError, read_token, state_token};
use muster_wire::token::Token;
use rustix::process::{Resource, getrlimit, setrlimit};
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::prelude::*;

use crate::connect::STATE_DIR;

/// Log filter without RUST_LOG: the events that an operator on call needs.
const DEFAULT_LOG: &str = "warn,muster=info";
/// An event that cannot be written is lost. It would be reported on standard error, and panic if nobody reads that.
const LOG_INTERNAL_ERRORS: bool = false;
/// Bytes of a log file at which it is rotated on the next start; one old file is kept.
const LOG_LIMIT: u64 = 8 * 1024 * 1024;

/// Format of the log of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    /// One JSON object per line
    Json,
}

/// Starts logging to standard error.
pub(crate) fn log_to_stderr(format: LogFormat) {
    let colors = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = layer().with_writer(io::stderr).with_ansi(colors).with_target(false);
    let log = log.log_internal_errors(LOG_INTERNAL_ERRORS);
    let registry = tracing_subscriber::registry().with(log_filter());
    // Fails only if a test has installed a subscriber already.
    let _ = match format {
        LogFormat::Text => registry.with(log).try_init(),
        LogFormat::Json => registry.with(log.json().flatten_event(true)).try_init(),
    };
}

/// Starts logging to a file, for a command that uses the terminal itself.
pub(crate) fn log_to_file(path: &Path) -> io::Result<()> {
    let log = layer().with_writer(Mutex::new(open_log(path)?)).with_ansi(false).with_target(false);
    let log = log.log_internal_errors(LOG_INTERNAL_ERRORS);
    let _ = tracing_subscriber::registry().with(log_filter()).with(log).try_init();
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

fn log_filter() -> Option<Targets> {
    let parse = |filter: &str| filter.parse().ok();
    std::env::var("RUST_LOG").ok().and_then(|filter| parse(&filter)).or_else(|| parse(DEFAULT_LOG))
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

/// Access of clients to a server that starts: its Unix socket and its token.
#[derive(Debug)]
pub(crate) struct ServerAccess {
    pub(crate) socket: Option<PathBuf>,
    pub(crate) token: Token,
    pub(crate) token_file: PathBuf,
}

/// Name of the directory of the certificate authority in a state directory.
pub(crate) const AUTHORITY: &str = "ca";

/// Name of the file with the keys of secrets in a state directory.
pub(crate) const SECRETS_KEY: &str = "secrets.key";

/// Name of the Unix socket in a state directory.
const SOCKET: &str = "server.sock";
/// Longest path of a Unix socket, in bytes; the kernel needs one more for the end. The server first binds a longer name.
const LONGEST_SOCKET: usize = 107 - ".new.1234567".len();

impl ServerAccess {
    /// Reads the chosen token file, or that of the state directory, which is created if it does not exist.
    pub(crate) fn open(state: &Path, chosen: Option<&Path>) -> Result<Self, TokenFileError> {
        let (token, token_file) = match chosen {
            Some(file) => (read_token(file)?, std::path::absolute(file).unwrap_or_else(|_| file.to_owned())),
            None => {
                let file = state.join(TOKEN_FILE);
                (state_token(&file)?, file)
            }
        };
        let socket = Some(state.join(SOCKET)).filter(|path| path.as_os_str().len() <= LONGEST_SOCKET);
        if socket.is_none() {
            let state = state.display();
            tracing::warn!(%state, "no Unix socket: the path of the state directory is too long; clients use TCP");
        }
        Ok(Self { socket, token, token_file })
    }

    /// Address of a started server for local agents: the Unix socket, or the URL with the token file.
    pub(crate) fn for_agents(&self, server: &Server) -> (String, Option<PathBuf>) {
        match server.socket().and_then(Path::to_str) {
            Some(socket) => (format!("unix:{socket}"), None),
            None => (format!("http://{}", server.address()), Some(self.token_file.clone())),
        }
    }
}

/// The default store.
pub(crate) fn store_in(state: &Path) -> String {
    format!("embedded:{}", state.join("store").display())
}

/// The default directory of blobs.
pub(crate) fn blobs_in(state: &Path) -> PathBuf {
    state.join("blobs")
}
