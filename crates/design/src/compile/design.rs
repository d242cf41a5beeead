//! The design: everything that was read, and what it comes to.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use muster_core::names::{EnvName, Role};
use thiserror::Error;

use super::compose::{check_kinds, check_references, check_stack, subjects};
use super::flatten::{Bases, flatten, own, report_idle, untouched};
use super::load::{Assigned, Loaded, load};
use super::parallel::in_parallel;
use super::planned::{self, PlannedNode};
use crate::bundle::Bundle;
use crate::consumer;
use crate::document::{Document, Maker};
use crate::environment::Environment;
use crate::files::Files;
use crate::finding::{Code, Finding, Findings, Place, Report, quote};
use crate::inherit::lineage::{Index, Subject, trace};
use crate::inherit::merge::{as_it_is, lay};
use crate::inherit::record::IdleRemovals;
use crate::inherit::why::{Event, Step, Trail, find};
use crate::inherit::{Path, Why};
use crate::kinds::{AnyKind, Kind};
use crate::resolve::boot_actions::nodes_of;
use crate::resolve::{Resolved, resolve};
use crate::rules::{Out, Raw, Results, Site, Topology, check_hosts, check_site};
use crate::span::FileId;
use crate::spelling;
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
    pub nodes: Arc<[Arc<PlannedNode>]>,
    /// What was found when the documents were put together.
    pub composed: Findings,
    pub of_site: Arc<[Raw]>,
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
    pub place: Place,
    /// The spec, with the labels among its keys.
    pub body: &'d Node,
    pub extends: Vec<&'d str>,
    pub maker: Maker,
}

/// Why there is no answer to "who said so?".
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WhyError {
    #[error("there is no {kind} {name:?}{}", meant(.near))]
    NoDocument { kind: String, name: String, near: Option<String> },
    /// Nothing ever was there; these are the keys at the last level that is.
    #[error("{kind} {name:?} has no \"{path}\"{}", there(.upto, .keys))]
    NoValue { kind: String, name: String, path: String, upto: String, keys: Vec<String> },
}

fn meant(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!(": did you mean {near:?}?")).unwrap_or_default()
}

fn there(upto: &str, keys: &[String]) -> String {
    let at = if upto.is_empty() { "there is".to_owned() } else { format!("at \"{upto}\" there is") };
    if keys.is_empty() { format!(": {at} nothing below") } else { format!(": {at} {}", keys.join(", ")) }
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

    /// A value of a document, and every layer that had to do with it.
    pub fn why(&self, kind: &str, name: &str, path: &Path) -> Result<Why, WhyError> {
        let inner = &*self.inner;
        let kind = AnyKind::new(kind);
        let Some(at) = inner.index.find(&kind, name) else {
            let near = inner.index.nearest(&kind, name).map(str::to_owned);
            return Err(WhyError::NoDocument { kind: kind.to_string(), name: name.to_owned(), near });
        };
        let ty = kind.body();
        let mut trail = Trail::new(path, ty);
        let lineage = inner.subjects[at].lineage.iter().copied().chain([at]);
        let layers: Vec<usize> = lineage.flat_map(|subject| inner.subjects[subject].stack.iter().copied()).collect();
        let mut value: Option<Node> = None;
        for &layer in &layers {
            let Some(document) = &inner.documents[layer] else { continue };
            trail.begin(layer, value.as_ref());
            value = match untouched(&inner.subjects[at], &inner.documents) {
                Some(_) => Some(as_it_is(&document.body, &mut trail)),
                None => lay(value.as_ref(), &document.body, &ty, &mut trail),
            };
        }
        let found = value.as_ref().and_then(|value| find(value, ty, &path.0));
        if found.is_none() && trail.events.is_empty() {
            return Err(self.no_value(&kind, name, path, value.as_ref()));
        }
        let steps = trail.events.into_iter().filter_map(|event| self.step(event)).collect();
        Ok(Why { value: found, steps })
    }

    fn step(&self, event: Event) -> Option<Step> {
        let document = self.inner.documents[event.layer].as_ref()?;
        Some(Step {
            source: self.inner.sources[document.source].clone(),
            kind: document.kind.to_string(),
            name: document.name.to_string(),
            place: self.inner.files.place(event.span),
            path: event.path,
            action: event.action,
        })
    }

    fn no_value(&self, kind: &AnyKind, name: &str, path: &Path, value: Option<&Node>) -> WhyError {
        let there = |upto: usize| value.and_then(|value| find(value, kind.body(), &path.0[..upto]));
        let (upto, last) = (0..path.0.len()).rev().find_map(|upto| Some((upto, there(upto)?))).unzip();
        let upto = Path(path.0[..upto.unwrap_or(0)].to_vec());
        let ty = upto.0.iter().fold(kind.body(), |ty, step| ty.below(step).unwrap_or(crate::types::Type::Any));
        let keys = last.map(|last| crate::inherit::why::steps_below(&last, ty)).unwrap_or_default();
        WhyError::NoValue {
            kind: kind.to_string(),
            name: name.to_owned(),
            path: path.to_string(),
            upto: upto.to_string(),
            keys,
        }
    }
}

