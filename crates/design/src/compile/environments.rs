//! Selection of the environment that a design is compiled for.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_core::names::EnvName;

use super::design::CompileOptions;
use super::load::{LoadedFile, SourceFile};
use crate::documents::Document;
use crate::environment::Environment;
use crate::finding::{Code, Report, quote};
use crate::inherit::lineage::Index;
use crate::kinds::{AnyKind, Kind};
use crate::span::Span;
use muster_core::spelling;

/// Selects the environment file, and returns it with its source.
pub(super) fn select(
    loads: &[(SourceFile, Arc<LoadedFile>)],
    environments: &BTreeSet<EnvName>,
    options: &CompileOptions,
    report: &mut Report<'_>,
) -> Option<(Environment, usize)> {
    let all = loads.iter().flat_map(|(assigned, loaded)| loaded.environments.iter().map(|env| (env, assigned.source)));
    let names = || environments.iter().map(EnvName::as_str).collect::<Vec<_>>().join(", ");
    let wanted = match (&options.env, environments.len()) {
        (_, 0) => return None,
        (Some(wanted), _) if environments.contains(wanted) => wanted.clone(),
        (Some(wanted), _) => {
            let finding =
                Code::UnknownEnvironment.finding(format!("there is no environment {}", quote(wanted.as_str())));
            report.add_to_file(finding.help(format!("existing environments: {}", names())));
            return None;
        }
        (None, 1) => environments.first()?.clone(),
        (None, _) => {
            let finding = Code::UnknownEnvironment.finding("there are several environments, and none was selected");
            report.add_to_file(finding.help(format!("select one with --env: {}", names())));
            return None;
        }
    };
    // The file of a later source replaces the file of an earlier one.
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
            let finding = Code::UnknownRole.finding(message);
            report.add_to_file(finding.help(format!("the environment's roles are {}", roles.join(", "))));
        }
    }
    Some((environment, source))
}

/// Reports two files of one environment.
fn check_files(lower: &Environment, upper: &Environment, is_one_source: bool, report: &mut Report<'_>) {
    let at = |environment: &Environment| environment.roles.first().map(|role| role.written.key.span);
    let (Some(other), Some(span)) = (at(lower), at(upper)) else { return };
    let name = quote(upper.name.as_str());
    let finding = if is_one_source {
        Code::DuplicateDocument
            .finding(format!("there are two files of environment {name} in one source"))
            .help("remove or rename one of them")
    } else {
        Code::OverlaidDocument
            .finding(format!("this file of environment {name} replaces that of an earlier source"))
            .help("an environment's file is taken as a whole: remove one of them")
    };
    report.add_with_note(span, finding, "the other one is here", other);
}

/// Reports a cloud without a map file.
pub(super) fn check_cloud(environment: &Environment, index: &Index, report: &mut Report<'_>) {
    let Some(cloud) = &environment.cloud else { return };
    let clouds = AnyKind::Known(Kind::Cloud);
    if index.find(&clouds, &cloud.name).is_none() {
        let finding = Code::DanglingReference.finding(format!("there is no cloud {}", quote(&cloud.name)));
        let help = match index.nearest(&clouds, &cloud.name) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => format!("add its map file, environments/{}.map.yaml", cloud.name),
        };
        report.add(cloud.span, finding.help(help));
    }
}

/// Reports a node of an environment that has no file.
pub(super) fn check_named(document: &Document, environments: &BTreeSet<EnvName>, report: &mut Report<'_>) {
    let Some((named, span)) = named(document) else { return };
    if !environments.is_empty() && !environments.contains(named) {
        let finding = Code::UnknownEnvironment.finding(format!("there is no environment {}", quote(named)));
        let near = spelling::nearest(named, environments.iter().map(EnvName::as_str));
        report.add(span, finding.help_if(near.map(|near| format!("did you mean {}?", quote(near)))));
    }
}

/// Reports whether a document is a node of another environment. Such documents are ignored: environments may use the
/// same node names.
pub(super) fn is_elsewhere(document: &Document, env: Option<&EnvName>) -> bool {
    named(document).zip(env).is_some_and(|((named, _), env)| named != env.as_str())
}

/// Environment named in the document of a node.
fn named(document: &Document) -> Option<(&str, Span)> {
    let of_node = document.kind == AnyKind::Known(Kind::Node);
    let node = document.body.get("environment").filter(|_| of_node)?;
    Some((node.text()?, node.span))
}
