//! Designs out of directories.

use std::collections::BTreeMap;

use muster_core::names::{EnvName, Role};
use muster_design::bundle::{Bundle, Directory, Origin};
use muster_design::file_text::FileText;
use muster_design::finding::{Code, Finding, Findings};
use muster_design::{Checked, Design, Options};

use crate::design_args::NamedDir;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Notes;

/// What directories hold. A design is evaluated for one environment, and the same files may be evaluated for several.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) bundles: Vec<Bundle>,
    /// What could not be read.
    pub(crate) unread: Findings,
}

pub(crate) fn read(dirs: &[NamedDir]) -> Loaded {
    let mut unread: Vec<Finding> = Vec::new();
    let bundles = dirs.iter().map(|dir| {
        let (bundle, findings) = Directory { name: dir.name.clone(), path: dir.path.clone() }.read();
        unread.extend(findings);
        bundle
    });
    Loaded { bundles: bundles.collect(), unread: unread.into() }
}

impl Loaded {
    /// Evaluates the design for one environment; for none: for the only one that there is.
    pub(crate) fn compile(&self, env: Option<&EnvName>, cardinality: BTreeMap<Role, u32>) -> Checked {
        let copy = |bundle: &Bundle| Bundle {
            name: bundle.name.clone(),
            files: bundle.files.iter().map(|file| FileText::new(file.name(), file.text())).collect(),
        };
        let bundles = self.bundles.iter().map(copy).collect();
        Design::compile(bundles, &Options { env: env.cloned(), cardinality })
    }

    /// Evaluates the design for the environment that is named, or for each that there is; a design without any is
    /// evaluated once.
    pub(crate) fn compile_each(&self, only: Option<&EnvName>) -> Vec<Checked> {
        let first = self.compile(only, BTreeMap::new());
        let all: Vec<EnvName> = first.design.environments().cloned().collect();
        if only.is_some() || all.len() < 2 {
            return vec![first];
        }
        all.iter().map(|env| self.compile(Some(env), BTreeMap::new())).collect()
    }
}

/// The one design that is meant, and whether it holds together. What was found is noted: one that has errors can be asked
/// all the same, which is how they are understood.
pub(super) fn design(dirs: &[NamedDir], env: Option<&EnvName>, notes: &mut Notes) -> Result<(Design, Exit), Failure> {
    let loaded = read(dirs);
    let checked = loaded.compile(env, BTreeMap::new());
    let environments: Vec<&str> = checked.design.environments().map(EnvName::as_str).collect();
    if env.is_none() && environments.len() > 1 {
        let failure = Failure::usage(format!("there are several environments: {}", environments.join(", ")));
        return Err(failure.hint("choose one with --env, or with MUSTER_ENV"));
    }
    let findings: Findings = loaded.unread.into_iter().chain(checked.findings).collect::<Vec<_>>().into();
    notes.findings(&findings);
    if findings.iter().any(|finding| finding.code == Code::SecretAsText) {
        let failure =
            Failure::failed(anyhow::anyhow!("no value is shown: a secret is written as text, and could be seen"));
        return Err(failure.hint("name the secret in its place, {secret: NAME}, and ask again"));
    }
    Ok((checked.design, Exit::yes_if(!findings.has_errors())))
}
