//! Parses YAML documents into trees with positions.
//!
//! Only this module uses the parser (saphyr-parser), which produces events with positions. The tree, the limits and the
//! types of scalars are defined here.
//!
//! Accepted is YAML 1.2 with its core schema, with these restrictions:
//!
//! - **Scalars.** Plain `null`, `Null`, `NULL`, `~` and nothing at all are null; `true` and `false` (also `True`,
//!   `TRUE`, …) are booleans; `12`, `-3`, `0o17`, `0xff` are integers; `1.5`, `1e3`, `.inf`, `.nan` are floats, and so
//!   is an integer that does not fit into 64 bits. Everything else is text: `yes`, `no`, `on`, `off`, `1.2.3`, `12:30`,
//!   `2026-11-15`. So is everything in quotes, and every block scalar. A scalar keeps the text it was written as.
//! - **Keys** are text, whatever they look like: `1: x` and `"1": x` are the same. An empty key, a list or a mapping
//!   as a key, and the same key twice are findings.
//! - **Tags** (`!!str`, `!name`) are findings.
//! - **Aliases** are unfolded. The top of what an alias stands for has the place of the alias, and everything below it
//!   the place where it was written. How much may be unfolded is limited. `<<` is a finding.
//! - **Documents.** A file holds any number of them. When one is broken, those after it are still read.

mod builder;
mod limits;
mod scalar;
mod text_cache;
mod tree;

use std::ops::Range;

use saphyr_parser::{Event, Marker, Parser};

use crate::file_text::{FileText, Position, Span};
use crate::finding::{Code, FindingCollector, Findings};

use builder::Builder;

pub(crate) use limits::TreeBudget;

pub use limits::Limits;
pub use scalar::{Scalar, ScalarKind};
pub use tree::{Value, YamlEntry, YamlKey, YamlMap, YamlNode};

/// Content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedFile {
    /// Documents that could be parsed. A document with a syntax error is dropped and reported; a finding about a part, such
    /// as a duplicate key or a tag, keeps the rest of the document.
    pub documents: Vec<YamlNode>,
    pub findings: Findings,
}

/// Parses all documents of a file.
pub fn parse(source: &FileText, limits: &Limits) -> ParsedFile {
    let mut report = FindingCollector::new(source);
    let documents = parse_into(source, &mut report, limits);
    ParsedFile { documents, findings: report.finish() }
}

/// Splits a file into ranges of complete documents of about `bytes` each.
pub(crate) fn document_ranges(source: &FileText, bytes: usize) -> Vec<Range<u32>> {
    let all = source.all_lines();
    let (mut ranges, mut start) = (Vec::new(), all.start);
    while let Some(line) = source.line_at(source.offset(start).saturating_add(bytes))
        && let Some(next) = next_document(source, line.max(start + 1))
    {
        // A directive belongs to the document that follows it.
        let has_directive = source.line(next - 1).is_some_and(|line| line.starts_with('%'));
        if has_directive {
            break;
        }
        ranges.push(start..next);
        start = next;
    }
    ranges.push(start..all.end);
    ranges
}

/// Parses all documents of a file into the report of the caller.
pub(crate) fn parse_into(source: &FileText, report: &mut FindingCollector<'_>, limits: &Limits) -> Vec<YamlNode> {
    parse_lines(source, source.all_lines(), report, limits, &TreeBudget::new(TreeBudget::OF_A_DESIGN))
}

/// Parses a range of lines with complete documents, within a shared budget.
pub(crate) fn parse_lines(
    source: &FileText,
    lines: Range<u32>,
    report: &mut FindingCollector<'_>,
    limits: &Limits,
    budget: &TreeBudget,
) -> Vec<YamlNode> {
    let mut builder = Builder::new(source, limits, budget, report);
    let mut first_line = lines.start;
    while let Err(ParseStop { line }) = read(source, first_line..lines.end, &mut builder) {
        if builder.is_exhausted() {
            break;
        }
        let Some(line) = next_document(source, line.max(first_line + 1)).filter(|line| *line < lines.end) else {
            break;
        };
        first_line = line;
        builder.abandon_document();
    }
    builder.into_documents()
}

/// Parsing of the document stopped; the reason was reported.
#[derive(Debug)]
struct ParseStop {
    line: u32,
}

