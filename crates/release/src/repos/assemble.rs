//! Assembles the files of a release: its directory and the repositories that `repos.yaml` lists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{fmt, fs, io};

use muster_core::spelling;
use thiserror::Error;

use super::export::{ExportError, export};
use super::fetch::{FetchOrigin, FetchedCommit, RepoFetchError, fetch, refuse_moved_tag};
use super::forge::{self, FORGE, Forge, ForgeError};
use super::git::{CancelHandle, Git, GitError};
use super::puppetfile_check as puppetfile;
use super::repos_files::{self, Commit, LOCK, Lock, LockError, Pin, REPOS, Repo, Repos, ReposError};
use crate::exclude::ExcludeRules;
use crate::puppetfile::{PUPPETFILE, PuppetfileError};
use crate::temp_path::TempPath;
use crate::tree::{ReleaseTree, ReleaseTreeError};

/// Default number of repositories that are fetched at a time: enough to hide latency, and few enough for a shared git
/// server.
pub const PARALLEL: usize = 4;

/// Settings for fetching repositories.
#[derive(Clone, Copy, Debug)]
pub struct FetchSettings<'a> {
    /// Overrides the mirror of `repos.yaml`.
    pub mirror: Option<&'a str>,
    /// Overrides the Forge of `repos.yaml`.
    pub forge: Option<&'a str>,
    /// Asks the sources if tags of cached commits have moved.
    pub verify_tags: bool,
    pub cache: &'a Path,
    pub parallel: usize,
    pub update: &'a PinUpdate,
    pub cancel: &'a CancelHandle,
}

/// Selects the pins that are moved to the newest commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinUpdate {
    None,
    All,
    These(BTreeSet<String>),
}

impl PinUpdate {
    fn moves(&self, name: &str) -> bool {
        match self {
            PinUpdate::None => false,
            PinUpdate::All => true,
            PinUpdate::These(names) => names.contains(name),
        }
    }
}

/// Progress events of the fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchProgress {
    Fetching { name: String, source: String },
    Fetched { name: String, commit: Commit, from: FetchOrigin },
    Failed { name: String },
}

#[derive(Debug, Error)]
pub enum AssembleError {
    #[error(transparent)]
    Tree(#[from] ReleaseTreeError),
    #[error(transparent)]
    Repos(#[from] ReposError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("there is no repository {name:?} in {REPOS}{}", suggestion(nearest.as_deref()))]
    Unknown { name: String, nearest: Option<String> },
    #[error("{REPOS}: {name} goes to {dest:?}, and the directory contains {path:?} already")]
    PathInUse { name: String, dest: String, path: String },
    #[error(transparent)]
    Puppetfile(#[from] PuppetfileError),
    #[error("{PUPPETFILE} names modules that are not in the release: {}", modules.join(", "))]
    NotImported { modules: Vec<String> },
    #[error("{PUPPETFILE}:{line}: {name} is {declared}, and {REPOS} has {}", listed.as_deref().unwrap_or("no such repository"))]
    Outdated { line: usize, name: String, declared: String, listed: Option<String> },
    #[error("the newest version of {module} cannot be looked up: {error}")]
    Newest { module: String, error: Box<ForgeError> },
    #[error("{REPOS}: {name} is fetched from the release itself ({source_dir}), which would then contain itself")]
    ContainsItself { name: String, source_dir: String },
    #[error("{} of {all} repositories cannot be fetched", failures.len())]
    Failed { all: usize, failures: Vec<RepoFailure> },
    #[error("cancelled; nothing was changed")]
    Cancelled,
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

/// The failure of one repository.
#[derive(Debug)]
pub struct RepoFailure {
    pub name: String,
    pub reference: String,
    pub error: RepoError,
}

impl fmt::Display for RepoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.reference, self.error)
    }
}

#[derive(Debug, Error)]
pub enum RepoError {
    #[error("{0}")]
    Fetch(RepoFetchError),
    #[error("{0}")]
    Forge(ForgeError),
    #[error("{0}")]
    Export(ExportError),
    #[error("{0}")]
    Tree(ReleaseTreeError),
}

impl RepoFailure {
    /// Action that resolves it.
    pub fn hint(&self) -> Option<String> {
        match &self.error {
            RepoError::Fetch(error) => error.hint(&self.name),
            RepoError::Forge(error) => error.hint(&self.name),
            RepoError::Tree(ReleaseTreeError::Link { .. }) => Some(format!(
                "exclude it with `exclude` in release.yaml, or select a directory of {} with `path`",
                self.name
            )),
            RepoError::Export(ExportError::Git(GitError::Failed { .. }) | ExportError::Unparsable) => {
                Some("its copy in the cache may be damaged: remove the cache and retry".to_owned())
            }
            RepoError::Export(
                ExportError::Git(_)
                | ExportError::NoPath { .. }
                | ExportError::Submodule { .. }
                | ExportError::Path { .. }
                | ExportError::TooLarge
                | ExportError::Write { .. },
            )
            | RepoError::Tree(_) => None,
        }
    }

