//! The log of a server that runs in this process.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

/// What is logged unless RUST_LOG says otherwise: what somebody who is called at night needs to see.
const DEFAULT: &str = "warn,muster=info";
/// A log that has grown beyond this is begun anew, and the old one kept beside it.
const LARGE: u64 = 8 * 1024 * 1024;

/// Begins to log to standard error.
pub(crate) fn to_stderr() {
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_env_filter(filter()).with_writer(io::stderr).with_ansi(colours);
    // A second one in the same process would only be a test's: the first stays.
    let _ = log.with_target(false).try_init();
}

/// Begins to log to a file, for a command whose terminal shows something else.
pub(crate) fn to_file(path: &Path) -> io::Result<()> {
    let log = tracing_subscriber::fmt().with_env_filter(filter()).with_writer(Mutex::new(open(path)?)).with_ansi(false);
    let _ = log.with_target(false).try_init();
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() > LARGE) {
        std::fs::rename(path, path.with_extension("log.old"))?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

fn filter() -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT))
}
