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
        self.answer_as(self.format, answer, people);
    }

    /// The same in another form than the user has chosen: for what has no form for people.
    pub fn answer_as<T: Serialize>(&mut self, format: Format, answer: &T, people: impl FnOnce(&mut Self)) {
        match format {
            Format::Table => people(self),
            Format::Json => match serde_json::to_string_pretty(answer) {
                // JSON need not escape this one, and whatever takes colours out of a stream takes it out too.
                Ok(text) => self.line(text.replace('\u{7f}', "\\u007f")),
                Err(error) => self.fail(error.into()),
            },
            Format::Yaml => match serde_saphyr::to_string(answer) {
                Ok(text) => self.line(text.trim_end()),
                Err(error) => self.fail(anyhow::Error::msg(error.to_string())),
            },
        }
        // Notes that follow it come after it, also where both are on one screen.
        self.flush();
    }

    pub fn line(&mut self, text: impl fmt::Display) {
        if let State::Open = self.state
            && let Err(error) = writeln!(self.to, "{text}")
        {
            self.stop(error);
        }
    }

    /// Text that ends its lines itself.
    pub fn text(&mut self, text: impl fmt::Display) {
        if let State::Open = self.state
            && let Err(error) = write!(self.to, "{text}")
        {
            self.stop(error);
        }
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.line("");
    }

    /// Whether somebody looks at it.
    pub fn is_terminal(&self) -> bool {
        self.width.is_some()
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// Keeps what is written, or refuses it.
    struct Paper(Rc<RefCell<Vec<u8>>>, Option<io::ErrorKind>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.1 {
                Some(kind) => Err(kind.into()),
                None => self.0.borrow_mut().write(bytes),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(format: Format, write: impl FnOnce(&mut Out)) -> String {
        let paper = Rc::new(RefCell::new(Vec::new()));
        let mut out = Out::new(Box::new(Paper(paper.clone(), None)), format, None);
        write(&mut out);
        out.finish().unwrap();
        drop(out);
        String::from_utf8(paper.take()).unwrap()
    }

    #[test]
    fn yaml_keeps_text_that_looks_like_something_else_text() {
        let answer = serde_json::json!({
            "version": "1.10", "octal": "0755", "truth": "yes", "nothing": "null", "empty": "", "time": "12:30",
            "log": "two\nlines\n", "colon": "a: b", "dash": "- a", "quote": "it's \"so\"", "list": [], "none": null,
        });
        insta::assert_snapshot!(written(Format::Yaml, |out| out.answer(&answer, |_| {})), @r#"
        colon: "a: b"
        dash: "- a"
        empty: ""
        list: []
        log: |
          two
          lines
        none: null
        nothing: "null"
        octal: "0755"
        quote: it's "so"
        time: "12:30"
        truth: "yes"
        version: "1.10"
        "#);
    }

    #[test]
    fn a_closed_pipe_is_the_end_and_no_error() {
        let mut out = Out::new(Box::new(Paper(Rc::default(), Some(io::ErrorKind::BrokenPipe))), Format::Table, None);
        (0..100_000).for_each(|line| out.line(line));
        assert!(out.finish().is_ok());
    }

    #[test]
    fn any_other_error_is_one() {
        let mut out = Out::new(Box::new(Paper(Rc::default(), Some(io::ErrorKind::StorageFull))), Format::Table, None);
        out.line("lost");
        let failure = out.finish().unwrap_err();
        assert_eq!(failure.exit, crate::exit::Exit::CannotTell);
    }
}
