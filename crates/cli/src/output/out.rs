//! Writes the answer of a command to standard output, as a table, JSON or YAML.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::rc::Rc;

use anstream::{AutoStream, ColorChoice};
use muster_wire::output::{ListOutput, ObjectOutput};
use serde::Serialize;

use crate::args::OutputFormat;
use crate::failure::Failure;

use super::Table;
use super::text::escape_controls;

/// Standard output of a command; it has data only.
///
/// Writes do not return errors: the first error is kept, later writes are skipped, and [`Out::finish`] returns it. A
/// reader that closes the pipe (`muster node list | head -1`) is not an error: the command keeps its exit code.
pub struct Out {
    to: BufWriter<Box<dyn Write>>,
    format: OutputFormat,
    /// Width of the terminal; none if it is a file or a pipe.
    width: Option<u16>,
    state: State,
}

#[derive(Debug)]
enum State {
    Open,
    /// The reader has closed the pipe.
    Closed,
    Failed(Failure),
}

impl Out {
    pub fn stdout(choice: ColorChoice, format: OutputFormat) -> Self {
        let stdout = io::stdout();
        let width = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
        let width = width.map(|size| size.ws_col).filter(|columns| *columns > 0);
        Self::new(Box::new(AutoStream::new(stdout, choice)), format, width)
    }

    pub fn new(to: Box<dyn Write>, format: OutputFormat, width: Option<u16>) -> Self {
        // Large enough for 5,000 lines in few writes.
        Self { to: BufWriter::with_capacity(64 * 1024, to), format, width, state: State::Open }
    }

    /// Prints an answer in the chosen format; `table` writes the form for people.
    pub fn answer<T: Serialize>(&mut self, answer: &T, table: impl FnOnce(&mut Self)) {
        self.answer_as(self.format, answer, table);
    }

    /// Prints an answer in another format than the chosen one, for data that has no form for people.
    pub fn answer_as<T: Serialize>(&mut self, format: OutputFormat, answer: &T, table: impl FnOnce(&mut Self)) {
        if format == OutputFormat::Table {
            table(self);
            // Before any later note, if both streams are on one screen.
            return self.flush();
        }
        // Only an object can be flattened into the frame. A list becomes its `items`.
        let text = serialize(format, &ObjectOutput::new(answer));
        self.serialized(text.or_else(|_| serialize(format, &ListOutput::new(answer))));
    }

    /// Prints a document without the frame of an answer: it can be saved as a file of a design, or as a JSON Schema.
    pub fn document<T: Serialize>(&mut self, format: OutputFormat, document: &T) {
        self.serialized(serialize(format, document));
    }

    fn serialized(&mut self, text: anyhow::Result<String>) {
        match text {
            Ok(text) => self.line(text.trim_end()),
            Err(error) => self.fail(error),
        }
        self.flush();
    }

    /// Writes a line. Control characters are escaped: names and messages may come from a release or a node.
    pub fn line(&mut self, text: impl fmt::Display) {
        if let State::Open = self.state
            && let Err(error) = writeln!(self.to, "{}", escape_controls(&text.to_string()))
        {
            self.stop(error);
        }
    }

    /// Writes a text after its label. On a terminal it is broken at spaces, and indented as far as the label is long.
    pub fn labelled(&mut self, label: &str, text: impl fmt::Display) {
        match self.width {
            None => self.line(format_args!("{label}{text}")),
            Some(width) => {
                let lines = super::table::hanging(label, &text.to_string(), usize::from(width));
                lines.into_iter().for_each(|(start, text)| self.line(format_args!("{start}{text}")));
            }
        }
    }

    /// Writes text with its own line ends.
    pub fn text(&mut self, text: impl fmt::Display) {
        if let State::Open = self.state
            && let Err(error) = write!(self.to, "{}", escape_controls(&text.to_string()))
        {
            self.stop(error);
        }
    }

    /// Writes an empty line.
    pub fn gap(&mut self) {
        self.line("");
    }

