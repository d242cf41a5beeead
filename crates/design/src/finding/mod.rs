//! What Muster has to say about a document: the one shape of every complaint about a design.
//!
//! A finding carries all that is needed to show it, the offending line included, so it can be rendered, logged or sent
//! on after the file is gone.

mod code;
mod example;
mod excerpt;
mod render;
mod report;

use std::fmt;

use serde::Serialize;

pub use code::{Code, Severity};
pub use example::example;
pub use excerpt::Excerpt;
pub use render::{Ink, Piece};
pub(crate) use report::Report;

use crate::span::Span;

/// One thing that is wrong, or worth knowing, about a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub code: Code,
    pub severity: Severity,
    /// What is the matter, in one sentence without a final stop.
    pub message: String,
    /// Where; a finding about something that is not in any file has none.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// What was expected there instead: shown beside the caret.
    pub expected: Option<String>,
    /// Other places that matter, such as the first of two keys of one name.
    pub notes: Vec<Note>,
    /// What to do about it.
    pub help: Option<String>,
    /// The nodes that it is about, if it is about nodes: what a profile says wrongly is said once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affected: Option<Affected>,
    /// The line holds a secret: it is not shown, not even to say so.
    #[serde(skip)]
    pub(crate) hides_line: bool,
}

/// Nodes that a finding is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Affected {
    /// The first of them.
    pub nodes: Vec<String>,
    /// How many more there are.
    pub more: usize,
}

/// A place in a file, or a file as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    pub file: String,
    pub span: Option<Span>,
    pub excerpt: Option<Excerpt>,
}

/// A remark about another place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    pub message: String,
    #[serde(flatten)]
    pub place: Place,
}

impl Place {
    /// A file as a whole.
    pub fn file(name: impl Into<String>) -> Self {
        Place { file: name.into(), span: None, excerpt: None }
    }
}

impl Finding {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Finding {
            code,
            severity: code.severity(),
            message: message.into(),
            place: None,
            expected: None,
            notes: Vec::new(),
            help: None,
            affected: None,
            hides_line: false,
        }
    }

    /// Keeps the line out of sight.
    #[must_use]
    pub(crate) fn hiding_line(mut self) -> Self {
        self.hides_line = true;
        self
    }

    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    #[must_use]
    pub fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    #[must_use]
    pub fn note(mut self, message: impl Into<String>, place: Place) -> Self {
        self.notes.push(Note { message: message.into(), place });
        self
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    #[must_use]
    pub fn help_if(self, help: Option<String>) -> Self {
        match help {
            Some(help) => self.help(help),
            None => self,
        }
    }
}

/// All findings of one pass, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Findings(Vec<Finding>);

impl Findings {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Finding> {
        self.0.iter()
    }

    /// Whether what was read must not be used.
    pub fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    pub fn errors(&self) -> usize {
        self.0.iter().filter(|finding| finding.severity == Severity::Error).count()
    }

    pub fn warnings(&self) -> usize {
        self.0.len() - self.errors()
    }

    /// The last line under a list of findings: `2 errors and 1 warning`.
    pub fn summary(&self) -> String {
        let count = |number: usize, what: &str| match number {
            1 => format!("1 {what}"),
            _ => format!("{number} {what}s"),
        };
        match (self.errors(), self.warnings()) {
            (0, 0) => "nothing found".to_owned(),
            (errors, 0) => count(errors, "error"),
            (0, warnings) => count(warnings, "warning"),
            (errors, warnings) => format!("{} and {}", count(errors, "error"), count(warnings, "warning")),
        }
    }
}

impl From<Vec<Finding>> for Findings {
    fn from(findings: Vec<Finding>) -> Self {
        Findings(findings)
    }
}

impl From<Finding> for Findings {
    fn from(finding: Finding) -> Self {
        Findings(vec![finding])
    }
}

impl IntoIterator for Findings {
    type Item = Finding;
    type IntoIter = std::vec::IntoIter<Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Findings {
    type Item = &'a Finding;
    type IntoIter = std::slice::Iter<'a, Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Every finding as plain text, with an empty line between two.
impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Findings {}

/// A value that holds together, and what is worth knowing about it all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted<T> {
    pub value: T,
    /// Findings of severity warning: with an error there would be no value.
    pub warnings: Findings,
}

/// Text from a document, quoted for a message: whatever it holds, it stays on one line, is short, and cannot steer the
/// reader's terminal.
pub(crate) fn quote(text: &str) -> String {
    format!("\"{}\"", one_line(text).replace('"', "\\\""))
}

/// Text for a message or an excerpt, cut short and with no character that acts on a terminal.
pub(crate) fn one_line(text: &str) -> String {
    /// Enough to recognise what was written.
    const LONGEST: usize = 80;
    shortened(text, LONGEST)
}

/// The same for what somebody else has to say.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    let mut shown: String = text.chars().take(longest).map(excerpt::visible).collect();
    if text.chars().nth(longest).is_some() {
        shown.push('…');
    }
    shown
}
