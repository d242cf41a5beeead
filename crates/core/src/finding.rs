//! Findings about a design, from the rule that reports one to the terminal that shows it.
//!
//! A finding carries everything needed to show it, including the line of the file. It can be logged or sent to a client
//! that does not have the file. The codes and the rules are in `muster-design`.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One error or warning about a design.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    #[schema(value_type = String, example = "M0103")]
    pub code: FindingCode,
    pub severity: Severity,
    /// The problem, in one sentence without a final full stop.
    pub message: String,
    /// Location in a file; absent if the finding is not about a file.
    #[serde(flatten)]
    pub location: Option<Location>,
    /// Value that was expected at the location, shown next to the underline.
    #[serde(default)]
    pub expected: Option<String>,
    /// Related locations, such as the first of two equal keys.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// Suggested correction.
    #[serde(default)]
    pub help: Option<String>,
    /// Nodes that the finding applies to. A mistake in a profile is reported once, for all nodes that inherit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affected: Option<AffectedNodes>,
    /// The line holds a secret and must not be shown.
    #[serde(skip)]
    pub hides_line: bool,
}

/// Stable code of a finding, such as `M0103`. A newer server may send a code that this version does not have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FindingCode(pub Cow<'static, str>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The design cannot be used.
    Error,
    Warning,
}

/// Nodes that a finding applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AffectedNodes {
    /// The first nodes, at most three.
    pub nodes: Vec<String>,
    /// Number of affected nodes that are not listed.
    pub more: usize,
}

/// A file, or a range of text in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Location {
    /// Name of the file in its source.
    pub file: String,
    #[serde(default)]
    pub span: Option<TextRange>,
    #[serde(default)]
    pub excerpt: Option<Excerpt>,
    /// Number of the file in the design; not sent. Two sources may have files of the same name.
    #[serde(skip)]
    pub file_number: u32,
}

/// A position in a text. Lines and columns start at 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

/// A range of text: from its first character to just behind its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct TextRange {
    pub start: Position,
    pub end: Position,
}

/// One line of a file, or a part of a long line, with the underlined range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Excerpt {
    pub text: String,
    /// Characters of `text` before the underlined part.
    pub indent: u32,
    /// Length of the underlined part, at least 1.
    pub width: u32,
}

/// A remark about a related location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Note {
    pub message: String,
    #[serde(flatten)]
    pub location: Location,
}

impl FindingCode {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FindingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

impl Position {
    /// The first character of a file.
    pub const START: Position = Position { line: 1, column: 1 };
}

impl Location {
    /// A file as a whole.
    pub fn file(name: impl Into<String>) -> Self {
        Location { file: name.into(), span: None, excerpt: None, file_number: 0 }
    }
}

impl AffectedNodes {
    /// Number of nodes that are listed by name; the rest is counted.
    const LISTED: usize = 3;

    pub fn add(&mut self, node: &str) {
        if self.nodes.len() < Self::LISTED {
            self.nodes.push(node.to_owned());
        } else {
            self.more += 1;
        }
    }
}

impl Finding {
    pub fn new(code: FindingCode, severity: Severity, message: impl Into<String>) -> Self {
        Finding {
            code,
            severity,
            message: message.into(),
            location: None,
            expected: None,
            notes: Vec::new(),
            help: None,
            affected: None,
            hides_line: false,
        }
    }

    #[must_use]
    pub fn hiding_line(mut self) -> Self {
        self.hides_line = true;
        self
    }

    #[must_use]
    pub fn at(mut self, location: Location) -> Self {
        self.location = Some(location);
        self
    }

