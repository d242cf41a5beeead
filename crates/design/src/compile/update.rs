//! A design with some files changed, at the cost of what has changed.
//!
//! Files that are the same are not read again. Beyond that there is one short cut, for what operators do all day: where
//! nothing but nodes has changed, only those nodes are merged and looked at. Nobody inherits from a node, and what no two
//! nodes may share is kept in a table; so the others stay what they are. Everything else is put together anew.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::assemble::assemble;
use super::compose::{check_references, check_stack, stack};
use super::design::{Checked, Design, Inner, Slot};
use super::environments::{check_named, is_elsewhere};
use super::flatten::{Bases, flatten, own, report_idle};
use super::hosts::{is_host, plan_one};
use super::load::{Assigned, Loaded, load};
use super::planned::{self, PlannedNode};
use crate::consumer;
use crate::document::Document;
use crate::file_text::FileText;
use crate::finding::{Report, TextRange};
use crate::inherit::lineage::{Subject, ancestors, edges, is_too_long, lineage};
use crate::inherit::record::IdleRemovals;
use crate::kinds::{AnyKind, Kind};
use crate::rules::{check_fleet, check_hosts};
use crate::span::{FileId, Span};

/// A change of one file of a source.
#[derive(Debug)]
pub enum Change {
    /// The file is now this, whether it was there or not.
    Put(FileText),
    /// The file is gone.
    Remove { file: String },
}

/// A design leaves a gap for every file that was changed; when there are so many, it is put together anew.
const MOST_GAPS: usize = 10_000;

impl Design {
    /// The same design with some files of one source changed. A source that was not there yet comes last.
    pub fn with(&self, source: &str, changes: Vec<Change>) -> Checked {
        let mut inner = (*self.inner).clone();
        let number = inner.sources.iter().position(|name| name == source).unwrap_or_else(|| {
            inner.sources.push(source.to_owned());
            inner.sources.len() - 1
        });
        let swaps: Vec<Swap> = changes.into_iter().map(|change| swap(&mut inner, number, change)).collect();
        let is_full = inner.files.given_out() >= MOST_GAPS + 2 * inner.slots.len();
        // Where something does not fit together, what belongs to whom is not clear; an accepted design has no errors.
        if !is_full && !inner.composed.has_errors() && swaps.iter().all(Swap::is_about_nodes) {
            let (names, spans) = inner.replace(&swaps);
            if !names.iter().any(|name| inner.needs_all(name)) {
                return inner.look_again(&swaps, &names, &spans);
            }
        }
        let files = inner.files;
        if is_full {
            return anew(&files, inner.sources, inner.slots, inner.options);
        }
        let kept = inner.slots.iter().filter_map(|((source, _), slot)| {
            let text = files.get(slot.file)?.clone();
            Some((Assigned { text, source: *source }, slot.loaded.clone()))
        });
        let loads = kept.collect();
        assemble(files, inner.sources, loads, inner.options)
    }
}

/// Reads everything again: the numbers of files begin anew.
fn anew(
    files: &crate::files::Files,
    sources: Vec<String>,
    slots: BTreeMap<(usize, String), Slot>,
    options: super::Options,
) -> Checked {
    let mut bundles: Vec<crate::bundle::Bundle> =
        sources.into_iter().map(|name| crate::bundle::Bundle { name, files: Vec::new() }).collect();
    for ((source, name), slot) in slots {
        if let Some(text) = files.get(slot.file) {
            bundles[source].files.push(FileText::new(name, text.text()));
        }
    }
    Design::compile(bundles, &options)
}

/// What a file held, and what it holds now.
struct Swap {
    file: (usize, String),
    before: Option<Slot>,
    after: Option<(FileId, Arc<Loaded>)>,
}

/// Reads the new text of a file; the old one is forgotten.
fn swap(inner: &mut Inner, source: usize, change: Change) -> Swap {
    let (name, text) = match change {
        Change::Put(text) => (text.name().to_owned(), Some(text)),
        Change::Remove { file } => (file, None),
    };
    let file = (source, name);
    let before = inner.slots.remove(&file);
    if let Some(before) = &before {
        inner.files.forget(before.file);
    }
    let after = text.map(|text| {
        let assigned = Assigned { text: inner.files.add(text), source };
        let loaded = load(std::slice::from_ref(&assigned)).into_iter().next().unwrap_or_default();
        (assigned.text.id(), Arc::new(loaded))
    });
    if let Some((id, loaded)) = &after {
        inner.slots.insert(file.clone(), Slot { file: *id, loaded: loaded.clone(), documents: Vec::new() });
    }
    Swap { file, before, after }
}

impl Swap {
    /// Everything that the file held and holds.
    fn loads(&self) -> impl Iterator<Item = &Loaded> {
        let before = self.before.iter().map(|slot| &*slot.loaded);
        before.chain(self.after.iter().map(|(_, loaded)| &**loaded))
    }

    fn is_about_nodes(&self) -> bool {
        let is_node = |document: &Document| document.kind == AnyKind::Known(Kind::Node);
        // An environment file that cannot be understood holds nothing, and matters all the same.
        let is_environment = consumer::is_environment_file(&self.file.1);
        !is_environment
            && self.loads().all(|loaded| loaded.environments.is_empty() && loaded.documents.iter().all(is_node))
    }
}

