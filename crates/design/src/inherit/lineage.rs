//! Lineages: all documents that a document extends, directly or through others, lowest layer first. A later layer wins.

use std::sync::Arc;

use crate::FastMap;
use crate::documents::{Document, Parent, title};
use crate::finding::{Code, FindingCollector, quote};
use crate::graph::{self, GraphEdge};
use crate::kinds::AnyKind;
use muster_core::spelling;

/// Layers of one document, itself included. Real chains have four; without a limit a chain of 100,000 would take quadratic time.
const MAX_LAYERS: usize = 64;

/// All documents of one kind and name.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub kind: AnyKind,
    pub name: Arc<str>,
    /// Its documents by index, from the lowest layer: generated ones, then one for each source.
    pub stack: Vec<usize>,
    /// Subjects that it extends, from the lowest; not including itself.
    pub lineage: Arc<[usize]>,
}

/// Index of subjects by kind and name.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubjectIndex {
    by_kind: FastMap<AnyKind, FastMap<Arc<str>, usize>>,
}

impl SubjectIndex {
    pub(crate) fn find(&self, kind: &AnyKind, name: &str) -> Option<usize> {
        self.by_kind.get(kind)?.get(name).copied()
    }

    pub(crate) fn insert(&mut self, kind: &AnyKind, name: Arc<str>, subject: usize) {
        match self.by_kind.get_mut(kind) {
            Some(names) => names.insert(name, subject),
            None => self.by_kind.entry(kind.clone()).or_default().insert(name, subject),
        };
    }

    pub(crate) fn remove(&mut self, kind: &AnyKind, name: &str) {
        if let Some(names) = self.by_kind.get_mut(kind) {
            names.remove(name);
        }
    }

    /// Most similar name, independent of the order of documents.
    pub(crate) fn nearest(&self, kind: &AnyKind, name: &str) -> Option<&str> {
        /// With more names there is no suggestion: a scan for each misspelt name would take quadratic time.
        const MAX_NAMES: usize = 500;
        let names = self.by_kind.get(kind).filter(|names| names.len() <= MAX_NAMES)?;
        let mut names: Vec<&str> = names.keys().map(|name| &**name).collect();
        names.sort_unstable();
        spelling::nearest(name, names)
    }

    pub(crate) fn of_kind(&self, kind: &AnyKind) -> impl Iterator<Item = usize> {
        self.by_kind.get(kind).into_iter().flatten().map(|(_, subject)| *subject)
    }
}

/// Parents of a subject: those of its topmost document that has `extends`.
pub(crate) fn parents<'d>(subject: &Subject, documents: &'d [Option<Arc<Document>>]) -> &'d [Parent] {
    let extends = |document: &usize| documents.get(*document)?.as_ref()?.extends.as_deref();
    subject.stack.iter().rev().find_map(extends).unwrap_or_default()
}

/// Computes the lineage of every subject. Missing parents and cycles are reported and skipped.
pub(crate) fn trace(
    subjects: &mut [Subject],
    index: &SubjectIndex,
    documents: &[Option<Arc<Document>>],
    report: &mut FindingCollector<'_>,
) {
    let edges: Vec<Vec<GraphEdge>> = subjects.iter().map(|subject| edges(subject, index, documents, report)).collect();
    let mut found = graph::order(&edges);
    if !found.cycles.is_empty() {
        // With cycles the result depends on the start, which must not depend on the order of documents.
        let mut starts: Vec<usize> = (0..subjects.len()).collect();
        starts.sort_by_key(|at| (&subjects[*at].kind, &subjects[*at].name));
        found = graph::order_from(&edges, starts);
    }
    for cycle in &found.cycles {
        let name = |subject: usize| subjects[subject].name.to_string();
        let (message, help) = match cycle.members.as_slice() {
            [alone] => (format!("{} extends itself", title_of(&subjects[*alone])), "remove it"),
            _ => (
                format!("documents extend each other in a cycle: {}", cycle.format(name)),
                "remove one of these references",
            ),
        };
        report.add(cycle.closing.span, Code::ParentCycle.finding(message).help(help));
    }
    // Parents come before their children; the closing edge of a cycle leads to a subject without a lineage yet.
    let mut is_done = vec![false; subjects.len()];
    // Subjects with the same parents share a lineage: thousands of nodes extend the same few profiles.
    let mut lineages: FastMap<Box<[usize]>, Arc<[usize]>> = FastMap::default();
    let mut own = Vec::new();
    for at in found.order {
        own.clear();
        own.extend(edges[at].iter().map(|edge| edge.to).filter(|to| is_done[*to]));
        let lineage = lineages.get(own.as_slice()).cloned().unwrap_or_else(|| {
            let lineage = lineage(own.iter().copied(), subjects);
            lineages.insert(own.as_slice().into(), lineage.clone());
            lineage
        });
        if is_too_long(&lineage) {
            let message = format!("{} has more than {MAX_LAYERS} layers, itself included", title_of(&subjects[at]));
            let finding = Code::TooManyLayers.finding(message);
            if let Some(edge) = edges[at].first() {
                report.add(edge.span, finding.help("extend fewer documents"));
            }
        } else {
            subjects[at].lineage = lineage;
        }
        is_done[at] = true;
    }
}

/// Lineage of a subject with these parents: each parent after its own lineage. A subject that is reached twice keeps its
/// first position, so the common base of a diamond is the lowest layer.
pub(crate) fn lineage(parents: impl Iterator<Item = usize>, subjects: &[Subject]) -> Arc<[usize]> {
    let mut lineage: Vec<usize> = Vec::new();
    for parent in parents {
        for ancestor in subjects[parent].lineage.iter().copied().chain([parent]) {
            if !lineage.contains(&ancestor) && lineage.len() <= MAX_LAYERS {
                lineage.push(ancestor);
            }
        }
    }
    lineage.into()
}

/// Reports whether a document with this lineage exceeds the limit: the document is a layer too.
pub(crate) fn is_too_long(lineage: &[usize]) -> bool {
    lineage.len() >= MAX_LAYERS
}

/// Lineage of a subject whose parents have theirs. Missing parents are skipped.
pub(crate) fn ancestors(
    subject: &Subject,
    subjects: &[Subject],
    index: &SubjectIndex,
    documents: &[Option<Arc<Document>>],
) -> Arc<[usize]> {
    let kind = subject.kind.parents();
    let there = parents(subject, documents).iter().filter_map(|parent| index.find(&kind, &parent.name));
    lineage(there, subjects)
}

/// Existing parents of a subject; missing ones are reported.
pub(crate) fn edges(
    subject: &Subject,
    index: &SubjectIndex,
    documents: &[Option<Arc<Document>>],
    report: &mut FindingCollector<'_>,
) -> Vec<GraphEdge> {
    let parents = parents(subject, documents);
    if parents.is_empty() {
        return Vec::new();
    }
    let kind = subject.kind.parents();
    let mut edges = Vec::new();
    for Parent { name, span } in parents {
        match index.find(&kind, name) {
            Some(to) => edges.push(GraphEdge { to, span: *span }),
            None => {
                let message = format!("there is no {} to extend", title(&kind, name));
                let help = match index.nearest(&kind, name) {
                    Some(near) => format!("did you mean {}?", quote(near)),
                    None => format!("there is no document of kind {kind} with this name in any source"),
                };
                report.add(*span, Code::UnknownParent.finding(message).help(help));
            }
        }
    }
    edges
}

fn title_of(subject: &Subject) -> String {
    title(&subject.kind, &subject.name)
}
