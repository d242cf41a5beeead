//! Puts a design together from what was loaded.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use muster_core::names::EnvName;

use super::compose::{check_kinds, check_references, check_stack, subjects};
use super::design::{Checked, Inner, Options, Slot};
use super::environments::{check_cloud, check_named, choose, is_elsewhere};
use super::flatten::{Bases, flatten, own, report_idle};
use super::hosts::{hosts, plan};
use super::load::{Assigned, Loaded};
use super::parallel::in_parallel;
use crate::consumer;
use crate::document::Document;
use crate::files::Files;
use crate::finding::Report;
use crate::inherit::lineage::{Subject, trace};
use crate::inherit::record::IdleRemovals;
use crate::rules::{Raw, Results, Site, Topology, check_fleet, check_hosts, check_site};
use crate::yaml::Node;

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
    let lacks_environment = loads.iter().any(|(assigned, loaded)| {
        let is_broken = loaded.environments.is_empty() && loaded.findings.has_errors();
        is_broken && consumer::is_environment_file(assigned.text.name())
    });
    let env = environment.as_ref().map(|environment| &environment.name).or(options.env.as_ref());
    for document in &mut documents {
        let Some(known) = document else { continue };
        check_named(known, &environments, &mut report);
        if is_elsewhere(known, env) {
            *document = None;
        }
    }

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

    let site = Site {
        documents: &documents,
        subjects: &subjects,
        trees: &trees,
        index: &index,
        environments: &environments,
        environment: environment.as_deref(),
        lacks_environment,
        topology: Topology::default(),
    }
    .surveyed();
    let hosts = hosts(&site, &mut report);
    let (nodes, of_plan) = plan(&site, &hosts);
    let of_site: Arc<[Raw]> = check_site(&site).into();
    let of_fleet: Arc<[Raw]> = check_fleet(&site).into();
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
        lacks_environment,
        nodes,
        composed,
        of_site,
        of_fleet,
        of_nodes,
        of_plan,
    };
    inner.checked()
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