/// Puts together what was loaded.
pub(super) fn assemble(
    files: Files,
    sources: Vec<String>,
    loads: Vec<(Assigned, Arc<Loaded>)>,
    options: Options,
) -> Checked {
    let mut report = Report::of_design(&files);
    let mut documents: Vec<Option<Document>> = Vec::new();
    let mut slots = BTreeMap::new();
    for (assigned, loaded) in &loads {
        let numbers = (documents.len()..).take(loaded.documents.len()).collect();
        documents.extend(loaded.documents.iter().cloned().map(Some));
        let slot = Slot { file: assigned.text.id(), loaded: loaded.clone(), documents: numbers };
        slots.insert((assigned.source, assigned.text.name().to_owned()), slot);
    }
    let environments: BTreeSet<EnvName> =
        loads.iter().flat_map(|(_, loaded)| &loaded.environments).map(|environment| environment.name.clone()).collect();
    let environment = choose(&loads, &environments, &options, &mut report);
    if let Some((environment, source)) = &environment {
        documents.extend(consumer::generate(environment, *source).map(Some));
    }
    let environment = environment.map(|(environment, _)| Arc::new(environment));

    let (mut subjects, index) = subjects(&documents);
    let stacks = |subject: &&Subject| {
        subject.stack.len() > 1
            || subject.stack.iter().any(|at| documents[*at].as_ref().is_some_and(|d| d.overlay.is_some()))
    };
    for subject in subjects.iter().filter(stacks) {
        check_stack(subject, &documents, &sources, &mut report);
    }
    if let Some(environment) = &environment {
        check_cloud(environment, &index, &mut report);
    }
    check_kinds(&documents, &index, &mut report);
    check_references(loads.iter().flat_map(|(_, loaded)| &loaded.references), &index, &mut report);
    trace(&mut subjects, &index, &documents, &mut report);
    let trees = flatten_all(&subjects, &documents, &mut report);

    let env = environment.as_ref().map(|environment| &environment.name).or(options.env.as_ref());
    let site = Site {
        documents: &documents,
        subjects: &subjects,
        trees: &trees,
        index: &index,
        environments: &environments,
        environment: environment.as_deref(),
        env,
        topology: Topology::default(),
    }
    .surveyed();
    let hosts = hosts(&site, &mut report);
    let (nodes, of_plan) = plan(&site, &hosts);
    let of_site: Arc<[Raw]> = check_site(&site).into();
    let mut of_nodes = Results::default();
    check_hosts(&site, &hosts, &mut of_nodes);

    let composed = report.finish();
    let inner = Inner {
        options,
        sources,
        files,
        slots,
        documents,
        subjects,
        index,
        trees,
        environments: Arc::new(environments),
        environment,
        nodes,
        composed,
        of_site,
        of_nodes,
        of_plan,
    };
    inner.checked()
}

