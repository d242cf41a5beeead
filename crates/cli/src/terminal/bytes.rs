//! Standard output for what is no text.

use std::io::{self, IsTerminal, StdoutLock};

/// Standard output as it is, for bytes; none if it is a terminal, which would take them for commands.
pub fn stdout_for_bytes() -> Option<StdoutLock<'static>> {
    let stdout = io::stdout();
    (!stdout.is_terminal()).then(|| stdout.lock())
}
