//! Collects the findings of one file or of a design: sorts, limits and deduplicates them, and hides lines with secrets.
//!
//! Secrets are detected by the names of keys. In a document that parses they are reported
//! ([`Code::SecretAsText`](crate::finding::Code::SecretAsText)). In any other document, a line that seems to hold a secret
//! is not shown.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::file_text::{FileText, Files, Span};

use super::{Code, Finding, FindingCode, Findings, Location, Severity};

/// Findings of one file. A file that is not a design could give one for each line.
const MAX_PER_FILE: usize = 200;
/// Findings of a design.
const MAX_PER_DESIGN: usize = 2_000;
const SECRET_KEYS: [&str; 9] =
    ["password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "private_key", "api_key"];

#[derive(Debug)]
pub(crate) struct FindingCollector<'s> {
    texts: Texts<'s>,
    limit: usize,
    findings: Vec<Finding>,
    /// Index of each finding. The same finding about the same span is reported once, for all nodes that inherit it.
    reported: HashMap<(FindingCode, Span, u64), Option<usize>>,
    omitted: usize,
    omitted_an_error: bool,
}

#[derive(Clone, Copy, Debug)]
enum Texts<'s> {
    One(&'s FileText),
    All(&'s Files),
}

impl<'s> FindingCollector<'s> {
    pub(crate) fn new(text: &'s FileText) -> Self {
        FindingCollector::over(Texts::One(text), MAX_PER_FILE)
    }

    pub(crate) fn of_design(files: &'s Files) -> Self {
        FindingCollector::over(Texts::All(files), MAX_PER_DESIGN)
    }

    fn over(texts: Texts<'s>, limit: usize) -> Self {
        FindingCollector {
            texts,
            limit,
            findings: Vec::new(),
            reported: HashMap::new(),
            omitted: 0,
            omitted_an_error: false,
        }
    }

    /// Adds a finding about a span.
    pub(crate) fn add(&mut self, span: Span, finding: Finding) {
        self.add_about(span, finding, None);
    }

    /// Adds a finding about a span that affects a node. For a span in a profile, further nodes are added to the first
    /// finding.
    pub(crate) fn add_for(&mut self, node: &str, span: Span, finding: Finding) {
        self.add_about(span, finding, Some(node));
    }

    fn add_about(&mut self, span: Span, finding: Finding, node: Option<&str>) {
        let mut hasher = DefaultHasher::new();
        finding.message.hash(&mut hasher);
        match self.reported.entry((finding.code.clone(), span, hasher.finish())) {
            Entry::Occupied(first) => {
                let known = first.get().and_then(|at| self.findings.get_mut(at));
                if let (Some(known), Some(node)) = (known, node) {
                    known.affected.get_or_insert_default().add(node);
                }
            }
            Entry::Vacant(new) if self.findings.len() < self.limit => {
                new.insert(Some(self.findings.len()));
                let location = location(self.texts, span, finding.hides_line);
                let mut finding = finding.at(location);
                if let Some(node) = node {
                    finding.affected.get_or_insert_default().add(node);
                }
                self.findings.push(finding);
            }
            Entry::Vacant(new) => {
                new.insert(None);
                self.omitted += 1;
                self.omitted_an_error |= finding.severity == Severity::Error;
            }
        }
    }

    /// Location of a span, for a note.
    pub(crate) fn location(&self, span: Span) -> Location {
        location(self.texts, span, false)
    }

    /// Adds a finding with a note about a related span.
    pub(crate) fn add_with_note(&mut self, span: Span, finding: Finding, note: &str, noted: Span) {
        // An excerpt costs the length of its line: not for findings that are dropped.
        let is_kept = self.findings.len() < self.limit;
        self.add(span, if is_kept { finding.note(note, self.location(noted)) } else { finding });
    }

    /// Adds a finding about the whole file or the design.
    pub(crate) fn add_to_file(&mut self, finding: Finding) {
        self.findings.push(match self.texts {
            Texts::One(text) => finding.at(text.whole()),
            Texts::All(_) => finding,
        });
    }

    /// Adds the findings of another pass.
    pub(crate) fn extend(&mut self, findings: Findings) {
        self.findings.extend(findings);
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.omitted_an_error || self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// Findings in the order of the files, independent of the order of the rules.
    pub(crate) fn finish(mut self) -> Findings {
        self.findings.sort_by_cached_key(|finding| {
            let file = finding.location.as_ref().map(|place| place.file.clone());
            let start = finding.location.as_ref().and_then(|place| place.span).map(|span| span.start);
            // Two sources may have files of one name.
            let line = finding.location.as_ref().and_then(|place| place.excerpt.clone()).map(|excerpt| excerpt.text);
            // The note about omitted findings comes last.
            let is_more = finding.code == Code::TooManyFindings;
            (file, is_more, start, finding.code.clone(), finding.message.clone(), line)
        });
        hide_secrets(&mut self.findings);
        if self.omitted > 0 {
            let message = format!("{} more findings are not shown", self.omitted);
            let mut finding = Code::TooManyFindings.finding(message).help("correct these first, then check again");
            if !self.omitted_an_error {
                finding.severity = Severity::Warning;
            }
            self.add_to_file(finding);
        }
        self.findings.into()
    }
}

/// Removes the excerpts of lines with a secret from all findings.
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

fn location(texts: Texts<'_>, span: Span, hides_line: bool) -> Location {
    let place = match texts {
        Texts::One(text) => text.location(span),
        Texts::All(files) => files.location(span),
    };
    if hides_line { Location { excerpt: None, ..place } } else { place }
}

/// Reports whether the value of a key is a secret.
pub(crate) fn is_secret_key(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    SECRET_KEYS
        .iter()
        .any(|word| name.strip_suffix(word).is_some_and(|before| before.is_empty() || before.ends_with('_')))
}

/// Reports whether a line sets such a key to a plain value. `credential: {secret: NAME}` is only a reference.
pub(crate) fn holds_secret(line: &str) -> bool {
    let mut rest = line;
    while let Some(colon) = rest.find(':') {
        let (before, after) = (&rest[..colon], &rest[colon + 1..]);
        let key = before.trim_end().trim_end_matches(['"', '\'']);
        let key = key.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).next().unwrap_or_default();
        let value = after.trim_start();
        let is_written = !value.is_empty() && !value.starts_with(['{', '}', ',', '#']);
        if is_secret_key(key) && !key.eq_ignore_ascii_case("secret") && is_written {
            return true;
        }
        rest = after;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_secrets_are_detected() {
        for line in [
            "credential: hunter2",
            "  oob: {type: ipmi, credential: hunter2",
            "- \"API-key\": 'x'",
            "ipmi_password:   x # why",
            "a: {b: c, token: x}",
            "credential: [hunter2]",
        ] {
            assert!(holds_secret(line), "{line}");
        }
        for line in
            ["credential: {secret: oob/prod}", "tokens: 3", "credential:", "a: password", "- password", "url: x", ""]
        {
            assert!(!holds_secret(line), "{line}");
        }
    }
}
