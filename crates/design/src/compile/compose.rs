//! Groups documents of one kind and name into subjects, checks the groups, and merges the layers of a subject into one value.

use std::collections::HashMap;
use std::sync::Arc;

use muster_core::spelling;

use crate::FastMap;
use crate::documents::{Document, DocumentOrigin, title};
use crate::finding::{Code, FindingCollector, quote};
use crate::inherit::lineage::{Subject, SubjectIndex};
use crate::inherit::merge::{MergeRecorder, NoRecorder, UnusedRemovals, merge};
use crate::kinds::{AnyKind, Kind};
use crate::types::{DocumentReference, Type};
use crate::yaml::YamlNode;

/// Groups documents by kind and name, each from the lowest layer.
pub(super) fn subjects(documents: &[Option<Arc<Document>>]) -> (Vec<Subject>, SubjectIndex) {
    let (mut subjects, mut index) = (Vec::<Subject>::new(), SubjectIndex::default());
    for (at, document) in documents.iter().enumerate() {
        let Some(document) = document else { continue };
        let subject = index.find(&document.kind, &document.name).unwrap_or_else(|| {
            index.insert(&document.kind, document.name.clone(), subjects.len());
            let (kind, name) = (document.kind.clone(), document.name.clone());
            subjects.push(Subject { kind, name, stack: Vec::with_capacity(1), lineage: Arc::default() });
            subjects.len() - 1
        });
        subjects[subject].stack.push(at);
    }
    for subject in &mut subjects {
        sort_stack(subject, documents);
    }
    (subjects, index)
}

/// Sorts the documents of a subject: defaults, then generated documents, then by source.
pub(super) fn sort_stack(subject: &mut Subject, documents: &[Option<Arc<Document>>]) {
    let layer = |at: &usize| documents[*at].as_ref().map(|document| (document.origin.level(), document.source));
    subject.stack.sort_by_key(layer);
}

/// Reports documents of one name that conflict or overlay each other.
pub(super) fn check_stack(
    subject: &Subject,
    documents: &[Option<Arc<Document>>],
    sources: &[String],
    report: &mut FindingCollector<'_>,
) {
    let layers: Vec<&Document> = subject.stack.iter().filter_map(|at| documents[*at].as_deref()).collect();
    let title = || title(&subject.kind, &subject.name);
    if let [first, ..] = layers.as_slice()
        && let Some(span) = first.overlay
    {
        let finding =
            Code::NothingBelow.finding(format!("{} is an overlay, and no earlier source has the document", title()));
        report.add(span, finding.help("remove \"overlay\", or list the source with the document before this one"));
    }
    for pair in layers.windows(2) {
        let [lower, upper] = pair else { continue };
        if lower.origin.level() != upper.origin.level() || lower.origin == DocumentOrigin::Default {
            continue;
        }
        let noted = "the other one is here";
        if lower.source == upper.source {
            let message = format!("there are two documents {} in source {}", title(), quote(&sources[upper.source]));
            let finding = Code::DuplicateDocument.finding(message).help("remove or rename one of them");
            report.add_with_note(upper.name_at, finding, noted, lower.name_at);
        } else if upper.overlay.is_none() {
            let message = format!(
                "{} of source {} overlays that of source {}",
                title(),
                quote(&sources[upper.source]),
                quote(&sources[lower.source])
            );
            let finding = Code::OverlaidDocument
                .finding(message)
                .help("if this is intended, add \"overlay: true\"; otherwise rename one of them");
            report.add_with_note(upper.name_at, finding, noted, lower.name_at);
        }
    }
}

/// Reports unknown kinds. Kinds that are not built in have a `/` in their name, or a schema.
pub(super) fn check_kinds(
    documents: &[Option<Arc<Document>>],
    index: &SubjectIndex,
    report: &mut FindingCollector<'_>,
) {
    let schemas = AnyKind::Known(Kind::Schema);
    let mut known: HashMap<Arc<str>, bool> = HashMap::new();
    for document in documents.iter().flatten() {
        let AnyKind::Item(kind) = &document.kind else { continue };
        let is_known =
            *known.entry(kind.clone()).or_insert_with(|| kind.contains('/') || index.find(&schemas, kind).is_some());
        if !is_known {
            let finding = Code::UnknownKind.finding(format!("{} is not a kind of document", quote(kind)));
            let help = match spelling::nearest(kind, Kind::ALL.iter().map(|kind| kind.word())) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => {
                    "a kind of your own has a / in its name, such as acme/Widget, or a document of kind Schema that \
                         is named after it"
                        .to_owned()
                }
            };
            report.add(document.span, finding.help(help));
        }
    }
}

