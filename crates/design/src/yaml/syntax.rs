//! Syntax errors of the parser, reported with advice.

use crate::file_text::FileText;
use crate::finding::{Code, Report};
use crate::span::{Position, Span};

/// Reports that the text is not YAML from `at` on.
pub(super) fn report(source: &FileText, report: &mut Report<'_>, at: Position, complaint: &str) {
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
        Some("a text that holds \": \" must be in quotes; else look at the indentation of this line and the one before")
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
