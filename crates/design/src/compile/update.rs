//! Recompiles a design after a change of files, at the cost of the change.
//!
//! Unchanged files are not parsed again. The common change has a fast path: if only nodes changed, only those nodes are
//! merged and checked. No document inherits from a node, and values that must be unique are kept in a table, so the
//! results of other nodes stay valid. Any other change reassembles the design.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::assemble::assemble;
use super::compose::{Bases, check_references, check_stack, flatten, merge_own_layers, report_unused, sort_stack};
use super::design::{CheckedDesign, Design, DesignData, FileSlot};
use super::load::{DesignFile, LoadedFile, load};
use super::nodes::{CompiledNode, check_named, in_order, is_elsewhere, is_in_environment, plan_node};
use crate::documents::{self, Document};
use crate::file_text::{FileId, FileText, Span};
use crate::finding::{FindingCollector, TextRange};
use crate::inherit::lineage::{Subject, ancestors, edges, is_too_long, lineage};
use crate::inherit::merge::UnusedRemovals;
use crate::kinds::{AnyKind, Kind};
use crate::rules::{check_fleet, check_nodes};

/// A change of one file of a source.
#[derive(Debug)]
pub enum SourceFileChange {
    /// Creates or replaces the file.
    Put(FileText),
    /// Removes the file.
    Remove { file: String },
}

/// Gaps left by changed files. Beyond this limit the design is compiled from scratch.
const MAX_GAPS: usize = 10_000;

impl Design {
    /// The design with changed files of one source. A new source is added last.
    pub fn with(&self, source: &str, changes: Vec<SourceFileChange>) -> CheckedDesign {
        let mut inner = (*self.inner).clone();
        let number = inner.sources.iter().position(|name| name == source).unwrap_or_else(|| {
            inner.sources.push(source.to_owned());
            inner.sources.len() - 1
        });
        let swaps: Vec<FileSwap> = changes.into_iter().map(|change| swap(&mut inner, number, change)).collect();
        let is_full = inner.files.numbers_used() >= MAX_GAPS + 2 * inner.slots.len();
        // With errors in the composition the fast path cannot tell which findings belong to a node.
        if !is_full && !inner.composed.has_errors() && swaps.iter().all(FileSwap::is_about_nodes) {
            let (names, spans) = inner.replace(&swaps);
            if !names.iter().any(|name| inner.needs_reassembly(name)) {
                return inner.recheck(&swaps, &names, &spans);
            }
        }
        let files = inner.files;
        if is_full {
            return recompile(&files, inner.sources, inner.slots, inner.options);
        }
        let kept = inner.slots.iter().filter_map(|((source, _), slot)| {
            let text = files.get(slot.file)?.clone();
            Some((DesignFile { text, source: *source }, slot.loaded.clone()))
        });
        let loads = kept.collect();
        assemble(files, inner.sources, loads, inner.options)
    }
}

/// Compiles all files again, with new file numbers.
fn recompile(
    files: &crate::file_text::Files,
    sources: Vec<String>,
    slots: BTreeMap<(usize, String), FileSlot>,
    options: super::CompileOptions,
) -> CheckedDesign {
    let mut bundles: Vec<crate::source::DesignSource> =
        sources.into_iter().map(|name| crate::source::DesignSource { name, files: Vec::new() }).collect();
    for ((source, _), slot) in slots {
        bundles[source].files.extend(files.get(slot.file).cloned());
    }
    Design::compile(bundles, &options)
}

/// Old and new content of a file.
struct FileSwap {
    file: (usize, String),
    before: Option<FileSlot>,
    after: Option<(FileId, Arc<LoadedFile>)>,
}

/// Replaces the text of a file and loads the new one.
fn swap(inner: &mut DesignData, source: usize, change: SourceFileChange) -> FileSwap {
    let (name, text) = match change {
        SourceFileChange::Put(text) => (text.name().to_owned(), Some(text)),
        SourceFileChange::Remove { file } => (file, None),
    };
    let file = (source, name);
    let before = inner.slots.remove(&file);
    if let Some(before) = &before {
        inner.files.remove(before.file);
    }
    let after = text.map(|text| {
        let assigned = DesignFile { text: inner.files.add(text), source };
        let loaded = load(std::slice::from_ref(&assigned)).into_iter().next().unwrap_or_default();
        (assigned.text.id(), Arc::new(loaded))
    });
    if let Some((id, loaded)) = &after {
        inner.slots.insert(file.clone(), FileSlot { file: *id, loaded: loaded.clone(), documents: Vec::new() });
    }
    FileSwap { file, before, after }
}