    fn is_cancelled(&self) -> bool {
        match &self.error {
            RepoError::Fetch(error) => error.is_cancelled(),
            RepoError::Forge(error) => error.is_cancelled(),
            RepoError::Export(error) => matches!(error, ExportError::Git(GitError::Cancelled)),
            RepoError::Tree(_) => false,
        }
    }
}

/// The files of a release, ready to be checked and packed.
#[derive(Debug)]
pub struct AssembledRelease {
    pub tree: ReleaseTree,
    pub repos: Vec<AssembledRepo>,
    /// Keeps the exported files of the repositories while the tree is in use.
    _staging: Option<TempPath>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssembledRepo {
    pub name: String,
    pub pin: Pin,
    pub dest: String,
    /// The previous pin.
    pub before: Option<Commit>,
}

/// Reads the directory of a release, fetches its repositories, and pins them.
///
/// `repos.lock` is written only if every repository was fetched and a pin has changed.
pub fn assemble(
    directory: &Path,
    settings: &FetchSettings<'_>,
    progress: &(dyn Fn(FetchProgress) + Sync),
) -> Result<AssembledRelease, AssembleError> {
    let tree = ReleaseTree::read(directory)?;
    if tree.file(REPOS).is_none() {
        puppetfile::require_modules(&tree)?;
        return Ok(AssembledRelease { tree, repos: Vec::new(), _staging: None });
    }
    let text = read(&directory.join(REPOS))?;
    let repos = repos_files::read(&text)?;
    puppetfile::require_current(&tree, &repos)?;
    for (name, Repo { dest, .. }) in &repos.repos {
        if let Some(path) = tree.occupied_by(dest) {
            return Err(AssembleError::PathInUse { name: name.clone(), dest: dest.clone(), path });
        }
    }
    let (assembled, staging) = fetch_and_pin(directory, &repos, settings, progress, &|| Ok(()))?;
    // Read again: the lock is part of the release.
    let mut tree = ReleaseTree::read(directory)?;
    let mut done = Vec::new();
    for (repo, exported) in assembled {
        tree.add(&repo.dest, exported)?;
        done.push(repo);
    }
    Ok(AssembledRelease { tree, repos: done, _staging: Some(staging) })
}

/// Fetches all repositories, and writes `repos.lock`. `before_lock` runs when everything was fetched.
pub(super) fn fetch_and_pin(
    directory: &Path,
    repos: &Repos,
    settings: &FetchSettings<'_>,
    progress: &(dyn Fn(FetchProgress) + Sync),
    before_lock: &dyn Fn() -> Result<(), AssembleError>,
) -> Result<(Vec<(AssembledRepo, ReleaseTree)>, TempPath), AssembleError> {
    let lock_file = directory.join(LOCK);
    let before = if lock_file.exists() { Lock::read(&read(&lock_file)?)? } else { Lock::default() };
    check_names(settings.update, repos)?;
    refuse_own_directory(directory, repos)?;
    let staging = staging_dir(settings.cache)?;

    let mut fetched = fetch_all(directory, repos, &before, staging.path(), settings, progress)?;

    let pin = |repo: &Repo, commit: &Commit| Pin {
        source: repo.source.clone(),
        reference: repo.reference.clone(),
        commit: commit.clone(),
    };
    let pins = repos
        .repos
        .iter()
        .filter_map(|(name, repo)| Some((name.clone(), pin(repo, fetched.get(name).map(|(commit, _)| commit)?))));
    let after = Lock { pins: pins.collect() };
    before_lock()?;
    if after != before {
        write_file(directory, &lock_file, &after.write()?)?;
    }
    let mut assembled = Vec::new();
    for (name, pin) in after.pins {
        let (Some(repo), Some((_, exported))) = (repos.repos.get(&name), fetched.remove(&name)) else { continue };
        let before = before.pins.get(&name).map(|pin| pin.commit.clone());
        assembled.push((AssembledRepo { name, pin, dest: repo.dest.clone(), before }, exported));
    }
    Ok((assembled, staging))
}

/// A new directory in the cache, for exported files and the output of programs.
pub(super) fn staging_dir(cache: &Path) -> Result<TempPath, AssembleError> {
    let failed = |source| AssembleError::Write { path: cache.to_owned(), source };
    fs::create_dir_all(cache).map_err(failed)?;
    let staging = TempPath::in_dir(cache, "release");
    fs::create_dir(staging.path()).map_err(failed)?;
    Ok(staging)
}

/// Refuses a repository whose source is the directory of the release.
fn refuse_own_directory(directory: &Path, repos: &Repos) -> Result<(), AssembleError> {
    let own = directory.canonicalize().ok();
    let is_own = |repo: &&Repo| {
        let path = repo.source.strip_prefix("file://").unwrap_or(&repo.source);
        let source = directory.join(path).canonicalize().ok();
        source.is_some_and(|source| {
            let source = if source.ends_with(".git") { source.parent().unwrap_or(&source) } else { &source };
            own.as_deref() == Some(source)
        })
    };
    match repos.repos.iter().find(|(_, repo)| is_own(repo)) {
        None => Ok(()),
        Some((name, repo)) => {
            Err(AssembleError::ContainsItself { name: name.clone(), source_dir: repo.source.clone() })
        }
    }
}

fn check_names(update: &PinUpdate, repos: &Repos) -> Result<(), AssembleError> {
    let PinUpdate::These(names) = update else { return Ok(()) };
    match names.iter().find(|name| !repos.repos.contains_key(*name)) {
        None => Ok(()),
        Some(name) => {
            let nearest = spelling::nearest(name, repos.repos.keys().map(String::as_str)).map(str::to_owned);
            Err(AssembleError::Unknown { name: name.clone(), nearest })
        }
    }
}

type FetchedTrees = BTreeMap<String, (Commit, ReleaseTree)>;

/// Fetches all repositories, `settings.parallel` at a time. After a failure the remaining ones are still tried, to report
/// all failures together.
fn fetch_all(
    directory: &Path,
    repos: &Repos,
    lock: &Lock,
    staging: &Path,
    settings: &FetchSettings<'_>,
    progress: &(dyn Fn(FetchProgress) + Sync),
) -> Result<FetchedTrees, AssembleError> {
    let mirror = settings.mirror.or(repos.mirror.as_deref());
    let rules = ExcludeRules::read(directory);
    let forge_url = forge_url(settings, repos.forge.as_deref());
    let waiting = Mutex::new(repos.repos.iter());
    let done: Mutex<(FetchedTrees, Vec<RepoFailure>)> = Mutex::default();
    let one = |name: &str, repo: &Repo| -> Result<(Commit, ReleaseTree, FetchOrigin), RepoError> {
        let git = Git { directory, temporary: staging, deadline: repo.deadline, cancel: settings.cancel };
        let known = lock.commit_of(name, repo);
        let pinned = known.filter(|_| !settings.update.moves(name));
        let target = staging.join(name);
        if let Some(module) = repo.forge_module() {
            let forge = Forge { git: &git, url: &forge_url };
            let fetched = forge.fetch(module, &repo.reference, pinned, settings.cache).map_err(RepoError::Forge)?;
            let (digest, archive, cached) = fetched;
            forge::unpack(&archive, &target).map_err(RepoError::Forge)?;
            let tree = ReleaseTree::read_part(&target, &repo.dest, rules.clone()).map_err(RepoError::Tree)?;
            return Ok((digest, tree, if cached { FetchOrigin::Cache } else { FetchOrigin::Source }));
        }
        // A tag moves only if its repository is named.
        let all = *settings.update == PinUpdate::All;
        if let Some(known) = known.filter(|_| settings.verify_tags || all) {
            refuse_moved_tag(&git, &repo.reference, known, &repo.source).map_err(RepoError::Fetch)?;
        }
        let fetched = fetch(&git, repo, pinned, mirror, settings.cache).map_err(RepoError::Fetch)?;
        let FetchedCommit { commit, repository, from } = fetched;
        export(&git, &repository, &commit, repo.path.as_deref(), &target).map_err(RepoError::Export)?;
        let tree = ReleaseTree::read_part(&target, &repo.dest, rules.clone()).map_err(RepoError::Tree)?;
        Ok((commit, tree, from))
    };
    let work = || {
        while !settings.cancel.is_cancelled()
            && let Some((name, repo)) = locked(&waiting).next()
        {
            let name = name.clone();
            progress(FetchProgress::Fetching { name: name.clone(), source: repo.source.clone() });
            match one(&name, repo) {
                Ok((commit, tree, from)) => {
                    progress(FetchProgress::Fetched { name: name.clone(), commit: commit.clone(), from });
                    locked(&done).0.insert(name, (commit, tree));
                }
                Err(error) => {
                    progress(FetchProgress::Failed { name: name.clone() });
                    locked(&done).1.push(RepoFailure { name, reference: repo.reference.clone(), error });
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..settings.parallel.clamp(1, repos.repos.len().max(1)) {
            scope.spawn(work);
        }
    });
    let (fetched, mut failures) = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if settings.cancel.is_cancelled() || failures.iter().any(RepoFailure::is_cancelled) {
        return Err(AssembleError::Cancelled);
    }
    if failures.is_empty() {
        return Ok(fetched);
    }
    failures.sort_by(|a, b| a.name.cmp(&b.name));
    Err(AssembleError::Failed { all: repos.repos.len(), failures })
}

/// Ignores poisoning: each update is a single insert or push.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(super) fn read(path: &Path) -> Result<String, AssembleError> {
    fs::read_to_string(path).map_err(|source| AssembleError::Read { path: path.to_owned(), source })
}

/// Writes a file beside `release.yaml`, completely or not at all.
pub(super) fn write_file(directory: &Path, path: &Path, text: &str) -> Result<(), AssembleError> {
    let temporary = TempPath::in_dir(directory, "file");
    let written = fs::write(temporary.path(), text).and_then(|()| temporary.rename_to(path));
    written.map_err(|source| AssembleError::Write { path: path.to_owned(), source })
}

/// Address of the Forge, without a trailing `/`.
pub(super) fn forge_url(settings: &FetchSettings<'_>, listed: Option<&str>) -> String {
    settings.forge.or(listed).unwrap_or(FORGE).trim_end_matches('/').to_owned()
}
