//! Collects the findings of one pass, over one file or over a whole design.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Code, Finding, FindingCode, Findings, Location, Severity};
use crate::file_text::FileText;
use crate::files::Files;
use crate::span::Span;

/// A file that is broken all through, or is no design at all, could give a finding a line. Nobody reads more than
/// these, and memory stays bounded.
const MOST_OF_A_FILE: usize = 200;
/// The same for a design as a whole.
const MOST_OF_A_DESIGN: usize = 2_000;

#[derive(Debug)]
pub(crate) struct Report<'s> {
    texts: Texts<'s>,
    most: usize,
    findings: Vec<Finding>,
    /// What was said already: the same about the same place is said once, however many nodes inherit it.
    said: HashMap<(FindingCode, Span, u64), Option<usize>>,
    left_out: usize,
    left_out_an_error: bool,
}

#[derive(Clone, Copy, Debug)]
enum Texts<'s> {
    One(&'s FileText),
    All(&'s Files),
}

impl<'s> Report<'s> {
    pub(crate) fn new(text: &'s FileText) -> Self {
        Report::over(Texts::One(text), MOST_OF_A_FILE)
    }

    pub(crate) fn of_design(files: &'s Files) -> Self {
        Report::over(Texts::All(files), MOST_OF_A_DESIGN)
    }

    fn over(texts: Texts<'s>, most: usize) -> Self {
        Report { texts, most, findings: Vec::new(), said: HashMap::new(), left_out: 0, left_out_an_error: false }
    }

    /// Adds a finding about a place.
    pub(crate) fn add(&mut self, span: Span, finding: Finding) {
        self.add_about(span, finding, None);
    }

    /// Adds a finding about a place that a node has to do with. The place may be in a profile: then the same finding
    /// about other nodes is not shown again, only counted.
    pub(crate) fn add_for(&mut self, node: &str, span: Span, finding: Finding) {
        self.add_about(span, finding, Some(node));
    }

    fn add_about(&mut self, span: Span, finding: Finding, node: Option<&str>) {
        let mut hasher = DefaultHasher::new();
        finding.message.hash(&mut hasher);
        match self.said.entry((finding.code.clone(), span, hasher.finish())) {
            Entry::Occupied(said) => {
                let known = said.get().and_then(|at| self.findings.get_mut(at));
                if let (Some(known), Some(node)) = (known, node) {
                    known.affected.get_or_insert_default().add(node);
                }
            }
            Entry::Vacant(new) if self.findings.len() < self.most => {
                new.insert(Some(self.findings.len()));
                let location = place(self.texts, span, finding.hides_line);
                let mut finding = finding.at(location);
                if let Some(node) = node {
                    finding.affected.get_or_insert_default().add(node);
                }
                self.findings.push(finding);
            }
            Entry::Vacant(new) => {
                new.insert(None);
                self.left_out += 1;
                self.left_out_an_error |= finding.severity == Severity::Error;
            }
        }
    }

    /// The place of a span, for a note.
    pub(crate) fn place(&self, span: Span) -> Location {
        place(self.texts, span, false)
    }

    /// Adds a finding that has to do with another place as well.
    pub(crate) fn add_with_note(&mut self, span: Span, finding: Finding, note: &str, noted: Span) {
        // To show a place costs the length of its line: not for findings that are not kept.
        let is_kept = self.findings.len() < self.most;
        self.add(span, if is_kept { finding.note(note, self.place(noted)) } else { finding });
    }

    /// Adds a finding about the file as a whole, or about the design.
    pub(crate) fn add_to_file(&mut self, finding: Finding) {
        self.findings.push(match self.texts {
            Texts::One(text) => finding.at(text.whole()),
            Texts::All(_) => finding,
        });
    }

    /// Adds what another pass has found.
    pub(crate) fn extend(&mut self, findings: Findings) {
        self.findings.extend(findings);
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.left_out_an_error || self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// All findings in the order of the files, whatever the order in which the rules ran.
    pub(crate) fn finish(mut self) -> Findings {
        self.findings.sort_by_cached_key(|finding| {
            let file = finding.location.as_ref().map(|place| place.file.clone());
            let start = finding.location.as_ref().and_then(|place| place.span).map(|span| span.start);
            // Two sources may have files of one name.
            let line = finding.location.as_ref().and_then(|place| place.excerpt.clone()).map(|excerpt| excerpt.text);
            // That there are more comes behind those that are shown.
            let is_more = finding.code == Code::TooManyFindings;
            (file, is_more, start, finding.code.clone(), finding.message.clone(), line)
        });
        hide_secrets(&mut self.findings);
        if self.left_out > 0 {
            let message = format!("{} more findings are not shown", self.left_out);
            let mut finding = Code::TooManyFindings.finding(message).help("mend these first, then check again");
            if !self.left_out_an_error {
                finding.severity = Severity::Warning;
            }
            self.add_to_file(finding);
        }
        self.findings.into()
    }
}

/// A line with a secret is shown by no finding, whatever it is about.
fn hide_secrets(findings: &mut [Finding]) {
    let lines = |place: &Location| place.span.map(|span| (place.file.clone(), span.start.line..=span.end.line));
    let secret: Vec<_> =
        findings.iter().filter(|it| it.hides_line).filter_map(|it| lines(it.location.as_ref()?)).collect();
    if secret.is_empty() {
        return;
    }
    let places = findings
        .iter_mut()
        .flat_map(|it| it.location.iter_mut().chain(it.notes.iter_mut().map(|note| &mut note.location)));
    for place in places {
        let Some(line) = place.span.map(|span| span.start.line) else { continue };
        if secret.iter().any(|(file, lines)| *file == place.file && lines.contains(&line)) {
            place.excerpt = None;
        }
    }
}

fn place(texts: Texts<'_>, span: Span, hides_line: bool) -> Location {
    let place = match texts {
        Texts::One(text) => text.place(span),
        Texts::All(files) => files.place(span),
    };
    if hides_line { Location { excerpt: None, ..place } } else { place }
}
