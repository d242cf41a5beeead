//! A finding as text for people, in the manner of rustc.
//!
//! Colour is the terminal's business: the text comes in pieces that say what they are, and whoever prints them may
//! give each kind a colour. Joined, the pieces read the same.

use std::fmt;

use super::{Finding, Place, Severity};

/// What a piece of a rendered finding is, for those who want to colour it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ink {
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
    /// Text out of the file, and all other text.
    Plain,
    /// The underline, and what was expected there.
    Caret,
}

/// A stretch of one ink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub ink: Ink,
    pub text: String,
}

struct Page {
    pieces: Vec<Piece>,
    /// Width of the widest line number: all frames of one finding are drawn in one line.
    gutter: usize,
}

impl Finding {
    /// The finding in pieces; every line ends with a line feed.
    pub fn pieces(&self) -> Vec<Piece> {
        let places = self.place.iter().chain(self.notes.iter().map(|note| &note.place));
        let widest = places.filter_map(|place| place.span).map(|span| span.start.line).max().unwrap_or(0);
        let mut page = Page { pieces: Vec::new(), gutter: widest.to_string().len() };

        let ink = match self.severity {
            Severity::Error => Ink::Error,
            Severity::Warning => Ink::Warning,
        };
        page.write(ink, format!("{}[{}]", self.severity, self.code));
        page.write(Ink::Message, format!(": {}\n", self.message));
        if let Some(place) = &self.place {
            page.place(place, self.expected.as_deref());
        }
        for note in &self.notes {
            page.write(Ink::Remark, "note");
            page.write(Ink::Plain, format!(": {}\n", note.message));
            page.place(&note.place, None);
        }
        if let Some(affected) = self.affected.as_ref().filter(|affected| affected.nodes.len() > 1) {
            let more = match affected.more {
                0 => String::new(),
                1 => " and 1 node more".to_owned(),
                more => format!(" and {more} nodes more"),
            };
            page.write(Ink::Remark, "note");
            page.write(Ink::Plain, format!(": it is so for {}{more}\n", affected.nodes.join(", ")));
        }
        if let Some(help) = &self.help {
            page.write(Ink::Remark, "help");
            page.write(Ink::Plain, format!(": {help}\n"));
        }
        page.pieces
    }
}

impl Page {
    fn write(&mut self, ink: Ink, text: impl Into<String>) {
        self.pieces.push(Piece { ink, text: text.into() });
    }

    fn place(&mut self, place: &Place, expected: Option<&str>) {
        let margin = " ".repeat(self.gutter);
        self.write(Ink::Frame, format!("{margin}--> "));
        let Some(span) = place.span else {
            self.write(Ink::Plain, format!("{}\n", place.file));
            return;
        };
        self.write(Ink::Plain, format!("{}:{}:{}\n", place.file, span.start.line, span.start.column));
        let Some(excerpt) = &place.excerpt else { return };

        self.write(Ink::Frame, format!("{margin} |\n"));
        self.write(Ink::Frame, format!("{:>width$} |", span.start.line, width = self.gutter));
        self.write(Ink::Plain, format!("{}\n", format!(" {}", excerpt.text).trim_end()));
        self.write(Ink::Frame, format!("{margin} | "));
        let indent = " ".repeat(excerpt.indent as usize);
        let underline = "^".repeat(excerpt.width as usize);
        let expected = expected.map(|expected| format!(" {expected}")).unwrap_or_default();
        self.write(Ink::Caret, format!("{indent}{underline}{expected}\n"));
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces().iter().try_for_each(|piece| f.write_str(&piece.text))
    }
}
