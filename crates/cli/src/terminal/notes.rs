//! Standard error: notes, progress and errors.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use muster_design::finding::{Finding, Findings};

use crate::exit::Exit;
use crate::failure::Failure;

use super::styled;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const NOTE: Style = AnsiColor::Cyan.on_default().bold();

/// Speaks to whoever sits there, beside the data.
pub struct Notes {
    to: AutoStream<io::Stderr>,
    quiet: bool,
    is_terminal: bool,
    /// How wide the line of progress is that stands there; it goes before anything else is written.
    in_progress: usize,
}

impl Notes {
    pub fn stderr(choice: ColorChoice, quiet: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self { to: AutoStream::new(io::stderr(), choice), quiet, is_terminal, in_progress: 0 }
    }

    /// Something worth knowing that is not the answer.
    pub fn note(&mut self, text: impl fmt::Display) {
        if !self.quiet {
            self.write(format_args!("{NOTE}note{NOTE:#}: {text}\n"));
        }
    }

    /// Asks whoever sits there; the answer comes on standard input.
    pub fn ask(&mut self, question: impl fmt::Display) {
        self.write(question);
        let _ = self.to.flush();
    }

    /// Whether somebody would see progress.
    pub fn shows_progress(&self) -> bool {
        self.is_terminal && !self.quiet
    }

    /// Shows how far it is, in one line that stays one.
    pub fn progress(&mut self, text: impl fmt::Display) {
        if self.shows_progress() {
            let text = text.to_string();
            self.write(&text);
            self.in_progress = text.chars().count();
            let _ = self.to.flush();
        }
    }

    /// Takes the line of progress away.
    pub fn end_progress(&mut self) {
        self.write("");
    }

    /// Prints what was found in a design, as it is.
    pub fn findings<'f>(&mut self, findings: impl IntoIterator<Item = &'f Finding>) {
        findings.into_iter().for_each(|finding| self.print(format_args!("{}\n", styled(finding))));
    }

    /// Prints text that ends its lines itself.
    pub fn print(&mut self, text: impl fmt::Display) {
        self.write(text);
    }

    /// Prints what kept a command from its answer, with all that lies behind it; gives the exit code.
    pub fn failure(&mut self, failure: &Failure) -> Exit {
        if let Some(findings) = failure.error.downcast_ref::<Findings>() {
            // They are the whole story, with places and hints of their own.
            self.findings(findings);
            return failure.exit;
        }
        failure.findings.iter().for_each(|finding| self.write(format_args!("{finding}\n")));
        self.write(format_args!("{ERROR}error{ERROR:#}: {}\n", failure.error));
        for cause in failure.error.chain().skip(1) {
            self.write(format_args!("  caused by: {cause}\n"));
        }
        for hint in &failure.hints {
            self.write(format_args!("{NOTE}hint{NOTE:#}: {hint}\n"));
        }
        failure.exit
    }

    fn write(&mut self, text: impl fmt::Display) {
        // With spaces, not with an escape sequence: those are taken out where there are no colours.
        let width = std::mem::take(&mut self.in_progress);
        let clear = if width > 0 { format!("\r{:width$}\r", "") } else { String::new() };
        // There is nobody left to tell that standard error is gone.
        let _ = write!(self.to, "{clear}{text}");
    }
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notes").field("quiet", &self.quiet).finish_non_exhaustive()
    }
}
