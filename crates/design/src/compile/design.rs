//! `Design`, the result of compilation: its environment, nodes and documents.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use muster_core::names::{EnvName, NodeName, Role};

use super::assemble::assemble;
use super::load::{DesignFile, LoadedFile, load};
use super::nodes::CompiledNode;
use crate::documents::{Document, DocumentOrigin};
use crate::environment::Environment;
use crate::file_text::{FileId, Files};
use crate::finding::{FindingCollector, Findings, Location};
use crate::inherit::lineage::{Subject, SubjectIndex};
use crate::kinds::{AnyKind, Kind};
use crate::resolve::boot_actions::nodes_of;
use crate::resolve::{ResolvedNode, resolve};
use crate::rules::{NodeResults, RuleFinding, SiteView, Topology};
use crate::source::DesignSource;
use crate::yaml::YamlNode;

/// Options of a compilation.
#[derive(Clone, Debug, Default)]
pub struct CompileOptions {
    /// Environment to compile for; default is the only environment.
    pub env: Option<EnvName>,
    /// Cardinalities that override the environment file.
    pub cardinality: BTreeMap<Role, u32>,
}

/// A design and its findings.
#[derive(Clone, Debug)]
pub struct CheckedDesign {
    /// With errors among the findings the design is incomplete: it may be shown and must not be applied.
    pub design: Design,
    pub findings: Findings,
}

/// A compiled design. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Design {
    pub(super) inner: Arc<DesignData>,
}

#[derive(Clone, Debug)]
pub(super) struct DesignData {
    pub options: CompileOptions,
    /// Names of the sources; a later one wins.
    pub sources: Vec<String>,
    pub files: Files,
    /// Files by source and name.
    pub slots: BTreeMap<(usize, String), FileSlot>,
    /// Documents keep their number; a removed one leaves a gap.
    pub documents: Vec<Option<Arc<Document>>>,
    pub subjects: Vec<Subject>,
    pub index: SubjectIndex,
    /// Effective value of each subject.
    pub trees: Vec<Option<YamlNode>>,
    /// Environments that have a file.
    pub environments: Arc<BTreeSet<EnvName>>,
    pub environment: Option<Arc<Environment>>,
    /// An environment file could not be parsed.
    pub has_broken_environment_file: bool,
    pub nodes: Arc<[Arc<CompiledNode>]>,
    /// Findings of the composition.
    pub composed: Findings,
    /// Findings of the rules that read no nodes, and of those that read all nodes.
    pub site_findings: Arc<[RuleFinding]>,
    pub fleet_findings: Arc<[RuleFinding]>,
    pub node_results: NodeResults,
    /// Findings of the node records, by subject.
    pub plan_findings: HashMap<usize, Arc<[RuleFinding]>>,
}

/// A file and its content.
#[derive(Clone, Debug)]
pub(super) struct FileSlot {
    pub file: FileId,
    pub loaded: Arc<LoadedFile>,
    /// Numbers of its documents.
    pub documents: Vec<usize>,
}

/// One document as written.
#[derive(Clone, Debug)]
pub struct DocumentRef<'d> {
    pub kind: &'d AnyKind,
    pub name: &'d str,
    pub source: &'d str,
    /// Location of the name.
    pub location: Location,
    /// The spec with the labels.
    pub body: &'d YamlNode,
    pub extends: Vec<&'d str>,
    pub origin: DocumentOrigin,
}

impl Design {
    /// Compiles the files of all sources; a later source wins. Terminates for any input; mistakes become findings.
    pub fn compile(bundles: Vec<DesignSource>, options: &CompileOptions) -> CheckedDesign {
        let mut files = Files::default();
        let (mut sources, mut assigned) = (Vec::new(), Vec::new());
        for (source, bundle) in bundles.into_iter().enumerate() {
            sources.push(bundle.name);
            assigned.extend(bundle.files.into_iter().map(|file| DesignFile { text: files.add(file), source }));
        }
        let loaded = load(&assigned);
        let loads = assigned.into_iter().zip(loaded.into_iter().map(Arc::new)).collect();
        assemble(files, sources, loads, options.clone())
    }

