//! Writes notes, progress, prompts, findings and errors to standard error.

use std::io::{IsTerminal, Write};
use std::{fmt, io};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use muster_design::finding::{Finding, Findings};
use muster_wire::output::ErrorOutput;

use crate::args::OutputFormat;
use crate::failure::{Exit, Failure};

use super::findings::render_finding;
use super::text::escape_controls;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const NOTE: Style = AnsiColor::Cyan.on_default().bold();

/// Standard error of a command.
pub struct Notes {
    to: AutoStream<io::Stderr>,
    quiet: bool,
    /// Errors are printed as JSON.
    json: bool,
    is_terminal: bool,
    /// Width of the progress line on the screen, which is cleared before anything else is written.
    progress_width: usize,
}

impl Notes {
    pub fn stderr(choice: ColorChoice, quiet: bool, format: OutputFormat) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let (to, json) = (AutoStream::new(io::stderr(), choice), format == OutputFormat::Json);
        Self { to, quiet, json, is_terminal, progress_width: 0 }
    }

    /// Prints a note, unless `--quiet` is set.
    pub fn note(&mut self, text: impl fmt::Display) {
        if !self.quiet {
            self.write(format_args!("{NOTE}note{NOTE:#}: {text}\n"));
        }
    }

    /// Prints a warning, also with `--quiet`.
    pub fn warning(&mut self, text: impl fmt::Display) {
        self.write(format_args!("{WARNING}warning{WARNING:#}: {text}\n"));
    }

    /// Prints a question; the caller reads the answer from standard input.
    pub fn prompt(&mut self, question: impl fmt::Display) {
        self.write(question);
        let _ = self.to.flush();
    }

    /// Asks a question that is answered with yes or no. Without a terminal the answer must be on the command line, as `option`.
    pub fn confirm(&mut self, question: impl fmt::Display, option: &str) -> Result<(), Failure> {
        let nothing = "nothing was changed";
        if !io::stdin().is_terminal() {
            let failure = Failure::usage(format!("{question} There is no terminal to ask: {nothing}"));
            return Err(failure.hint(format!("confirm with {option}")));
        }
        self.prompt(format_args!("{question} [y/N] "));
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        read.map_err(|error| Failure::failed(anyhow::Error::new(error).context("cannot read the answer")))?;
        match answer.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(Failure::failed(anyhow::anyhow!(nothing))),
        }
    }

    /// True on a terminal without `--quiet`.
    pub fn shows_progress(&self) -> bool {
        self.is_terminal && !self.quiet
    }

    /// Replaces the progress line.
    pub fn progress(&mut self, text: impl fmt::Display) {
        if self.shows_progress() {
            let text = text.to_string();
            self.write(&text);
            self.progress_width = text.chars().count();
            let _ = self.to.flush();
        }
    }

    /// Clears the progress line.
    pub fn end_progress(&mut self) {
        self.write("");
    }

    /// Prints findings in a design.
    pub fn findings<'f>(&mut self, findings: impl IntoIterator<Item = &'f Finding>) {
        findings.into_iter().for_each(|finding| self.print(format_args!("{}\n", render_finding(finding))));
    }

    /// Prints text with its own line ends.
    pub fn print(&mut self, text: impl fmt::Display) {
        self.write(text);
    }

    /// Prints an error with its causes and hints; returns the exit code. As JSON it is one line.
    pub fn failure(&mut self, failure: &Failure) -> Exit {
        if self.json
            && let Ok(text) = serde_json::to_string(&ErrorOutput::from(failure))
        {
            self.write(format_args!("{text}\n"));
            return failure.exit;
        }
        if let Some(findings) = failure.error.downcast_ref::<Findings>() {
            // Findings have positions and help texts of their own.
            self.findings(findings);
            return failure.exit;
        }
        self.findings(&failure.findings);
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
        // With spaces: escape sequences are stripped where colors are off.
        let width = std::mem::take(&mut self.progress_width);
        let clear = if width > 0 { format!("\r{:width$}\r", "") } else { String::new() };
        // A closed standard error cannot be reported anywhere.
        let _ = write!(self.to, "{clear}{}", escape_controls(&text.to_string()));
    }
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notes").field("quiet", &self.quiet).finish_non_exhaustive()
    }
}

/// A block of lines at the end of the screen.
#[derive(Debug)]
pub struct LiveLines {
    screen: MultiProgress,
    bars: Vec<ProgressBar>,
}

impl LiveLines {
    pub fn new() -> Self {
        Self { screen: MultiProgress::new(), bars: Vec::new() }
    }

    /// Replaces the lines on the screen.
    pub fn show(&mut self, lines: Vec<String>) {
        while self.bars.len() < lines.len() {
            self.bars.push(self.screen.add(line()));
        }
        self.bars.drain(lines.len()..).for_each(|bar| bar.finish_and_clear());
        let has_colors = AutoStream::choice(&io::stderr()) != ColorChoice::Never;
        for (bar, line) in self.bars.iter().zip(lines) {
            let line = if has_colors { line } else { strip_str(&line).to_string() };
            bar.set_message(escape_controls(&line).into_owned());
        }
    }

    /// Removes the lines from the screen.
    pub fn clear(&self) {
        // A terminal that was closed need not be cleared.
        let _ = self.screen.clear();
    }
}

impl Default for LiveLines {
    fn default() -> Self {
        Self::new()
    }
}

fn line() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}