impl FileSwap {
    /// Old and new content.
    fn loads(&self) -> impl Iterator<Item = &LoadedFile> {
        let before = self.before.iter().map(|slot| &*slot.loaded);
        before.chain(self.after.iter().map(|(_, loaded)| &**loaded))
    }

    fn is_about_nodes(&self) -> bool {
        let is_node = |document: &Arc<Document>| document.kind == AnyKind::Known(Kind::Node);
        // A broken environment file has no content, and still affects the design.
        let is_environment = documents::is_environment_file(&self.file.1);
        !is_environment
            && self.loads().all(|loaded| loaded.environments.is_empty() && loaded.documents.iter().all(is_node))
    }
}

impl DesignData {
    /// Replaces the documents; returns the names of the changed nodes and the spans of their old and new documents.
    fn replace(&mut self, swaps: &[FileSwap]) -> (HashSet<Arc<str>>, Vec<Span>) {
        let nodes = AnyKind::Known(Kind::Node);
        let (mut names, mut spans) = (HashSet::new(), Vec::new());
        for swap in swaps {
            for at in swap.before.iter().flat_map(|slot| &slot.documents) {
                if let Some(document) = self.documents[*at].take() {
                    spans.push(document.span);
                    names.insert(document.name.clone());
                }
            }
            let Some((_, loaded)) = &swap.after else { continue };
            let first = self.documents.len();
            let env = self.environment.as_ref().map(|environment| environment.name.clone());
            let env = env.or_else(|| self.options.env.clone());
            let is_here = |document: &&Arc<Document>| !is_elsewhere(document, env.as_ref());
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
                let written = others.filter(|document| document.origin.is_written());
                spans.extend(written.map(|document| document.span));
                self.subjects[subject].stack.retain(|at| documents[*at].is_some());
                sort_stack(&mut self.subjects[subject], documents);
            }
        }
        (names, spans)
    }

    /// Reports whether the fast path cannot check a node: a source has two documents of it, whose order depends on all files,
    /// or its lineage is too long.
    fn needs_reassembly(&self, name: &str) -> bool {
        let Some(subject) = self.index.find(&AnyKind::Known(Kind::Node), name) else { return false };
        let subject = &self.subjects[subject];
        let layer =
            |at: &usize| self.documents[*at].as_ref().map(|document| (document.origin.level(), document.source));
        let is_twice = subject.stack.windows(2).any(|pair| layer(&pair[0]) == layer(&pair[1]));
        is_twice || is_too_long(&ancestors(subject, &self.subjects, &self.index, &self.documents))
    }

    /// Merges and checks the changed nodes, and reruns the rules that read all nodes.
    fn recheck(mut self, swaps: &[FileSwap], names: &HashSet<Arc<str>>, spans: &[Span]) -> CheckedDesign {
        let nodes = AnyKind::Known(Kind::Node);
        let files = self.files.clone();
        let mut report = FindingCollector::of_design(&files);
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
        self.node_results.remove(&changed);
        for &at in &changed {
            self.plan_findings.remove(&at);
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
            let mut unused = UnusedRemovals::default();
            let base = bases.get(&subject.lineage, &self.subjects, &self.documents);
            let value = merge_own_layers(base.as_ref(), subject, &self.documents, &mut unused);
            self.trees[at] = flatten(value, subject, &self.documents);
            report_unused(subject, &mut unused, &mut report);
        }

        // Moved out, so that it can change while the site borrows the rest.
        let mut node_results = std::mem::take(&mut self.node_results);
        let site = self.site();
        changed.retain(|&at| is_in_environment(&site, at, &mut report));
        let stays = |node: &&Arc<CompiledNode>| !names.contains(node.name.as_str());
        let mut planned: Vec<_> = self.nodes.iter().filter(stays).cloned().collect();
        let mut plan_findings = Vec::new();
        for &at in &changed {
            let (node, findings) = plan_node(&site, at);
            planned.extend(node.map(Arc::new));
            plan_findings.extend((!findings.is_empty()).then(|| (at, findings.into())));
        }
        let nodes = in_order(planned, site.environment);
        check_nodes(&site, &changed, &mut node_results);
        let fleet_findings = check_fleet(&site).into();
        self.plan_findings.extend(plan_findings);
        (self.nodes, self.node_results, self.fleet_findings) = (nodes, node_results, fleet_findings);
        self.composed = report.finish();
        self.checked()
    }
}
