//! `muster design …`: checks and queries designs in local directories, without a server.

pub(super) mod check;
pub(super) mod diff;
mod document;
pub(super) mod explain;
pub(super) mod schema;
pub(super) mod show;
pub(super) mod why;

use std::collections::BTreeMap;

use muster_core::names::{EnvName, Role};
use muster_design::finding::{Code, Finding, Findings};
use muster_design::source::{DesignSource, SourceDir, stray_documents};
use muster_design::{CheckedDesign, CompileOptions, Design};

use crate::args::design::NamedDir;
use crate::failure::{Exit, Failure};
use crate::output::Notes;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Check(check::Args),
    Show(show::Args),
    Why(why::Args),
    Diff(diff::Args),
    Schema(schema::Args),
    Explain(explain::Args),
}

/// The files of a design. They can be compiled for several environments.
#[derive(Debug)]
pub(crate) struct LoadedDesign {
    pub(crate) bundles: Vec<DesignSource>,
    /// Files that could not be read.
    pub(crate) read_errors: Findings,
}

pub(crate) fn read_dirs(dirs: &[NamedDir]) -> LoadedDesign {
    let mut read_errors: Vec<Finding> = Vec::new();
    let bundles = dirs.iter().map(|dir| {
        let (bundle, findings) = SourceDir { name: dir.name.clone(), path: dir.path.clone() }.read();
        read_errors.extend(findings);
        bundle
    });
    LoadedDesign { bundles: bundles.collect(), read_errors: read_errors.into() }
}

/// Warns about documents of a project that are not read.
pub(crate) fn warn_of_stray_documents(dirs: &[NamedDir], notes: &mut Notes) {
    for path in dirs.iter().flat_map(|dir| stray_documents(&dir.path)) {
        notes.warning(format_args!(
            "{} is not read: the documents of a project are in design/ and environments/, or in the directories that \
             muster.yaml lists",
            path.display()
        ));
    }
}

impl LoadedDesign {
    /// Compiles the design for an environment; for none, for the only one.
    pub(crate) fn compile(&self, env: Option<&EnvName>, cardinality: BTreeMap<Role, u32>) -> CheckedDesign {
        Design::compile(self.bundles.clone(), &CompileOptions { env: env.cloned(), cardinality })
    }

    /// Compiles the design for the given environment, or for each one. A design without environments is compiled once.
    pub(crate) fn compile_each(&self, only: Option<&EnvName>) -> Vec<CheckedDesign> {
        let first = self.compile(only, BTreeMap::new());
        let all: Vec<EnvName> = first.design.environments().cloned().collect();
        if only.is_some() || all.len() < 2 {
            return vec![first];
        }
        all.iter().map(|env| self.compile(Some(env), BTreeMap::new())).collect()
    }
}

/// Compiles the design of a query, prints its findings, and returns the exit code for them. A design with errors can be
/// queried, which helps to find their causes.
fn load_design(dirs: &[NamedDir], env: Option<&EnvName>, notes: &mut Notes) -> Result<(Design, Exit), Failure> {
    let loaded = read_dirs(dirs);
    let checked = loaded.compile(env, BTreeMap::new());
    let environments: Vec<&str> = checked.design.environments().map(EnvName::as_str).collect();
    if env.is_none() && environments.len() > 1 {
        let failure = Failure::usage(format!("the design has several environments: {}", environments.join(", ")));
        return Err(failure.hint("choose one with --env or MUSTER_ENV"));
    }
    let findings: Findings = loaded.read_errors.into_iter().chain(checked.findings).collect::<Vec<_>>().into();
    notes.findings(&findings);
    if findings.iter().any(|finding| finding.code == Code::SecretAsText) {
        let failure =
            Failure::failed(anyhow::anyhow!("values are not printed: the design contains a secret as plain text"));
        return Err(failure.hint("replace it by a reference, {secret: NAME}, and try again"));
    }
    Ok((checked.design, Exit::yes_if(!findings.has_errors())))
}
