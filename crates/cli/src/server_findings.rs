//! Findings that a server has made of a design: they look the same as those that are made here.

use muster_design::finding::{Code, Excerpt, Finding, Note, Place};
use muster_design::span::{Position, Span};
use muster_wire::design as wire;

use crate::terminal::{Notes, painted};

/// Prints findings beside the answer.
pub(crate) fn note(findings: &[wire::Finding], notes: &mut Notes) {
    findings.iter().for_each(|finding| notes.print(format_args!("{}\n", text(finding))));
}

/// A finding for a terminal.
pub(crate) fn text(finding: &wire::Finding) -> String {
    match Code::ALL.iter().copied().find(|code| code.as_str() == finding.code) {
        Some(code) => painted(&local(code, finding)),
        None => foreign(finding),
    }
}

fn local(code: Code, told: &wire::Finding) -> Finding {
    let mut finding = Finding::new(code, told.message.clone());
    finding.severity = match told.severity {
        wire::Severity::Error => muster_design::finding::Severity::Error,
        wire::Severity::Warning => muster_design::finding::Severity::Warning,
    };
    finding.place = told.file.as_ref().map(|file| place(file, told.span, told.excerpt.as_ref()));
    finding.expected.clone_from(&told.expected);
    finding.help.clone_from(&told.help);
    finding.notes = told
        .notes
        .iter()
        .map(|note| Note {
            message: note.message.clone(),
            place: place(note.file.as_deref().unwrap_or_default(), note.span, note.excerpt.as_ref()),
        })
        .collect();
    finding
}

fn place(file: &str, span: Option<wire::Span>, excerpt: Option<&wire::Excerpt>) -> Place {
    let position = |at: wire::Position| Position { line: at.line, column: at.column };
    let span = span.map(|span| Span { file: Default::default(), start: position(span.start), end: position(span.end) });
    let excerpt =
        excerpt.map(|excerpt| Excerpt { text: excerpt.text.clone(), indent: excerpt.indent, width: excerpt.width });
    Place { file: file.to_owned(), span, excerpt }
}

/// One that only a newer server knows.
fn foreign(finding: &wire::Finding) -> String {
    let severity = match finding.severity {
        wire::Severity::Error => "error",
        wire::Severity::Warning => "warning",
    };
    let mut text = format!("{severity}[{}]: {}\n", finding.code, finding.message);
    if let Some(file) = &finding.file {
        let at = finding.span.map(|span| format!(":{}:{}", span.start.line, span.start.column)).unwrap_or_default();
        text.push_str(&format!(" --> {file}{at}\n"));
    }
    if let Some(help) = &finding.help {
        text.push_str(&format!("help: {help}\n"));
    }
    text
}
