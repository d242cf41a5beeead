//! Which documents a document is made of, in which order.

use std::sync::Arc;

use crate::document::{Document, Parent, title};
use crate::finding::{Code, Report, quote};
use crate::graph::{self, Edge};
use crate::kinds::AnyKind;
use crate::spelling;
use crate::table::Table;

/// So many documents may be above each other. Real chains have four; without a bound, a chain of a hundred thousand would
/// cost the square of its length.
const MOST_LAYERS: usize = 64;

/// Everything that is said about one thing: a kind and a name.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub kind: AnyKind,
    pub name: Arc<str>,
    /// Its own documents by index, the lowest first: one a source, and what an environment file says below them.
    pub stack: Vec<usize>,
    /// The subjects below it, the lowest first, itself not included.
    pub lineage: Arc<[usize]>,
}

/// Finds a subject by kind and name without making a key for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    by_kind: Table<AnyKind, Table<Arc<str>, usize>>,
}

impl Index {
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

    /// The name that was probably meant: always the same, whatever the order of documents.
    pub(crate) fn nearest(&self, kind: &AnyKind, name: &str) -> Option<&str> {
        /// More are not looked through: each of a hundred thousand documents may misspell one of as many names.
        const MOST_NAMES: usize = 500;
        let names = self.by_kind.get(kind).filter(|names| names.len() <= MOST_NAMES)?;
        let mut names: Vec<&str> = names.keys().map(|name| &**name).collect();
        names.sort_unstable();
        spelling::nearest(name, names)
    }

    pub(crate) fn of_kind(&self, kind: &AnyKind) -> impl Iterator<Item = usize> {
        self.by_kind.get(kind).into_iter().flatten().map(|(_, subject)| *subject)
    }
}

/// The documents that a subject extends: what the uppermost of its own documents says that says anything.
pub(crate) fn parents<'d>(subject: &Subject, documents: &'d [Option<Document>]) -> &'d [Parent] {
    let says = |document: &usize| documents.get(*document)?.as_ref()?.extends.as_deref();
    subject.stack.iter().rev().find_map(says).unwrap_or_default()
}

/// Gives every subject its lineage. A parent that is missing, and one that closes a circle, is reported and left out.
pub(crate) fn trace(subjects: &mut [Subject], index: &Index, documents: &[Option<Document>], report: &mut Report<'_>) {
    let edges: Vec<Vec<Edge>> = subjects.iter().map(|subject| edges(subject, index, documents, report)).collect();
    let mut found = graph::order(&edges);
    if !found.circles.is_empty() {
        // Then it matters where one begins, and that must not depend on the order of documents.
        let mut starts: Vec<usize> = (0..subjects.len()).collect();
        starts.sort_by_key(|at| (&subjects[*at].kind, &subjects[*at].name));
        found = graph::order_from(&edges, starts);
    }
    for circle in &found.circles {
        let name = |subject: usize| subjects[subject].name.to_string();
        let (message, help) = match circle.members.as_slice() {
            [alone] => (format!("{} extends itself", title_of(&subjects[*alone])), "remove it"),
            _ => (
                format!("documents extend each other in a circle: {}", circle.show(name)),
                "remove one of them, so that there is one to begin with",
            ),
        };
        report.add(circle.closing.span, Code::ParentCycle.finding(message).help(help));
    }
    // Parents come before those that extend them, and a closing edge leads to one that has no lineage yet.
    let mut is_done = vec![false; subjects.len()];
    for at in found.order {
        let own = edges[at].iter().filter(|edge| is_done[edge.to]);
        let lineage = lineage(own.map(|edge| edge.to), subjects);
        if is_too_long(&lineage) {
            let message = format!("{} is made of more than {MOST_LAYERS} documents", title_of(&subjects[at]));
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

/// The lineage of whoever extends these: each parent's own lineage before it, and who is reached twice counts where it is
/// reached first. So in a diamond the common base comes once, and lowest.
pub(crate) fn lineage(parents: impl Iterator<Item = usize>, subjects: &[Subject]) -> Arc<[usize]> {
    let mut lineage: Vec<usize> = Vec::new();
    for parent in parents {
        for ancestor in subjects[parent].lineage.iter().copied().chain([parent]) {
            if !lineage.contains(&ancestor) && lineage.len() <= MOST_LAYERS {
                lineage.push(ancestor);
            }
        }
    }
    lineage.into()
}

/// Whether a lineage has more members than is accepted.
pub(crate) fn is_too_long(lineage: &[usize]) -> bool {
    lineage.len() >= MOST_LAYERS
}

/// The lineage of a subject whose parents have theirs. Parents that are not there are passed over.
pub(crate) fn ancestors(
    subject: &Subject,
    subjects: &[Subject],
    index: &Index,
    documents: &[Option<Document>],
) -> Arc<[usize]> {
    let kind = subject.kind.parents();
    let there = parents(subject, documents).iter().filter_map(|parent| index.find(&kind, &parent.name));
    lineage(there, subjects)
}

/// The parents of a subject that are there.
pub(crate) fn edges(
    subject: &Subject,
    index: &Index,
    documents: &[Option<Document>],
    report: &mut Report<'_>,
) -> Vec<Edge> {
    let parents = parents(subject, documents);
    if parents.is_empty() {
        return Vec::new();
    }
    let kind = subject.kind.parents();
    let mut edges = Vec::new();
    for Parent { name, span } in parents {
        match index.find(&kind, name) {
            Some(to) => edges.push(Edge { to, span: *span }),
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
