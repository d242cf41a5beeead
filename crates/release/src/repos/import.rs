//! Writes the modules of a `Puppetfile` to `repos.yaml`, and pins them in `repos.lock`.

use std::path::Path;
use std::time::Duration;

use super::assemble::{
    AssembleError, AssembledRepo, FetchProgress, FetchSettings, PinUpdate, fetch_and_pin, forge_url, read, staging_dir,
    write_file,
};
use super::forge::{Forge, ForgeError};
use super::git::Git;
use super::repos_files::{self, FORGE_PREFIX, REPOS, RepoEntry, ReposDocument};
use crate::check::parse_yaml;
use crate::puppetfile::{ModuleOrigin, Puppetfile, PuppetfileModule};

/// First line of a file that was imported. Repositories that are no longer in the `Puppetfile` are removed from it.
const HEADER: &str = "# Written by `muster release import-puppetfile`: the modules of the Puppetfile.";
const HEADER_MORE: &str =
    "# Import again after a change; `muster release build --update` moves the pins in repos.lock.";
/// Time for one request to the Forge.
const DEADLINE: Duration = Duration::from_secs(60);

/// The text of a new `repos.yaml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportPlan {
    pub text: String,
    /// Repositories of the earlier file that are not in the `Puppetfile` and stay.
    pub kept: Vec<String>,
    /// Repositories of the earlier file that are no longer in the `Puppetfile`.
    pub removed: Vec<String>,
    /// Modules of the control repository itself.
    pub local: Vec<String>,
}

/// Plans the import of a `Puppetfile` beside which `repos.yaml` is. The newest versions of modules without a version are looked up
/// on the Forge, unless `repos.yaml` has a version already.
pub fn plan(
    directory: &Path,
    puppetfile: &Puppetfile,
    settings: &FetchSettings<'_>,
) -> Result<ImportPlan, AssembleError> {
    let file = directory.join(REPOS);
    let text = if file.exists() { read(&file)? } else { String::new() };
    let mut document: ReposDocument = match text.is_empty() {
        true => ReposDocument::default(),
        false => parse_yaml(REPOS, &text).map_err(repos_files::ReposError::Yaml)?,
    };
    let is_imported = text.starts_with(HEADER);
    let mut before = std::mem::take(&mut document.repos);
    document.forge = puppetfile.forge.clone().or(document.forge);
    let mut local = Vec::new();
    for module in &puppetfile.modules {
        let old = before.remove(&module.name);
        match entry(directory, module, old, document.forge.as_deref(), settings)? {
            Some(entry) => drop(document.repos.insert(module.name.clone(), entry)),
            None => local.push(module.name.clone()),
        }
    }
    let others: Vec<String> = before.keys().cloned().collect();
    let (kept, removed) = if is_imported { (Vec::new(), others) } else { (others, Vec::new()) };
    if !is_imported {
        document.repos.extend(before);
    }
    let yaml = serde_saphyr::to_string(&document)
        .map_err(|error| AssembleError::Write { path: file, source: std::io::Error::other(error.to_string()) })?;
    let text = format!("{HEADER}\n{HEADER_MORE}\n{}\n", yaml.trim_end());
    // All problems are reported before anything is fetched.
    repos_files::read(&text)?;
    Ok(ImportPlan { text, kept, removed, local })
}

fn entry(
    directory: &Path,
    module: &PuppetfileModule,
    old: Option<RepoEntry>,
    forge: Option<&str>,
    settings: &FetchSettings<'_>,
) -> Result<Option<RepoEntry>, AssembleError> {
    let (source, reference) = match &module.origin {
        ModuleOrigin::Local => return Ok(None),
        ModuleOrigin::Git { source, reference } => (source.clone(), reference.clone()),
        ModuleOrigin::Forge { module: forge_module, version } => {
            let source = format!("{FORGE_PREFIX}{forge_module}");
            let listed = old.as_ref().filter(|old| old.source == source).and_then(|old| old.reference.clone());
            let listed = listed.filter(|_| *settings.update == PinUpdate::None);
            let version = match version.clone().or(listed) {
                Some(version) => version,
                None => newest_version(directory, forge_module, forge, settings)?,
            };
            (source, version)
        }
    };
    let old = old.filter(|old| old.source == source);
    let (path, deadline) = old.map(|old| (old.path, old.deadline)).unwrap_or_default();
    Ok(Some(RepoEntry { source, reference: Some(reference), dest: Some(module.dest.clone()), path, deadline }))
}

fn newest_version(
    directory: &Path,
    module: &str,
    forge: Option<&str>,
    settings: &FetchSettings<'_>,
) -> Result<String, AssembleError> {
    let staging = staging_dir(settings.cache)?;
    let git = Git { directory, temporary: staging.path(), deadline: DEADLINE, cancel: settings.cancel };
    let url = forge_url(settings, forge);
    let found = Forge { git: &git, url: &url }.newest_version(module);
    found.map_err(|error: ForgeError| AssembleError::Newest { module: module.to_owned(), error: Box::new(error) })
}

/// Fetches all modules of a plan, then writes `repos.yaml` and `repos.lock`. If a module cannot be fetched, nothing is written.
pub fn import(
    directory: &Path,
    plan: &ImportPlan,
    settings: &FetchSettings<'_>,
    progress: &(dyn Fn(FetchProgress) + Sync),
) -> Result<Vec<AssembledRepo>, AssembleError> {
    let repos = repos_files::read(&plan.text)?;
    let write = || write_file(directory, &directory.join(REPOS), &plan.text);
    let (imported, _) = fetch_and_pin(directory, &repos, settings, progress, &write)?;
    Ok(imported.into_iter().map(|(repo, _)| repo).collect())
}
