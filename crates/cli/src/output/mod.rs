//! Standard output and standard error: all writing of this crate goes through this module.

pub mod changes;
mod findings;
mod notes;
mod out;
mod table;
#[cfg(test)]
pub mod testing;
pub mod text;

use jiff::Timestamp;

pub use findings::render_finding;
pub use notes::{LiveLines, Notes};
pub use out::{Out, stdout_unless_terminal};
pub use table::{
    NONE, Table, causes_and_reason, node_list_table, node_table, not_counted_text, reason_text, run_result,
    version_cell,
};
pub use text::{age, count, duration, size, unchecked_warning, value};

use crate::args::{Color, Globals};

/// The streams of a command, and the time at which it started.
#[derive(Debug)]
pub struct Terminal {
    pub out: Out,
    pub notes: Notes,
    /// Ages are counted up to this time.
    pub now: Timestamp,
}

impl Terminal {
    pub fn open(globals: &Globals) -> Self {
        let choice = match globals.color {
            // Respects NO_COLOR, CLICOLOR and TERM, and detects a terminal.
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        };
        // For live lines, which are written by a library.
        choice.write_global();
        #[expect(clippy::disallowed_methods, reason = "the only place where a command reads the clock")]
        let now = Timestamp::now();
        Self {
            out: Out::stdout(choice, globals.output),
            notes: Notes::stderr(choice, globals.quiet, globals.output),
            now,
        }
    }
}