/// Reports references to documents that do not exist.
pub(super) fn check_references<'r>(
    references: impl Iterator<Item = &'r DocumentReference>,
    index: &SubjectIndex,
    report: &mut FindingCollector<'_>,
) {
    for DocumentReference { kind, name, span, severity } in references {
        let any = AnyKind::Known(*kind);
        if index.find(&any, name).is_none() {
            let mut finding = Code::DanglingReference.finding(format!("there is no {}", title(&any, name)));
            finding.severity = *severity;
            let help = match index.nearest(&any, name) {
                Some(near) => format!("did you mean {}?", quote(near)),
                None => format!("add a document of kind {kind} with this name, or remove the reference"),
            };
            report.add(*span, finding.help(help));
        }
    }
}

/// Cache of merged lineages. Thousands of nodes extend the same few profiles in the same order; each such order is merged
/// once.
#[derive(Debug, Default)]
pub(super) struct Bases {
    known: FastMap<Box<[usize]>, Option<YamlNode>>,
}

impl Bases {
    /// Merged value of a lineage.
    pub(super) fn get(
        &mut self,
        lineage: &[usize],
        subjects: &[Subject],
        documents: &[Option<Arc<Document>>],
    ) -> Option<YamlNode> {
        if let Some(known) = self.known.get(lineage) {
            return known.clone();
        }
        // Start from the longest cached prefix, such as the lineage of the last parent.
        let known = (0..lineage.len()).rev().find_map(|upto| Some((upto, self.known.get(&lineage[..upto])?.clone())));
        let (mut upto, mut value) = known.unwrap_or((0, None));
        while let Some(&subject) = lineage.get(upto) {
            value = merge_own_layers(value.as_ref(), &subjects[subject], documents, &mut NoRecorder);
            upto += 1;
            self.known.insert(lineage[..upto].into(), value.clone());
        }
        value
    }

    /// Merged value of a lineage that is in the cache.
    pub(super) fn cached(&self, lineage: &[usize]) -> Option<&YamlNode> {
        self.known.get(lineage)?.as_ref()
    }
}

/// Merges a subject's own documents over its inherited value.
pub(crate) fn merge_own_layers<R: MergeRecorder>(
    base: Option<&YamlNode>,
    subject: &Subject,
    documents: &[Option<Arc<Document>>],
    record: &mut R,
) -> Option<YamlNode> {
    let ty = subject.kind.body();
    let mut layers = subject.stack.iter().filter_map(|at| documents[*at].as_ref());
    let Some(lowest) = layers.next() else { return base.cloned() };
    let value = merge(base, &lowest.body, &ty, record);
    layers.fold(value, |value, document| merge(value.as_ref(), &document.body, &ty, record))
}

/// Document of a configuration item that inherits nothing. It is used verbatim: `null` and `!` may have a meaning there.
pub(super) fn verbatim<'d>(subject: &Subject, documents: &'d [Option<Arc<Document>>]) -> Option<&'d Document> {
    match (subject.stack.as_slice(), &*subject.lineage, subject.kind.body()) {
        ([only], [], Type::Any) => documents[*only].as_deref(),
        _ => None,
    }
}

/// Effective value of a subject. A document without content has an empty mapping.
pub(super) fn flatten(
    value: Option<YamlNode>,
    subject: &Subject,
    documents: &[Option<Arc<Document>>],
) -> Option<YamlNode> {
    if let Some(document) = verbatim(subject, documents) {
        return Some(document.body.clone());
    }
    let span = subject.stack.last().and_then(|at| documents[*at].as_ref()).map(|document| document.span);
    value.or_else(|| Some(YamlNode::from_entries(Vec::new(), span?)))
}

/// Reports removals without effect in the document itself, not again for documents that inherit from it. Configuration
/// items may use `!` for something else.
pub(super) fn report_unused(subject: &Subject, unused: &mut UnusedRemovals, report: &mut FindingCollector<'_>) {
    for (name, span) in unused.0.drain(..) {
        if matches!(subject.kind, AnyKind::Known(_)) {
            let finding = Code::RemovesNothing.finding(format!("there is no {} to remove here", quote(&name)));
            report.add(span, finding.help("no inherited value has it: remove this line, or check the spelling"));
        }
    }
}
