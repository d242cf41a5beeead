//! Findings: errors and warnings about a design, with their codes, explanations and source excerpts. The type [`Finding`]
//! itself is in `muster-core`.

mod code;
mod collector;

use std::fmt;

use serde::Serialize;

use crate::file_text::Span;

pub use muster_core::finding::{
    AffectedNodes, Excerpt, Finding, FindingCode, Location, Note, Severity, StyledText, TextRange, TextStyle,
};

pub use code::{Code, example};

pub(crate) use collector::{FindingCollector, holds_secret, is_secret_key};

/// Characters of an excerpt. A file may be one line of megabytes.
const MAX_WIDTH: usize = 120;
/// Characters shown before the underline in a shortened line.
const LEAD: usize = 40;
const TAB: &str = "    ";

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
    let mut shown: String = text.chars().take(max).map(visible).collect();
    if text.chars().nth(max).is_some() {
        shown.push('…');
    }
    shown
}

/// Excerpt of the line in which a span starts. A span over several lines is underlined to the end of the first.
pub(crate) fn excerpt(line: &str, span: Span) -> Excerpt {
    let from = span.start.column.saturating_sub(1) as usize;
    let to = if span.end.line > span.start.line { usize::MAX } else { span.end.column.saturating_sub(1) as usize };
    // Checks the length without counting all characters.
    let skipped = if line.chars().nth(MAX_WIDTH).is_some() { from.saturating_sub(LEAD) } else { 0 };

    let mut excerpt = Excerpt { text: String::new(), indent: 0, width: 0 };
    if skipped > 0 {
        excerpt.text.push('…');
        excerpt.indent = 1;
    }
    for (index, character) in line.chars().enumerate().skip(skipped) {
        if index - skipped == MAX_WIDTH {
            excerpt.text.push('…');
            break;
        }
        let shown = match character {
            '\t' => {
                excerpt.text.push_str(TAB);
                TAB.len() as u32
            }
            _ => {
                excerpt.text.push(visible(character));
                1
            }
        };
        if index < from {
            excerpt.indent += shown;
        } else if index < to {
            excerpt.width += shown;
        }
    }
    excerpt.width = excerpt.width.max(1);
    excerpt
}

/// Replaces characters that act on a terminal: control characters and bidirectional overrides.
pub(super) fn visible(character: char) -> char {
    match character {
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => char::REPLACEMENT_CHARACTER,
        _ if character.is_control() => char::REPLACEMENT_CHARACTER,
        _ => character,
    }
}

#[cfg(test)]
mod tests {
    use crate::file_text::{FileId, Position};

    use super::*;

    fn cut(line: &str, from: u32, to: u32) -> String {
        let at = |column| Position { line: 1, column };
        let Excerpt { text, indent, width } =
            excerpt(line, Span { file: FileId::default(), start: at(from), end: at(to) });
        format!("{text}\n{}{}", " ".repeat(indent as usize), "^".repeat(width as usize))
    }

    #[test]
    fn excerpt_underlines_the_span() {
        assert_eq!(cut("key: value", 6, 11), "key: value\n     ^^^^^");
        assert_eq!(cut("kéy: välue", 6, 11), "kéy: välue\n     ^^^^^");
        assert_eq!(cut("", 1, 1), "\n^");
        assert_eq!(cut("key:", 5, 5), "key:\n    ^");
    }

    #[test]
    fn tab_takes_four_columns() {
        assert_eq!(cut("\tkey: 1", 2, 5), "    key: 1\n    ^^^");
        assert_eq!(cut("\tkey: 1", 1, 2), "    key: 1\n^^^^");
    }

    #[test]
    fn long_line_is_cut_around_the_caret() {
        let line = format!("{}HERE{}", "a".repeat(1000), "b".repeat(1000));
        let shown = cut(&line, 1001, 1005);
        assert_eq!(shown, format!("…{}HERE{}…\n{}^^^^", "a".repeat(40), "b".repeat(76), " ".repeat(41)));
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(cut("a\u{1b}[31mb\u{202e}", 1, 2), "a\u{fffd}[31mb\u{fffd}\n^");
    }
}