impl Inner {
    /// Puts the new documents into the places of the old ones; returns the names of the nodes that they are about, and
    /// where everything stood that was said about these.
    fn replace(&mut self, swaps: &[Swap]) -> (HashSet<Arc<str>>, Vec<Span>) {
        let nodes = AnyKind::Known(Kind::Node);
        let (mut names, mut spans) = (HashSet::new(), Vec::new());
        for swap in swaps {
            for at in swap.before.iter().flat_map(|slot| &slot.documents) {
                if let Some(document) = self.documents[*at].take() {
                    spans.push(document.span);
                    names.insert(document.name);
                }
            }
            let Some((_, loaded)) = &swap.after else { continue };
            let first = self.documents.len();
            let env = self.environment.as_ref().map(|environment| environment.name.clone());
            let env = env.or_else(|| self.options.env.clone());
            let is_here = |document: &&Document| !is_elsewhere(document, env.as_ref());
            self.documents.extend(loaded.documents.iter().map(|document| Some(document).filter(is_here).cloned()));
            if let Some(slot) = self.slots.get_mut(&swap.file) {
                slot.documents = (first..self.documents.len()).collect();
            }
            for (at, document) in loaded.documents.iter().enumerate().filter(|(_, document)| is_here(document)) {
                names.insert(document.name.clone());
                let subject = self.index.find(&nodes, &document.name).unwrap_or_else(|| {
                    self.index.insert(&nodes, document.name.clone(), self.subjects.len());
                    let (kind, name) = (nodes.clone(), document.name.clone());
                    self.subjects.push(Subject { kind, name, stack: Vec::new(), lineage: Arc::default() });
                    self.trees.push(None);
                    self.subjects.len() - 1
                });
                self.subjects[subject].stack.push(first + at);
            }
        }
        for name in &names {
            if let Some(subject) = self.index.find(&nodes, name) {
                let documents = &self.documents;
                let others = self.subjects[subject].stack.iter().filter_map(|at| documents[*at].as_ref());
                let written = others.filter(|document| document.maker.is_author());
                spans.extend(written.map(|document| document.span));
                self.subjects[subject].stack.retain(|at| documents[*at].is_some());
                stack(&mut self.subjects[subject], documents);
            }
        }
        (names, spans)
    }

    /// Whether what is wrong with a node can be told only by looking at everything: a source has two documents about it,
    /// and which of them is the first one depends on all files; or it inherits from too many.
    fn needs_all(&self, name: &str) -> bool {
        let Some(subject) = self.index.find(&AnyKind::Known(Kind::Node), name) else { return false };
        let subject = &self.subjects[subject];
        let layer = |at: &usize| self.documents[*at].as_ref().map(|document| (document.maker.level(), document.source));
        let is_twice = subject.stack.windows(2).any(|pair| layer(&pair[0]) == layer(&pair[1]));
        is_twice || is_too_long(&ancestors(subject, &self.subjects, &self.index, &self.documents))
    }

    /// Merges the changed nodes, and looks at them and at whatever depends on them.
    fn look_again(mut self, swaps: &[Swap], names: &HashSet<Arc<str>>, spans: &[Span]) -> Checked {
        let nodes = AnyKind::Known(Kind::Node);
        let files = self.files.clone();
        let mut report = Report::of_design(&files);
        let composed = std::mem::take(&mut self.composed);
        let stays = |finding: &crate::finding::Finding| {
            let Some(location) = &finding.location else { return true };
            let Some(TextRange { start, end }) = location.span else { return true };
            let at = Span { file: FileId(location.file_number), start, end };
            !spans.iter().any(|span| span.holds(at))
        };
        report.extend(composed.into_iter().filter(stays).collect::<Vec<_>>().into());
        let references = swaps.iter().filter_map(|swap| swap.after.as_ref()).flat_map(|(_, loaded)| &loaded.references);
        check_references(references, &self.index, &mut report);
        for (_, loaded) in swaps.iter().filter_map(|swap| swap.after.as_ref()) {
            loaded.documents.iter().for_each(|document| check_named(document, &self.environments, &mut report));
        }

        let mut bases = Bases::default();
        let mut changed: Vec<usize> = names.iter().filter_map(|name| self.index.find(&nodes, name)).collect();
        changed.sort_unstable();
        for &at in &changed {
            self.of_nodes.forget(at);
            self.of_plan.remove(&at);
            if self.subjects[at].stack.is_empty() {
                let name = self.subjects[at].name.clone();
                self.index.remove(&nodes, &name);
                self.trees[at] = None;
                continue;
            }
            check_stack(&self.subjects[at], &self.documents, &self.sources, &mut report);
            let parents = edges(&self.subjects[at], &self.index, &self.documents, &mut report);
            self.subjects[at].lineage = lineage(parents.iter().map(|edge| edge.to), &self.subjects);
            let subject = &self.subjects[at];
            let mut idle = IdleRemovals::default();
            let base = bases.get(&subject.lineage, &self.subjects, &self.documents);
            let value = own(base, subject, &self.documents, &mut idle);
            self.trees[at] = flatten(value, subject, &self.documents);
            report_idle(subject, &mut idle, &mut report);
        }

        // Taken out, so that it can change while the rest is looked at.
        let mut of_nodes = std::mem::take(&mut self.of_nodes);
        let site = self.site();
        changed.retain(|&at| is_host(&site, at, &mut report));
        let stays = |node: &&Arc<PlannedNode>| !names.contains(node.name.as_str());
        let mut planned: Vec<_> = self.nodes.iter().filter(stays).cloned().collect();
        let mut of_plan = Vec::new();
        for &at in &changed {
            let (node, raws) = plan_one(&site, at);
            planned.extend(node.map(Arc::new));
            of_plan.extend((!raws.is_empty()).then(|| (at, raws.into())));
        }
        let nodes = planned::in_order(planned, site.environment);
        check_hosts(&site, &changed, &mut of_nodes);
        let of_fleet = check_fleet(&site).into();
        self.of_plan.extend(of_plan);
        (self.nodes, self.of_nodes, self.of_fleet) = (nodes, of_nodes, of_fleet);
        self.composed = report.finish();
        self.checked()
    }
}
