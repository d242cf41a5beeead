//! Compares a `Puppetfile` with `repos.yaml`: a release never lacks a module that its control repository declares.

use super::assemble::{AssembleError, read};
use super::repos_files::{FORGE_PREFIX, Repos};
use crate::puppetfile::{ModuleOrigin, PUPPETFILE, Puppetfile, PuppetfileModule};
use crate::tree::ReleaseTree;

/// Fails if a `Puppetfile` names modules that are not in the tree, in a release without `repos.yaml`.
pub(super) fn require_modules(tree: &ReleaseTree) -> Result<(), AssembleError> {
    let Some(file) = tree.file(PUPPETFILE) else { return Ok(()) };
    let puppetfile = Puppetfile::parse(&read(&file.source)?)?;
    let modules: Vec<String> = missing(&puppetfile, tree).map(|module| module.name.clone()).collect();
    if modules.is_empty() { Ok(()) } else { Err(AssembleError::NotImported { modules }) }
}

/// Fails if `repos.yaml` is older than the `Puppetfile`. One with Ruby code is not compared.
pub(super) fn require_current(tree: &ReleaseTree, repos: &Repos) -> Result<(), AssembleError> {
    let Some(file) = tree.file(PUPPETFILE) else { return Ok(()) };
    let Ok(puppetfile) = Puppetfile::parse(&read(&file.source)?) else { return Ok(()) };
    for module in missing(&puppetfile, tree) {
        let listed = repos.repos.get(&module.name);
        let is_same = listed.is_some_and(|repo| {
            repo.dest == module.dest
                && match &module.origin {
                    ModuleOrigin::Git { source, reference } => repo.source == *source && repo.reference == *reference,
                    ModuleOrigin::Forge { module, version } => {
                        repo.forge_module() == Some(module) && version.as_ref().is_none_or(|it| *it == repo.reference)
                    }
                    ModuleOrigin::Local => true,
                }
        });
        if !is_same {
            return Err(AssembleError::Outdated {
                line: module.line,
                name: module.name.clone(),
                declared: format!("{} in {:?}", describe(&module.origin), module.dest),
                listed: listed.map(|repo| format!("{} {} in {:?}", repo.source, repo.reference, repo.dest)),
            });
        }
    }
    Ok(())
}

/// Modules that have to be fetched.
fn missing<'p>(puppetfile: &'p Puppetfile, tree: &ReleaseTree) -> impl Iterator<Item = &'p PuppetfileModule> {
    let fetched = puppetfile.modules.iter().filter(|module| module.origin != ModuleOrigin::Local);
    fetched.filter(|module| tree.occupied_by(&module.dest).is_none())
}

fn describe(origin: &ModuleOrigin) -> String {
    match origin {
        ModuleOrigin::Git { source, reference } => format!("{source} {reference}"),
        ModuleOrigin::Forge { module, version } => {
            format!("{FORGE_PREFIX}{module} {}", version.as_deref().unwrap_or("latest"))
        }
        ModuleOrigin::Local => "local".to_owned(),
    }
}
