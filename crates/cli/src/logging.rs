//! The log of a server that runs in this process.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// What is logged unless RUST_LOG says otherwise: what somebody who is called at night needs to see.
const DEFAULT: &str = "warn,muster=info";

/// Begins to log to standard error.
pub(crate) fn begin() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(colours);
    // A second one in the same process would only be a test's: the first stays.
    let _ = log.with_target(false).try_init();
}
