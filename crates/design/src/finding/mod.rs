//! Findings of a design: codes, explanations, collection and excerpts. The type [`Finding`] itself is in `muster-core`.

mod code;
mod example;
mod excerpt;
mod report;

use std::fmt;

use serde::Serialize;

pub use code::Code;
pub use example::example;
pub(crate) use excerpt::excerpt;
pub use muster_core::finding::{
    AffectedNodes, Excerpt, Finding, FindingCode, Location, Note, Severity, StyledText, TextRange, TextStyle,
};
pub(crate) use report::Report;

/// All findings of one pass, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Findings(Vec<Finding>);

impl Findings {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn to_vec(&self) -> Vec<Finding> {
        self.0.clone()
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
