//! Findings as they cross the wire.

use muster_design::finding::{self, Findings, Place};
use muster_design::span;
use muster_wire::design::{Excerpt, Finding, Note, Position, Severity, Span};

pub(super) fn told(findings: &Findings) -> Vec<Finding> {
    findings.iter().map(one).collect()
}

fn one(finding: &finding::Finding) -> Finding {
    let (file, span, excerpt) = place(finding.place.as_ref());
    let note = |note: &finding::Note| {
        let (file, span, excerpt) = place(Some(&note.place));
        Note { message: note.message.clone(), file, span, excerpt }
    };
    Finding {
        code: finding.code.as_str().to_owned(),
        severity: match finding.severity {
            finding::Severity::Error => Severity::Error,
            finding::Severity::Warning => Severity::Warning,
        },
        message: finding.message.clone(),
        file,
        span,
        excerpt,
        expected: finding.expected.clone(),
        notes: finding.notes.iter().map(note).collect(),
        help: finding.help.clone(),
    }
}

fn place(place: Option<&Place>) -> (Option<String>, Option<Span>, Option<Excerpt>) {
    let Some(place) = place else { return (None, None, None) };
    let position = |at: span::Position| Position { line: at.line, column: at.column };
    let span = place.span.map(|span| Span { start: position(span.start), end: position(span.end) });
    let excerpt = |cut: &finding::Excerpt| Excerpt { text: cut.text.clone(), indent: cut.indent, width: cut.width };
    (Some(place.file.clone()), span, place.excerpt.as_ref().map(excerpt))
}
