//! Excerpts: the line of a finding, shortened and without control characters.

use super::Excerpt;
use crate::span::Span;

/// Characters of an excerpt. A file may be one line of megabytes.
const MAX_WIDTH: usize = 120;
/// Characters shown before the underline in a shortened line.
const LEAD: usize = 40;
const TAB: &str = "    ";

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
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::span::{FileId, Position};

    fn cut(line: &str, from: u32, to: u32) -> String {
        let at = |column| Position { line: 1, column };
        let Excerpt { text, indent, width } =
            excerpt(line, Span { file: FileId::default(), start: at(from), end: at(to) });
        format!("{text}\n{}{}", " ".repeat(indent as usize), "^".repeat(width as usize))
    }

    #[test]
    fn underlines_what_the_span_covers() {
        assert_eq!(cut("key: value", 6, 11), "key: value\n     ^^^^^");
        assert_eq!(cut("kéy: välue", 6, 11), "kéy: välue\n     ^^^^^");
        assert_eq!(cut("", 1, 1), "\n^");
        assert_eq!(cut("key:", 5, 5), "key:\n    ^");
    }

    #[test]
    fn a_tab_takes_four_columns() {
        assert_eq!(cut("\tkey: 1", 2, 5), "    key: 1\n    ^^^");
        assert_eq!(cut("\tkey: 1", 1, 2), "    key: 1\n^^^^");
    }

    #[test]
    fn a_long_line_is_cut_around_the_caret() {
        let line = format!("{}HERE{}", "a".repeat(1000), "b".repeat(1000));
        let shown = cut(&line, 1001, 1005);
        assert_eq!(shown, format!("…{}HERE{}…\n{}^^^^", "a".repeat(40), "b".repeat(76), " ".repeat(41)));
    }

    #[test]
    fn nothing_reaches_the_terminal_but_text() {
        assert_eq!(cut("a\u{1b}[31mb\u{202e}", 1, 2), "a\u{fffd}[31mb\u{fffd}\n^");
    }
}
