//! What a person, or cron, asks on the node itself. All but `once` only read, and work beside an agent that lives.

pub mod ask;
pub mod check;
pub mod known;
pub mod local_version;
pub mod once;
pub mod pending_update;
pub mod status;

use std::fmt;
use std::io::Write;

/// The exit codes that scripts know from before.
pub const YES: u8 = 0;
pub const NO: u8 = 1;
pub const CANNOT_TELL: u8 = 2;
/// Of `pending-update`: cannot tell, and the node was never configured.
pub const NEVER_CONFIGURED: u8 = 3;
/// Of `once`: an agent lives here already.
pub const LIVES: u8 = 3;
pub const PAUSED: u8 = 9;
/// Something that the run needs from another node is not there yet.
pub const PENDING: u8 = 75;

/// Answers whoever asked. A reader that has gone away is no error of ours.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