    #[must_use]
    pub fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    #[must_use]
    pub fn note(mut self, message: impl Into<String>, location: Location) -> Self {
        self.notes.push(Note { message: message.into(), location });
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

    /// Renders the finding as styled text, in the manner of rustc. Every line ends with a line feed. The caller maps
    /// styles to colours; without colours the text is the same.
    pub fn render(&self) -> Vec<StyledText> {
        let locations = self.location.iter().chain(self.notes.iter().map(|note| &note.location));
        let last_line = locations.filter_map(|location| location.span).map(|span| span.start.line).max().unwrap_or(0);
        let mut renderer = Renderer { texts: Vec::new(), gutter: last_line.to_string().len() };

        let style = match self.severity {
            Severity::Error => TextStyle::Error,
            Severity::Warning => TextStyle::Warning,
        };
        renderer.write(style, format!("{}[{}]", self.severity, self.code));
        renderer.write(TextStyle::Message, format!(": {}\n", self.message));
        if let Some(location) = &self.location {
            renderer.location(location, self.expected.as_deref());
        }
        for note in &self.notes {
            renderer.remark("note", &note.message);
            renderer.location(&note.location, None);
        }
        if let Some(affected) = self.affected.as_ref().filter(|affected| affected.nodes.len() > 1) {
            let more = match affected.more {
                0 => String::new(),
                1 => " and 1 more node".to_owned(),
                more => format!(" and {more} more nodes"),
            };
            renderer.remark("note", &format!("this affects {}{more}", affected.nodes.join(", ")));
        }
        if let Some(help) = &self.help {
            renderer.remark("help", help);
        }
        renderer.texts
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.render().iter().try_for_each(|part| f.write_str(&part.text))
    }
}

/// Role of a part of a rendered finding; the terminal maps it to a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextStyle {
    /// `error[M0103]`
    Error,
    /// `warning[M0117]`
    Warning,
    /// `note`, `help`
    Remark,
    /// The finding's message.
    Message,
    /// Arrow, bar and line numbers.
    Frame,
    /// Text of the file, and all other text.
    Plain,
    /// The underline, and the expected value.
    Underline,
}

/// A part of a rendered finding that has one style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StyledText {
    pub style: TextStyle,
    pub text: String,
}

struct Renderer {
    texts: Vec<StyledText>,
    /// Width of the highest line number: all frames of one finding are aligned.
    gutter: usize,
}

impl Renderer {
    fn write(&mut self, style: TextStyle, text: impl Into<String>) {
        self.texts.push(StyledText { style, text: text.into() });
    }

    fn remark(&mut self, label: &str, text: &str) {
        self.write(TextStyle::Remark, label);
        self.write(TextStyle::Plain, format!(": {text}\n"));
    }

    fn location(&mut self, location: &Location, expected: Option<&str>) {
        let margin = " ".repeat(self.gutter);
        self.write(TextStyle::Frame, format!("{margin}--> "));
        let Some(span) = location.span else {
            self.write(TextStyle::Plain, format!("{}\n", location.file));
            return;
        };
        self.write(TextStyle::Plain, format!("{}:{}:{}\n", location.file, span.start.line, span.start.column));
        let Some(excerpt) = &location.excerpt else { return };

        self.write(TextStyle::Frame, format!("{margin} |\n"));
        self.write(TextStyle::Frame, format!("{:>width$} |", span.start.line, width = self.gutter));
        self.write(TextStyle::Plain, format!("{}\n", format!(" {}", excerpt.text).trim_end()));
        self.write(TextStyle::Frame, format!("{margin} | "));
        let indent = " ".repeat(excerpt.indent as usize);
        let underline = "^".repeat(excerpt.width as usize);
        let expected = expected.map(|expected| format!(" {expected}")).unwrap_or_default();
        self.write(TextStyle::Underline, format!("{indent}{underline}{expected}\n"));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn finding_survives_the_wire() {
        let mut finding = Finding::new(FindingCode("M1316".into()), Severity::Warning, "two are bootable")
            .at(Location {
                file: "profiles.yaml".into(),
                span: Some(TextRange { start: Position::START, end: Position { line: 1, column: 3 } }),
                excerpt: Some(Excerpt { text: "abc".into(), indent: 0, width: 2 }),
                file_number: 0,
            })
            .note("here", Location::file("other.yaml"));
        for node in ["web1", "web2", "web3", "web4"] {
            finding.affected.get_or_insert_default().add(node);
        }
        let received: Finding = serde_json::from_str(&serde_json::to_string(&finding).unwrap()).unwrap();
        assert_eq!(received, finding);
        let old_form = r#"{"code": "M9999", "severity": "error", "message": "new to this version"}"#;
        let received: Finding = serde_json::from_str(old_form).unwrap();
        assert_eq!(received.to_string(), "error[M9999]: new to this version\n");
    }
}
