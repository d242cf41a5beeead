//! Findings: errors and warnings about a design, with their codes, explanations and source excerpts. The type [`Finding`]
//! itself is in `muster-core`.

mod code;
mod excerpt;
mod report;

use std::fmt;

use serde::Serialize;

pub use code::{Code, example};
pub(crate) use excerpt::excerpt;
pub use muster_core::finding::{
    AffectedNodes, Excerpt, Finding, FindingCode, Location, Note, Severity, StyledText, TextRange, TextStyle,
};
pub(crate) use report::Report;

/// Findings of one pass, in the order of the files.
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

    /// Reports whether the design must not be used.
    pub fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    pub fn errors(&self) -> usize {
        self.0.iter().filter(|finding| finding.severity == Severity::Error).count()
    }

    pub fn warnings(&self) -> usize {
        self.0.len() - self.errors()
    }

    /// Summary of the counts: `2 errors and 1 warning`.
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

/// Plain text of all findings, separated by empty lines.
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

/// A valid value and its warnings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithWarnings<T> {
    pub value: T,
    pub warnings: Findings,
}

/// Quotes text of a document for a message: one line, short, without control characters.
pub(crate) fn quote(text: &str) -> String {
    format!("\"{}\"", one_line(text).replace('"', "\\\""))
}

/// Text for a message: short and without control characters.
pub(crate) fn one_line(text: &str) -> String {
    /// Enough to recognise the text.
    const MAX_LENGTH: usize = 80;
    shortened(text, MAX_LENGTH)
}

/// Like [`one_line`], with a limit of its own.
pub(crate) fn shortened(text: &str, max: usize) -> String {
    let mut shown: String = text.chars().take(max).map(excerpt::visible).collect();
    if text.chars().nth(max).is_some() {
        shown.push('…');
    }
    shown
}