fn read(source: &FileText, lines: Range<u32>, builder: &mut Builder<'_, '_>) -> Result<(), ParseStop> {
    let position = |marker: &Marker| position(marker, lines.start, source);
    let text = source.text_of(&lines);
    // Pulls events: the loader of the parser is recursive and cannot be stopped.
    let mut parser = Parser::new_from_str(text);
    while let Some(next) = parser.next_event() {
        match next {
            Ok((Event::StreamEnd, _)) => break,
            Ok((event, span)) => {
                let span = Span { file: source.id(), start: position(&span.start), end: position(&span.end) };
                builder.handle(event, span).map_err(|_| ParseStop { line: span.start.line })?;
            }
            Err(error) => {
                let at = position(error.marker());
                builder.syntax_error(at, error.info());
                return Err(ParseStop { line: at.line });
            }
        }
    }
    Ok(())
}

/// Converts a position of the parser, which counts lines from 1 and columns from 0. The parser may report a line behind
/// the last one.
fn position(marker: &Marker, first_line: u32, source: &FileText) -> Position {
    let line = narrow(marker.line()).max(1) + first_line - 1;
    if line as usize > source.lines() { source.end() } else { Position { line, column: narrow(marker.col()) + 1 } }
}

/// No file that is read has 4 billion lines or columns.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX / 2)
}

/// The next line from `line` on that begins a document. `---` in the first column does so wherever it stands, even in
/// the middle of a quoted or block scalar, so parsing can continue there after an error.
fn next_document(source: &FileText, line: u32) -> Option<u32> {
    (line..=source.lines() as u32).find(|&number| {
        let rest = source.line(number).and_then(|line| line.strip_prefix("---"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
    })
}

/// Reports that the text is not YAML from `at` on.
fn report_syntax_error(source: &FileText, report: &mut FindingCollector<'_>, at: Position, complaint: &str) {
    // The parser has its own limit for nested brackets, and reads ahead to that limit or to the end of a possible key.
    if complaint.contains("recursion limit") {
        return report.add(Span::at(source.id(), at), Code::TooDeep.finding("values are nested too deep"));
    }
    let tab = complaint.contains("tab").then(|| indenting_tab(source, at.line).or(indenting_tab(source, at.line + 1)));
    if let Some(tab) = tab.flatten() {
        let finding = Code::Tab
            .finding("the line is indented with a tab, which YAML does not allow")
            .expected("expected spaces")
            .help("indent with spaces, for instance two a level");
        return report.add(tab, finding);
    }
    let finding = Code::Syntax.finding(format!("this is not YAML: {complaint}"));
    let finding = finding.help_if(advice(source, at, complaint).map(str::to_owned));
    report.add(Span::at(source.id(), at), finding);
}

/// Tabs at the beginning of a line. The parser reports them in several ways, at the tab or at the end of the previous
/// line.
fn indenting_tab(source: &FileText, line: u32) -> Option<Span> {
    let text = source.line(line)?;
    let indent = &text[..text.len() - text.trim_start_matches([' ', '\t']).len()];
    let first = indent.find('\t')?;
    let column = |offset: usize| Position { line, column: offset as u32 + 1 };
    Some(Span { file: source.id(), start: column(first), end: column(indent.len()) })
}

/// Probable cause of a syntax error. The parser reports the unexpected token, not the cause.
fn advice(source: &FileText, at: Position, complaint: &str) -> Option<&'static str> {
    let line_before = at.line.checked_sub(1).and_then(|line| source.line(line)).unwrap_or_default();
    if complaint.contains("mapping values are not allowed") && has_colon_without_space(line_before) {
        Some("in the line before: a key and its value are separated by a colon and a space")
    } else if complaint.contains("mapping values are not allowed") {
        Some("a text with \": \" must be in quotes; otherwise check the indentation of this line and the one before")
    } else if complaint.contains("unexpected character") {
        Some("a text that begins with this character must be in quotes")
    } else if complaint.contains("unknown anchor") {
        Some("an alias (*name) needs an anchor (&name) before it; a text that begins with * must be in quotes")
    } else if complaint.contains("simple key expect") && line_before.trim_start().starts_with('!') {
        Some("in the line before: a key that begins with ! must be in quotes, '!name'")
    } else if complaint.contains("simple key expect") {
        Some("a key and its value are separated by a colon and a space")
    } else if complaint.contains("quoted scalar") {
        Some("is a closing quote missing?")
    } else if complaint.contains("flow") || complaint.contains("illegal placement of ':'") {
        Some("is a closing ] or } missing, here or above, or a comma?")
    } else if complaint.contains("did not find expected key") || complaint.contains("indentation") {
        Some("what belongs together must be indented by the same number of spaces")
    } else {
        None
    }
}

/// Detects `cardinality:2`, which is a text.
fn has_colon_without_space(line: &str) -> bool {
    let line = line.trim();
    line.contains(':') && !line.contains(": ") && !line.ends_with(':')
}
