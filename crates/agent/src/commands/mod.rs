//! Subcommands of `muster-agent` besides `run`. All except `once` only read, and work while an agent runs.

pub mod check;
mod desired_request;
mod local_state;
pub mod once;
pub mod status;
pub mod version;

use std::fmt;
use std::io::Write;

/// Exit codes, which are a contract with scripts.
pub const YES: u8 = 0;
pub const NO: u8 = 1;
pub const CANNOT_TELL: u8 = 2;
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