impl Inner {
    pub(super) fn site(&self) -> Site<'_> {
        let env = self.environment.as_ref().map(|environment| &environment.name);
        Site {
            documents: &self.documents,
            subjects: &self.subjects,
            trees: &self.trees,
            index: &self.index,
            environments: &self.environments,
            environment: self.environment.as_deref(),
            env: env.or(self.options.env.as_ref()),
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
        let mut raws: Vec<Raw> = self.of_site.iter().cloned().chain(self.of_nodes.raws()).chain(of_plan).collect();
        // Findings come in one order, whoever found them first; and the first three of many nodes are the first by name.
        raws.sort_by(|a, b| (a.finding.code, a.span, &a.node).cmp(&(b.finding.code, b.span, &b.node)));
        raws.iter().for_each(|raw| raw.tell(&mut report));
        let findings = report.finish();
        Checked { design: Design { inner: Arc::new(self) }, findings }
    }
}

/// The environment file that the design is made for, and its source.
fn choose(
    loads: &[(Assigned, Arc<Loaded>)],
    environments: &BTreeSet<EnvName>,
    options: &Options,
    report: &mut Report<'_>,
) -> Option<(Environment, usize)> {
    let all = loads.iter().flat_map(|(assigned, loaded)| loaded.environments.iter().map(|env| (env, assigned.source)));
    let names = || environments.iter().map(EnvName::as_str).collect::<Vec<_>>().join(", ");
    let wanted = match (&options.env, environments.len()) {
        (_, 0) => return None,
        (Some(wanted), _) if environments.contains(wanted) => wanted.clone(),
        (Some(wanted), _) => {
            let finding =
                Finding::new(Code::UnknownEnvironment, format!("there is no environment {}", quote(wanted.as_str())));
            report.add_to_file(finding.help(format!("there is: {}", names())));
            return None;
        }
        (None, 1) => environments.first()?.clone(),
        (None, _) => {
            let finding = Finding::new(Code::UnknownEnvironment, "there are several environments, and none was chosen");
            report.add_to_file(finding.help(format!("say which with --env: {}", names())));
            return None;
        }
    };
    // A later source's file stands in the place of an earlier one's.
    let files: Vec<(&Environment, usize)> = all.filter(|(environment, _)| environment.name == wanted).collect();
    for pair in files.windows(2) {
        if let [(lower, below), (upper, above)] = pair {
            check_files(lower, upper, below == above, report);
        }
    }
    let (environment, source) = *files.last()?;
    let mut environment = environment.clone();
    for (role, cardinality) in &options.cardinality {
        if !environment.set_cardinality(role, *cardinality) {
            let roles: Vec<&str> = environment.roles.iter().map(|role| role.role.as_str()).collect();
            let message = format!("role {} cannot be given {cardinality} nodes", quote(role.as_str()));
            let finding = Finding::new(Code::UnknownRole, message);
            report.add_to_file(finding.help(format!("the environment's roles are {}", roles.join(", "))));
        }
    }
    Some((environment, source))
}

/// Says what two files of one environment mean.
fn check_files(lower: &Environment, upper: &Environment, is_one_source: bool, report: &mut Report<'_>) {
    let at = |environment: &Environment| environment.roles.first().map(|role| role.written.key.span);
    let (Some(other), Some(span)) = (at(lower), at(upper)) else { return };
    let name = quote(upper.name.as_str());
    let finding = if is_one_source {
        Finding::new(Code::DuplicateDocument, format!("there are two files of environment {name} in one source"))
            .help("remove or rename one of them")
    } else {
        Finding::new(
            Code::OverlaidDocument,
            format!("this file of environment {name} replaces that of an earlier source"),
        )
        .help("an environment's file is taken as a whole: remove one of them")
    };
    report.add_with_note(span, finding, "the other one is here", other);
}

/// The map file of the environment's cloud must be there.
fn check_cloud(environment: &Environment, index: &Index, report: &mut Report<'_>) {
    let Some(cloud) = &environment.cloud else { return };
    let clouds = AnyKind::Known(Kind::Cloud);
    if index.find(&clouds, &cloud.name).is_none() {
        let finding = Finding::new(Code::DanglingReference, format!("there is no cloud {}", quote(&cloud.name)));
        let help = match index.nearest(&clouds, &cloud.name) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => format!("add its map file, environments/{}.map.yaml", cloud.name),
        };
        report.add(cloud.span, finding.help(help));
    }
}

