//! Collects the findings of one pass over one file.

use super::{Code, Finding, Findings, Severity};
use crate::source::Source;
use crate::span::Span;

/// A file that is broken all through, or is no design at all, could give a finding a line. Nobody reads more than
/// these, and memory stays bounded.
const MOST: usize = 200;

#[derive(Debug)]
pub(crate) struct Report<'s> {
    source: &'s Source,
    findings: Vec<Finding>,
    left_out: usize,
    left_out_an_error: bool,
}

impl<'s> Report<'s> {
    pub(crate) fn new(source: &'s Source) -> Self {
        Report { source, findings: Vec::new(), left_out: 0, left_out_an_error: false }
    }

    pub(crate) fn source(&self) -> &'s Source {
        self.source
    }

    /// Adds a finding about a place in the file.
    pub(crate) fn add(&mut self, span: Span, finding: Finding) {
        if self.findings.len() < MOST {
            self.findings.push(finding.at(self.source.place(span)));
        } else {
            self.left_out += 1;
            self.left_out_an_error |= finding.severity == Severity::Error;
        }
    }

    /// Adds a finding that has to do with another place as well.
    pub(crate) fn add_with_note(&mut self, span: Span, finding: Finding, note: &str, noted: Span) {
        // To show a place costs the length of its line: not for findings that are not kept.
        let is_kept = self.findings.len() < MOST;
        self.add(span, if is_kept { finding.note(note, self.source.place(noted)) } else { finding });
    }

    /// Adds a finding about the file as a whole.
    pub(crate) fn add_to_file(&mut self, finding: Finding) {
        self.findings.push(finding.at(self.source.whole()));
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.left_out_an_error || self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// All findings in the order of the file, whatever the order in which the rules ran.
    pub(crate) fn finish(mut self) -> Findings {
        self.findings.sort_by_key(|finding| {
            let start = finding.place.as_ref().and_then(|place| place.span).map(|span| span.start);
            (start, finding.code)
        });
        if self.left_out > 0 {
            let message = format!("{} more findings are not shown", self.left_out);
            let mut finding = Finding::new(Code::TooManyFindings, message).help("mend these first, then check again");
            if !self.left_out_an_error {
                finding.severity = Severity::Warning;
            }
            self.add_to_file(finding);
        }
        self.findings.into()
    }
}
