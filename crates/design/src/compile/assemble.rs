//! Last step of compilation: composes the loaded documents, runs all rules, and builds the `Design`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::names::EnvName;

use super::compose::{
    Bases, check_kinds, check_references, check_stack, flatten, merge_own_layers, report_unused, subjects,
};
use super::design::{CheckedDesign, CompileOptions, DesignData, FileSlot};
use super::in_parallel;
use super::load::{DesignFile, LoadedFile};
use super::nodes::{check_cloud, check_named, environment_nodes, is_elsewhere, plan_nodes, select};
use crate::FastSet;
use crate::documents::{self, Document};
use crate::environment::Environment;
use crate::file_text::Files;
use crate::finding::FindingCollector;
use crate::inherit::lineage::{Subject, SubjectIndex, trace};
use crate::inherit::merge::UnusedRemovals;
use crate::rules::{NodeResults, RuleFinding, SiteView, Topology, check_fleet, check_nodes, check_site};
use crate::yaml::YamlNode;

type Loads = [(DesignFile, Arc<LoadedFile>)];

/// Builds a design and runs all rules.
pub(super) fn assemble(
    files: Files,
    sources: Vec<String>,
    loads: Vec<(DesignFile, Arc<LoadedFile>)>,
    options: CompileOptions,
) -> CheckedDesign {
    let mut report = FindingCollector::of_design(&files);
    let (mut documents, slots) = collect(&loads);
    let environments: BTreeSet<EnvName> =
        loads.iter().flat_map(|(_, loaded)| &loaded.environments).map(|environment| environment.name.clone()).collect();
    let environment = select_environment(&loads, &environments, &options, &mut documents, &mut report);
    let has_broken_environment_file = has_broken_environment_file(&loads);

    let (mut subjects, index) = subjects(&documents);
    check_composition(&subjects, &documents, &sources, &mut report);
    if let Some(environment) = &environment {
        check_cloud(environment, &index, &mut report);
    }
    check_kinds(&documents, &index, &mut report);
    check_references(loads.iter().flat_map(|(_, loaded)| &loaded.references), &index, &mut report);
    let trees = effective_values(&mut subjects, &index, &documents, &mut report);

    let site = SiteView {
        documents: &documents,
        subjects: &subjects,
        trees: &trees,
        index: &index,
        environments: &environments,
        environment: environment.as_deref(),
        has_broken_environment_file,
        topology: Topology::default(),
    }
    .with_topology();
    let hosts = environment_nodes(&site, &mut report);
    let (nodes, plan_findings) = plan_nodes(&site, &hosts);
    let site_findings: Arc<[RuleFinding]> = check_site(&site).into();
    let fleet_findings: Arc<[RuleFinding]> = check_fleet(&site).into();
    let mut node_results = NodeResults::default();
    check_nodes(&site, &hosts, &mut node_results);

    let composed = report.finish();
    let inner = DesignData {
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
        has_broken_environment_file,
        nodes,
        composed,
        site_findings,
        fleet_findings,
        node_results,
        plan_findings,
    };
    inner.checked()
}

type Slots = BTreeMap<(usize, String), FileSlot>;

/// Numbers the documents of all files.
fn collect(loads: &Loads) -> (Vec<Option<Arc<Document>>>, Slots) {
    let (mut documents, mut slots) = (Vec::new(), BTreeMap::new());
    for (file, loaded) in loads {
        let numbers = (documents.len()..).take(loaded.documents.len()).collect();
        documents.extend(loaded.documents.iter().cloned().map(Some));
        let slot = FileSlot { file: file.text.id(), loaded: loaded.clone(), documents: numbers };
        slots.insert((file.source, file.text.name().to_owned()), slot);
    }
    (documents, slots)
}

/// Selects the environment, adds the nodes that its file generates, and drops the documents of other environments.
fn select_environment(
    loads: &Loads,
    environments: &BTreeSet<EnvName>,
    options: &CompileOptions,
    documents: &mut Vec<Option<Arc<Document>>>,
    report: &mut FindingCollector<'_>,
) -> Option<Arc<Environment>> {
    let selected = select(loads, environments, options, report);
    if let Some((environment, source)) = &selected {
        documents.extend(documents::generate(environment, *source).map(|document| Some(Arc::new(document))));
    }
    let environment = selected.map(|(environment, _)| Arc::new(environment));
    let env = environment.as_ref().map(|environment| &environment.name).or(options.env.as_ref());
    for slot in documents {
        let Some(document) = slot else { continue };
        check_named(document, environments, report);
        if is_elsewhere(document, env) {
            *slot = None;
        }
    }
    environment
}

/// Reports whether an environment file could not be parsed.
fn has_broken_environment_file(loads: &Loads) -> bool {
    loads.iter().any(|(file, loaded)| {
        let is_broken = loaded.environments.is_empty() && loaded.findings.has_errors();
        is_broken && documents::is_environment_file(file.text.name())
    })
}

/// Checks the subjects that have several documents, or an overlay.
fn check_composition(
    subjects: &[Subject],
    documents: &[Option<Arc<Document>>],
    sources: &[String],
    report: &mut FindingCollector<'_>,
) {
    let is_overlay = |at: &usize| documents[*at].as_ref().is_some_and(|document| document.overlay.is_some());
    let has_layers = |subject: &&Subject| subject.stack.len() > 1 || subject.stack.iter().any(is_overlay);
    for subject in subjects.iter().filter(has_layers) {
        check_stack(subject, documents, sources, report);
    }
}

/// Computes the lineage and the effective value of each subject.
fn effective_values(
    subjects: &mut [Subject],
    index: &SubjectIndex,
    documents: &[Option<Arc<Document>>],
    report: &mut FindingCollector<'_>,
) -> Vec<Option<YamlNode>> {
    trace(subjects, index, documents, report);
    flatten_all(subjects, documents, report)
}

fn flatten_all(
    subjects: &[Subject],
    documents: &[Option<Arc<Document>>],
    report: &mut FindingCollector<'_>,
) -> Vec<Option<YamlNode>> {
    let mut bases = Bases::default();
    let lineages: FastSet<&[usize]> = subjects.iter().map(|subject| &*subject.lineage).collect();
    for lineage in lineages {
        bases.get(lineage, subjects, documents);
    }
    let bases = &bases;
    let all = in_parallel(subjects, |part| {
        let flat = |subject: &Subject| {
            let mut unused = UnusedRemovals::default();
            let value = merge_own_layers(bases.cached(&subject.lineage), subject, documents, &mut unused);
            (flatten(value, subject, documents), unused)
        };
        part.iter().map(flat).collect::<Vec<_>>()
    });
    let mut trees = Vec::with_capacity(subjects.len());
    for (subject, (tree, mut unused)) in subjects.iter().zip(all.into_iter().flatten()) {
        report_unused(subject, &mut unused, report);
        trees.push(tree);
    }
    trees
}
