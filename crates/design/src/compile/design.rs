//! The design: everything that was read, and what it comes to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use muster_core::names::{EnvName, Role};

use super::assemble::assemble;
use super::load::{Assigned, Loaded, load};
use super::planned::PlannedNode;
use crate::bundle::Bundle;
use crate::document::{Document, Maker};
use crate::environment::Environment;
use crate::files::Files;
use crate::finding::{Findings, Location, Report};
use crate::inherit::lineage::{Index, Subject};
use crate::kinds::{AnyKind, Kind};
use crate::resolve::boot_actions::nodes_of;
use crate::resolve::{Resolved, resolve};
use crate::rules::{Raw, Results, Site, Topology};
use crate::span::FileId;
use crate::yaml::Node;

/// How a design is to be understood.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The environment that it is made for; without it, the only one that there is.
    pub env: Option<EnvName>,
    /// Other numbers of nodes than the environment file says.
    pub cardinality: BTreeMap<Role, u32>,
}

/// A design, and everything that is to be said about it.
#[derive(Clone, Debug)]
pub struct Checked {
    /// With errors among the findings it is what could be made of it, for showing; it must not be acted on.
    pub design: Design,
    pub findings: Findings,
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Design {
    pub(super) inner: Arc<Inner>,
}

#[derive(Clone, Debug)]
pub(super) struct Inner {
    pub options: Options,
    /// The names of the sources; a later one wins.
    pub sources: Vec<String>,
    pub files: Files,
    /// The files by source and name.
    pub slots: BTreeMap<(usize, String), Slot>,
    /// Documents keep their number; one that is gone leaves a gap.
    pub documents: Vec<Option<Document>>,
    pub subjects: Vec<Subject>,
    pub index: Index,
    /// The effective value of each subject.
    pub trees: Vec<Option<Node>>,
    /// The environments that there are files of.
    pub environments: Arc<BTreeSet<EnvName>>,
    pub environment: Option<Arc<Environment>>,
    /// There is an environment file that could not be understood.
    pub lacks_environment: bool,
    pub nodes: Arc<[Arc<PlannedNode>]>,
    /// What was found when the documents were put together.
    pub composed: Findings,
    /// What was found by looking at everything but the nodes, and at all nodes together.
    pub of_site: Arc<[Raw]>,
    pub of_fleet: Arc<[Raw]>,
    pub of_nodes: Results,
    /// What was found when nodes were made of documents, by subject.
    pub of_plan: HashMap<usize, Arc<[Raw]>>,
}

/// A file and what it holds.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub file: FileId,
    pub loaded: Arc<Loaded>,
    /// The numbers of its documents.
    pub documents: Vec<usize>,
}

/// One document, as it is written.
#[derive(Clone, Debug)]
pub struct DocumentRef<'d> {
    pub kind: &'d AnyKind,
    pub name: &'d str,
    pub source: &'d str,
    /// Where its name stands.
    pub place: Location,
    /// The spec, with the labels among its keys.
    pub body: &'d Node,
    pub extends: Vec<&'d str>,
    pub maker: Maker,
}

impl Design {
    /// Makes a design of everything that the sources hold, in their order: a later one wins. Whatever is in them, this
    /// ends, and what is wrong becomes a finding.
    pub fn compile(bundles: Vec<Bundle>, options: &Options) -> Checked {
        let mut files = Files::default();
        let (mut sources, mut assigned) = (Vec::new(), Vec::new());
        for (source, bundle) in bundles.into_iter().enumerate() {
            sources.push(bundle.name);
            assigned.extend(bundle.files.into_iter().map(|file| Assigned { text: files.add(file), source }));
        }
        let loaded = load(&assigned);
        let loads = assigned.into_iter().zip(loaded.into_iter().map(Arc::new)).collect();
        assemble(files, sources, loads, options.clone())
    }

    pub fn env(&self) -> Option<&EnvName> {
        let of_file = self.inner.environment.as_ref().map(|environment| &environment.name);
        of_file.or(self.inner.options.env.as_ref())
    }

    /// The environments that there are files of.
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

    /// The nodes of the environment, in the order to show and to start them in.
    pub fn nodes(&self) -> &[Arc<PlannedNode>] {
        &self.inner.nodes
    }

    /// All documents as they are written, generated ones not included.
    pub fn documents(&self) -> impl Iterator<Item = DocumentRef<'_>> {
        let written = self.inner.documents.iter().flatten();
        let written = written.filter(|document| document.maker.is_author());
        written.map(|document| DocumentRef {
            kind: &document.kind,
            name: &document.name,
            source: &self.inner.sources[document.source],
            place: self.inner.files.place(document.name_at),
            body: &document.body,
            extends: document.extends.iter().flatten().map(|parent| &*parent.name).collect(),
            maker: document.maker,
        })
    }

    /// Everything that there is, by kind and name, with its effective value.
    pub fn effective_documents(&self) -> impl Iterator<Item = (&AnyKind, &str, &Node)> {
        let all = self.inner.subjects.iter().zip(&self.inner.trees);
        all.filter_map(|(subject, tree)| Some((&subject.kind, &*subject.name, tree.as_ref()?)))
    }

    /// The effective value of a document.
    pub fn effective(&self, kind: &str, name: &str) -> Option<&Node> {
        let subject = self.inner.index.find(&AnyKind::new(kind), name)?;
        self.inner.trees.get(subject)?.as_ref()
    }

    /// What follows from the values of a node.
    pub fn resolved(&self, node: &str) -> Option<Resolved> {
        let site = self.inner.site();
        Some(resolve(&site, &site.get(Kind::Node, node)?))
    }

    /// The nodes of the environment that a boot action is for, by name.
    pub fn nodes_of_boot_action(&self, name: &str) -> Option<Vec<String>> {
        let site = self.inner.site();
        Some(nodes_of(&site, &site.get(Kind::BootAction, name)?))
    }
}

impl Inner {
    pub(super) fn site(&self) -> Site<'_> {
        Site {
            documents: &self.documents,
            subjects: &self.subjects,
            trees: &self.trees,
            index: &self.index,
            environments: &self.environments,
            environment: self.environment.as_deref(),
            lacks_environment: self.lacks_environment,
            topology: Topology::default(),
        }
        .surveyed()
    }

    /// The design with everything that was found.
    pub(super) fn checked(self) -> Checked {
        let mut report = Report::of_design(&self.files);
        for slot in self.slots.values() {
            if !slot.loaded.findings.is_empty() {
                report.extend(slot.loaded.findings.clone());
            }
        }
        report.extend(self.composed.clone());
        let of_plan = self.of_plan.values().flat_map(|raws| raws.iter().cloned());
        let mut raws: Vec<Raw> =
            self.of_site.iter().chain(&*self.of_fleet).cloned().chain(self.of_nodes.raws()).chain(of_plan).collect();
        // Findings come in one order, whoever found them first; and the first three of many nodes are the first by name.
        raws.sort_by(|a, b| (&a.finding.code, a.span, &a.node).cmp(&(&b.finding.code, b.span, &b.node)));
        raws.iter().for_each(|raw| raw.tell(&mut report));
        let findings = report.finish();
        Checked { design: Design { inner: Arc::new(self) }, findings }
    }
}
