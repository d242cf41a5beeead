//! The layers of a subject become one value.

use crate::document::Document;
use crate::finding::{Code, Report, quote};
use crate::inherit::lineage::Subject;
use crate::inherit::merge::lay;
use crate::inherit::record::{IdleRemovals, Record, Unrecorded};
use crate::kinds::AnyKind;
use crate::table::Table;
use crate::types::Type;
use crate::yaml::Node;

/// The values of lineages that were asked for. Thousands of nodes extend the same few profiles in the same order, and each
/// such order is merged once.
#[derive(Debug, Default)]
pub(super) struct Bases {
    known: Table<Box<[usize]>, Option<Node>>,
}

impl Bases {
    /// What a lineage comes to.
    pub(super) fn get(
        &mut self,
        lineage: &[usize],
        subjects: &[Subject],
        documents: &[Option<Document>],
    ) -> Option<Node> {
        if let Some(known) = self.known.get(lineage) {
            return known.clone();
        }
        // The longest part of it that is known; the lineage of the uppermost parent is, when it was flattened before.
        let known = (0..lineage.len()).rev().find_map(|upto| Some((upto, self.known.get(&lineage[..upto])?.clone())));
        let (mut upto, mut value) = known.unwrap_or((0, None));
        while let Some(&subject) = lineage.get(upto) {
            value = own(value, &subjects[subject], documents, &mut Unrecorded);
            upto += 1;
            self.known.insert(lineage[..upto].into(), value.clone());
        }
        value
    }

    /// The same for a lineage that was asked for before.
    pub(super) fn known(&self, lineage: &[usize]) -> Option<Node> {
        self.known.get(lineage).cloned().flatten()
    }
}

/// Lays a subject's own documents over what it inherits.
pub(crate) fn own<R: Record>(
    base: Option<Node>,
    subject: &Subject,
    documents: &[Option<Document>],
    record: &mut R,
) -> Option<Node> {
    let ty = subject.kind.body();
    let layers = subject.stack.iter().filter_map(|at| documents[*at].as_ref());
    layers.fold(base, |value, document| lay(value.as_ref(), &document.body, &ty, record))
}

/// The document of a subject that is somebody else's, and inherits nothing. It is left as it is: there a `null` or a `!` may
/// mean something.
pub(super) fn untouched<'d>(subject: &Subject, documents: &'d [Option<Document>]) -> Option<&'d Document> {
    match (subject.stack.as_slice(), &*subject.lineage, subject.kind.body()) {
        ([only], [], Type::Any) => documents[*only].as_ref(),
        _ => None,
    }
}

/// The effective value of a subject: a document without content is there all the same.
pub(super) fn flatten(value: Option<Node>, subject: &Subject, documents: &[Option<Document>]) -> Option<Node> {
    if let Some(document) = untouched(subject, documents) {
        return Some(document.body.clone());
    }
    let span = subject.stack.last().and_then(|at| documents[*at].as_ref()).map(|document| document.span);
    value.or_else(|| Some(Node::from_entries(Vec::new(), span?)))
}

/// Reports removals that removed nothing, where the document is looked at for itself and not when others inherit from
/// it. Configuration items may mean something else by `!`.
pub(super) fn report_idle(subject: &Subject, idle: &mut IdleRemovals, report: &mut Report<'_>) {
    for (name, span) in idle.0.drain(..) {
        if matches!(subject.kind, AnyKind::Known(_)) {
            let finding = Code::RemovesNothing.finding(format!("there is no {} to remove here", quote(&name)));
            report.add(span, finding.help("nothing that is inherited has it: remove this, or look at the spelling"));
        }
    }
}