    pub fn env(&self) -> Option<&EnvName> {
        let of_file = self.inner.environment.as_ref().map(|environment| &environment.name);
        of_file.or(self.inner.options.env.as_ref())
    }

    /// Environments that have a file.
    pub fn environments(&self) -> impl Iterator<Item = &EnvName> {
        self.inner.environments.iter()
    }

    /// The environment file, if there is one.
    pub fn environment(&self) -> Option<&Environment> {
        self.inner.environment.as_deref()
    }

    pub fn sources(&self) -> &[String] {
        &self.inner.sources
    }

    /// Nodes of the environment, in display and start order.
    pub fn nodes(&self) -> &[Arc<CompiledNode>] {
        &self.inner.nodes
    }

    /// Documents as written, without generated ones.
    pub fn documents(&self) -> impl Iterator<Item = DocumentRef<'_>> {
        let written = self.inner.documents.iter().flatten();
        let written = written.filter(|document| document.origin.is_written());
        written.map(|document| DocumentRef {
            kind: &document.kind,
            name: &document.name,
            source: &self.inner.sources[document.source],
            location: self.inner.files.location(document.name_at),
            body: &document.body,
            extends: document.extends.iter().flatten().map(|parent| &*parent.name).collect(),
            origin: document.origin,
        })
    }

    /// All effective documents, with kind and name.
    pub fn effective_documents(&self) -> impl Iterator<Item = (&AnyKind, &str, &YamlNode)> {
        let all = self.inner.subjects.iter().zip(&self.inner.trees);
        all.filter_map(|(subject, tree)| Some((&subject.kind, &*subject.name, tree.as_ref()?)))
    }

    /// Effective value of a document.
    pub fn effective(&self, kind: &str, name: &str) -> Option<&YamlNode> {
        let subject = self.inner.index.find(&AnyKind::new(kind), name)?;
        self.inner.trees.get(subject)?.as_ref()
    }

    /// Resolved values of a node.
    pub fn resolved(&self, node: &str) -> Option<ResolvedNode> {
        let site = self.inner.site();
        Some(resolve(&site, &site.get(Kind::Node, node)?))
    }

    /// Resolved values of all nodes as JSON objects, without empty members.
    pub fn resolved_nodes(&self) -> Vec<(NodeName, serde_json::Value)> {
        let site = self.inner.site();
        let values = |name: &NodeName| {
            let node = resolve(&site, &site.get(Kind::Node, name.as_str())?);
            Some((name.clone(), node.to_values()))
        };
        self.nodes().iter().filter_map(|node| values(&node.name)).collect()
    }

    /// Names of the nodes that a boot action selects.
    pub fn nodes_of_boot_action(&self, name: &str) -> Option<Vec<String>> {
        let site = self.inner.site();
        Some(nodes_of(&site, &site.get(Kind::BootAction, name)?))
    }
}

impl DesignData {
    pub(super) fn site(&self) -> SiteView<'_> {
        SiteView {
            documents: &self.documents,
            subjects: &self.subjects,
            trees: &self.trees,
            index: &self.index,
            environments: &self.environments,
            environment: self.environment.as_deref(),
            has_broken_environment_file: self.has_broken_environment_file,
            topology: Topology::default(),
        }
        .with_topology()
    }

    /// The design with all findings.
    pub(super) fn checked(self) -> CheckedDesign {
        let mut report = FindingCollector::of_design(&self.files);
        for slot in self.slots.values() {
            if !slot.loaded.findings.is_empty() {
                report.extend(slot.loaded.findings.clone());
            }
        }
        report.extend(self.composed.clone());
        let plan_findings = self.plan_findings.values().flat_map(|findings| findings.iter());
        let mut findings: Vec<&RuleFinding> = self
            .site_findings
            .iter()
            .chain(&*self.fleet_findings)
            .chain(self.node_results.findings())
            .chain(plan_findings)
            .collect();
        // Sorted, so that the order of findings and the listed nodes are deterministic.
        findings.sort_by(|a, b| (&a.finding.code, a.span, &a.node).cmp(&(&b.finding.code, b.span, &b.node)));
        findings.iter().for_each(|finding| finding.add_to(&mut report));
        let findings = report.finish();
        CheckedDesign { design: Design { inner: Arc::new(self) }, findings }
    }
}