    /// The lines of the form for people, for a screen of this width.
    pub fn lines(width: Option<u16>, write: impl FnOnce(&mut Self)) -> Vec<String> {
        let screen = ScreenBuffer::default();
        let mut out = Self::new(Box::new(screen.clone()), OutputFormat::Table, width);
        write(&mut out);
        out.flush();
        let text = String::from_utf8_lossy(&screen.0.take()).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    /// Width of the terminal; none if standard output is a file or a pipe.
    pub fn width(&self) -> Option<u16> {
        self.width
    }

    /// True if the reader has closed the pipe, or a write has failed.
    pub fn is_closed(&self) -> bool {
        match self.state {
            State::Open => false,
            State::Closed | State::Failed(_) => true,
        }
    }

    /// True if standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.width.is_some()
    }

    pub fn table(&mut self, table: Table) {
        table.lines(self.width).for_each(|line| self.line(line));
    }

    /// Flushes the buffer.
    pub fn flush(&mut self) {
        if let State::Open = self.state
            && let Err(error) = self.to.flush()
        {
            self.stop(error);
        }
    }

    /// Flushes the buffer and returns the first error of all writes.
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

/// A screen in memory.
#[derive(Clone, Default)]
struct ScreenBuffer(Rc<RefCell<Vec<u8>>>);

impl Write for ScreenBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Out").field("format", &self.format).field("state", &self.state).finish_non_exhaustive()
    }
}

/// JSON, unless the format is YAML.
fn serialize(format: OutputFormat, value: &impl Serialize) -> anyhow::Result<String> {
    match format {
        OutputFormat::Table | OutputFormat::Json => Ok(serde_json::to_string_pretty(value)?),
        OutputFormat::Yaml => serde_saphyr::to_string(value).map_err(|error| anyhow::Error::msg(error.to_string())),
    }
}

/// Standard output for binary data; none if it is a terminal.
pub fn stdout_unless_terminal() -> Option<StdoutLock<'static>> {
    let stdout = io::stdout();
    (!stdout.is_terminal()).then(|| stdout.lock())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Buffer, render};
    use super::*;

    fn failing(error: io::ErrorKind) -> Out {
        Out::new(Box::new(Buffer { error: Some(error), ..Buffer::default() }), OutputFormat::Table, None)
    }

    #[test]
    fn yaml_quotes_strings_that_look_like_other_types() {
        let answer = serde_json::json!({
            "version": "1.10", "octal": "0755", "truth": "yes", "nothing": "null", "empty": "", "time": "12:30",
            "log": "two\nlines\n", "colon": "a: b", "dash": "- a", "quote": "it's \"so\"", "list": [], "none": null,
        });
        insta::assert_snapshot!(render(OutputFormat::Yaml, |out| out.answer(&answer, |_| {})), @r#"
        schema: 1
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
    fn control_characters_reach_no_terminal() {
        let name = "v1\u{1b}[2J\u{9b}1m\r\u{7f}\u{202e}";
        for format in [OutputFormat::Table, OutputFormat::Json, OutputFormat::Yaml] {
            let shown = render(format, |out| out.answer(&[name], |out| out.line(name)));
            assert!(!shown.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{format:?}: {shown:?}");
            if format != OutputFormat::Table {
                let read: serde_json::Value = serde_saphyr::from_str(&shown).unwrap();
                assert_eq!(read, serde_json::json!({"schema": 1, "items": [name]}), "{format:?}");
            }
        }
    }

    #[test]
    fn labelled_text_is_indented_on_a_terminal() {
        let text = "unavailable at a time at most: db 1 of 3, web 2 of 10";
        let lines = |width| Out::lines(width, |out| out.labelled("budget     ", text));
        assert_eq!(lines(None), [format!("budget     {text}")]);
        let narrow = ["budget     unavailable at a time at most: db", "           1 of 3, web 2 of 10"];
        assert_eq!(lines(Some(45)), narrow);
    }

    #[test]
    fn closed_pipe_is_not_an_error() {
        let mut out = failing(io::ErrorKind::BrokenPipe);
        (0..100_000).for_each(|line| out.line(line));
        assert!(out.finish().is_ok());
    }

    #[test]
    fn other_write_error_is_returned() {
        let mut out = failing(io::ErrorKind::StorageFull);
        out.line("lost");
        let failure = out.finish().unwrap_err();
        assert_eq!(failure.exit, crate::failure::Exit::CannotTell);
    }
}
