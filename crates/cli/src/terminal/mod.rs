//! Standard output and standard error. Nothing else in this crate writes to them.

mod age;
mod bytes;
mod findings;
mod notes;
mod out;
pub mod plain;
mod size;
mod table;
pub mod value;

use jiff::Timestamp;

pub use age::{age, duration};
pub use bytes::stdout_for_bytes;
pub use findings::styled;
pub use notes::Notes;
pub use out::Out;
pub use size::size;
pub use table::Table;
pub use value::value;

use crate::args::{Color, Globals};

/// Where a command speaks, and what time it is there.
#[derive(Debug)]
pub struct Terminal {
    pub out: Out,
    pub notes: Notes,
    /// When the command began; ages are counted from here.
    pub now: Timestamp,
}

impl Terminal {
    pub fn open(globals: &Globals) -> Self {
        let choice = match globals.color {
            // Looks at NO_COLOR, CLICOLOR, TERM, and whether it is a terminal.
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        };
        #[expect(clippy::disallowed_methods, reason = "the edge at which time enters the tool")]
        let now = Timestamp::now();
        Self { out: Out::stdout(choice, globals.output), notes: Notes::stderr(choice, globals.quiet), now }
    }
}