fn flatten_all(subjects: &[Subject], documents: &[Option<Document>], report: &mut Report<'_>) -> Vec<Option<Node>> {
    let mut bases = Bases::default();
    let lineages: HashSet<&[usize]> = subjects.iter().map(|subject| &*subject.lineage).collect();
    for lineage in lineages {
        bases.get(lineage, subjects, documents);
    }
    let bases = &bases;
    let all = in_parallel(subjects, |part| {
        let flat = |subject: &Subject| {
            let mut idle = IdleRemovals::default();
            let value = own(bases.known(&subject.lineage), subject, documents, &mut idle);
            (flatten(value, subject, documents), idle)
        };
        part.iter().map(flat).collect::<Vec<_>>()
    });
    let mut trees = Vec::with_capacity(subjects.len());
    for (subject, (tree, mut idle)) in subjects.iter().zip(all.into_iter().flatten()) {
        report_idle(subject, &mut idle, report);
        trees.push(tree);
    }
    trees
}

/// The nodes that belong to the environment, by subject.
fn hosts(site: &Site<'_>, report: &mut Report<'_>) -> Vec<usize> {
    let nodes = AnyKind::Known(Kind::Node);
    let mut hosts: Vec<usize> = site.index.of_kind(&nodes).collect();
    hosts.sort_unstable();
    hosts.retain(|&host| is_host(site, host, report));
    hosts
}

/// Whether a node belongs to the environment; what is not clear about that is reported.
pub(super) fn is_host(site: &Site<'_>, host: usize, report: &mut Report<'_>) -> bool {
    let Some(thing) = site.thing(host) else { return false };
    let environments = site.environments;
    match thing.get("environment").and_then(Node::text) {
        Some(named) if !environments.is_empty() && !environments.contains(named) => {
            let span = thing.get("environment").map_or(thing.at, |node| node.span);
            let finding = Finding::new(Code::UnknownEnvironment, format!("there is no environment {}", quote(named)));
            let near = spelling::nearest(named, environments.iter().map(EnvName::as_str));
            report.add(span, finding.help_if(near.map(|near| format!("did you mean {}?", quote(near)))));
        }
        None if environments.len() > 1 && !is_generated(site, host) && site.environment.is_some() => {
            let message = format!("node {} does not say which environment it belongs to", quote(thing.name));
            let finding = Finding::new(Code::WhichEnvironment, message);
            report.add(thing.at, finding.help("there are several: add \"environment: NAME\" to its spec"));
        }
        Some(_) | None => {}
    }
    planned::belongs(thing.tree, site.env)
}

fn is_generated(site: &Site<'_>, subject: usize) -> bool {
    let stack = &site.subjects[subject].stack;
    stack.iter().any(|at| site.documents[*at].as_ref().is_some_and(|document| document.maker == Maker::Environment))
}

type Planned = (Arc<[Arc<PlannedNode>]>, HashMap<usize, Arc<[Raw]>>);

fn plan(site: &Site<'_>, hosts: &[usize]) -> Planned {
    let parts = in_parallel(hosts, |hosts| hosts.iter().map(|&host| plan_one(site, host)).collect::<Vec<_>>());
    let (mut nodes, mut found) = (Vec::with_capacity(hosts.len()), HashMap::new());
    for (&host, (node, raws)) in hosts.iter().zip(parts.into_iter().flatten()) {
        nodes.extend(node.map(Arc::new));
        if !raws.is_empty() {
            found.insert(host, raws.into());
        }
    }
    (planned::in_order(nodes, site.environment), found)
}

pub(super) fn plan_one(site: &Site<'_>, host: usize) -> (Option<PlannedNode>, Vec<Raw>) {
    let mut out = Out::of_node(site.subjects[host].name.clone());
    let node = planned::plan(site, host, &mut out);
    (node, out.into_raws())
}
