//! Merges the layers of a subject into one value.

use crate::documents::Document;
use crate::finding::{Code, Report, quote};
use crate::inherit::lineage::Subject;
use crate::inherit::merge::merge;
use crate::inherit::merge::{NoRecorder, Recorder, UnusedRemovals};
use crate::kinds::AnyKind;
use crate::table::Table;
use crate::types::Type;
use crate::yaml::Node;

/// Cache of merged lineages. Thousands of nodes extend the same few profiles in the same order; each such order is merged
/// once.
#[derive(Debug, Default)]
pub(super) struct Bases {
    known: Table<Box<[usize]>, Option<Node>>,
}

impl Bases {
    /// Merged value of a lineage.
    pub(super) fn get(
        &mut self,
        lineage: &[usize],
        subjects: &[Subject],
        documents: &[Option<Document>],
    ) -> Option<Node> {
        if let Some(known) = self.known.get(lineage) {
            return known.clone();
        }
        // Start from the longest cached prefix, such as the lineage of the last parent.
        let known = (0..lineage.len()).rev().find_map(|upto| Some((upto, self.known.get(&lineage[..upto])?.clone())));
        let (mut upto, mut value) = known.unwrap_or((0, None));
        while let Some(&subject) = lineage.get(upto) {
            value = own(value, &subjects[subject], documents, &mut NoRecorder);
            upto += 1;
            self.known.insert(lineage[..upto].into(), value.clone());
        }
        value
    }

    /// Merged value of a lineage that is in the cache.
    pub(super) fn cached(&self, lineage: &[usize]) -> Option<Node> {
        self.known.get(lineage).cloned().flatten()
    }
}

/// Merges a subject's own documents over its inherited value.
pub(crate) fn own<R: Recorder>(
    base: Option<Node>,
    subject: &Subject,
    documents: &[Option<Document>],
    record: &mut R,
) -> Option<Node> {
    let ty = subject.kind.body();
    let layers = subject.stack.iter().filter_map(|at| documents[*at].as_ref());
    layers.fold(base, |value, document| merge(value.as_ref(), &document.body, &ty, record))
}

/// Document of a configuration item that inherits nothing. It is used verbatim: `null` and `!` may have a meaning there.
pub(super) fn verbatim<'d>(subject: &Subject, documents: &'d [Option<Document>]) -> Option<&'d Document> {
    match (subject.stack.as_slice(), &*subject.lineage, subject.kind.body()) {
        ([only], [], Type::Any) => documents[*only].as_ref(),
        _ => None,
    }
}

/// Effective value of a subject. A document without content has an empty mapping.
pub(super) fn flatten(value: Option<Node>, subject: &Subject, documents: &[Option<Document>]) -> Option<Node> {
    if let Some(document) = verbatim(subject, documents) {
        return Some(document.body.clone());
    }
    let span = subject.stack.last().and_then(|at| documents[*at].as_ref()).map(|document| document.span);
    value.or_else(|| Some(Node::from_entries(Vec::new(), span?)))
}

/// Reports removals without effect in the document itself, not again for documents that inherit from it. Configuration
/// items may use `!` for something else.
pub(super) fn report_unused(subject: &Subject, unused: &mut UnusedRemovals, report: &mut Report<'_>) {
    for (name, span) in unused.0.drain(..) {
        if matches!(subject.kind, AnyKind::Known(_)) {
            let finding = Code::RemovesNothing.finding(format!("there is no {} to remove here", quote(&name)));
            report.add(span, finding.help("no inherited value has it: remove this line, or check the spelling"));
        }
    }
}
