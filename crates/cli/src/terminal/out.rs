//! Standard output: data, and nothing but data.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use serde::Serialize;

use crate::args::Format;
use crate::failure::Failure;

use super::Table;

/// Writes the answer.
///
/// A command need not look after every write: the first error is kept, later writes do nothing, and [`Out::finish`]
/// tells. A reader that has closed the pipe (`muster node list | head -1`) has what it wants, so that is no error, and
/// the command goes on to the exit code that it would have had anyway.
pub struct Out {
    to: BufWriter<Box<dyn Write>>,
    format: Format,
    /// Where lines are wrapped; none if nobody looks at them.
    width: Option<u16>,
    state: State,
}

#[derive(Debug)]
enum State {
    Open,
    /// Nobody reads any more.
    Closed,
    Failed(Failure),
}

impl Out {
    pub fn stdout(choice: ColorChoice, format: Format) -> Self {
        let stdout = io::stdout();
        let width = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
        let width = width.map(|size| size.ws_col).filter(|columns| *columns > 0);
        Self::new(Box::new(AutoStream::new(stdout, choice)), format, width)
    }

    pub fn new(to: Box<dyn Write>, format: Format, width: Option<u16>) -> Self {
        // Large: 5,000 lines in few writes.
        Self { to: BufWriter::with_capacity(64 * 1024, to), format, width, state: State::Open }
    }

    /// Prints an answer as the user wants it; `people` writes the form for people.
    pub fn answer<T: Serialize>(&mut self, answer: &T, people: impl FnOnce(&mut Self)) {
        match self.format {
            Format::Table => people(self),
            Format::Json => match serde_json::to_string_pretty(answer) {
                Ok(text) => self.line(text),
                Err(error) => self.fail(error.into()),
            },
            Format::Yaml => match serde_saphyr::to_string(answer) {
                Ok(text) => self.line(text.trim_end()),
                Err(error) => self.fail(anyhow::Error::msg(error.to_string())),
            },
        }
    }

    pub fn line(&mut self, text: impl fmt::Display) {
        if let State::Open = self.state
            && let Err(error) = writeln!(self.to, "{text}")
        {
            self.stop(error);
        }
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.line("");
    }

    pub fn table(&mut self, table: Table) {
        table.lines(self.width).for_each(|line| self.line(line));
    }

    /// Brings out what has been written, for whoever reads along.
    pub fn flush(&mut self) {
        if let State::Open = self.state
            && let Err(error) = self.to.flush()
        {
            self.stop(error);
        }
    }

    /// Brings everything out, and tells whether all of it got there.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.flush();
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Open | State::Closed => Ok(()),
            State::Failed(failure) => Err(failure),
        }
    }

    fn stop(&mut self, error: io::Error) {
        if error.kind() == io::ErrorKind::BrokenPipe {
            self.state = State::Closed;
        } else {
            self.fail(error.into());
        }
    }

    fn fail(&mut self, error: anyhow::Error) {
        self.state = State::Failed(Failure::cannot_tell(error.context("cannot write the answer to standard output")));
    }
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Out").field("format", &self.format).field("state", &self.state).finish_non_exhaustive()
    }
}
