//! Fetches one commit of a repository into the cache.
//!
//! The cache has one bare repository per commit. It is created under a temporary name, renamed when it is complete, and
//! never changes afterwards. A pinned commit that was fetched once needs no network.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::git::{Git, GitError};
use super::repos_files::{Commit, Repo};
use crate::temp_path::TempPath;

/// Reasons that a repository cannot be fetched.
#[derive(Debug, Error)]
pub enum RepoFetchError {
    #[error("{place}: {error}")]
    Git { place: String, error: GitError },
    #[error("{mirror}, and {source_place}")]
    Both { mirror: Box<RepoFetchError>, source_place: Box<RepoFetchError> },
    #[error("the pinned commit {commit} is no longer in {reference:?} of {place}")]
    Gone { place: String, reference: String, commit: Commit },
    #[error(
        "the tag {reference:?} of {place} has moved: it is pinned to commit {pinned}, and points to commit {found} now"
    )]
    TagMoved { place: String, reference: String, pinned: Commit, found: Commit },
    #[error("git returned {printed:?}, which is not a commit id")]
    NotACommit { printed: String },
    #[error("cannot write to the cache {}: {error}", path.display())]
    Cache { path: PathBuf, error: io::Error },
}

impl RepoFetchError {
    /// Action that resolves it.
    pub fn hint(&self, name: &str) -> Option<String> {
        match self {
            RepoFetchError::Git { error: GitError::NotInstalled { program }, .. } => Some(format!("install {program}")),
            RepoFetchError::Git { error: GitError::Deadline { .. }, .. } => Some(format!(
                "check that the address is reachable from here; set a `mirror`, or give {name} a longer `deadline`"
            )),
            RepoFetchError::Git { error: GitError::Failed { stderr, .. }, .. } => hint_for(stderr).map(str::to_owned),
            RepoFetchError::Git { error: GitError::Run(_) | GitError::Cancelled, .. } => None,
            RepoFetchError::Both { mirror, source_place } => source_place.hint(name).or_else(|| mirror.hint(name)),
            RepoFetchError::Gone { .. } => Some(format!(
                "its history was rewritten: review the change, then run `muster release build --update {name}`"
            )),
            RepoFetchError::TagMoved { .. } => Some(format!(
                "a tag should not move: review the difference, then accept it with `muster release build --update {name}`"
            )),
            RepoFetchError::NotACommit { .. } => None,
            RepoFetchError::Cache { .. } => Some("choose another directory with --cache".to_owned()),
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        match self {
            RepoFetchError::Git { error, .. } => matches!(error, GitError::Cancelled),
            RepoFetchError::Both { source_place, .. } => source_place.is_cancelled(),
            RepoFetchError::Gone { .. }
            | RepoFetchError::TagMoved { .. }
            | RepoFetchError::NotACommit { .. }
            | RepoFetchError::Cache { .. } => false,
        }
    }
}

fn hint_for(stderr: &str) -> Option<&'static str> {
    let contains = |phrases: &[&str]| phrases.iter().any(|phrase| stderr.contains(phrase));
    if contains(&["couldn't find remote ref"]) {
        return Some("check the name of the branch or tag; a commit needs its full id");
    }
    if contains(&["could not read Username", "could not read Password", "Authentication failed", "Permission denied"]) {
        return Some("git needs credentials and cannot prompt for them: use a credential helper or an ssh agent");
    }
    if contains(&["Could not resolve host", "unable to access", "Connection refused", "Could not connect"]) {
        return Some(
            "check that the address is reachable from here, or set a `mirror` in repos.yaml or MUSTER_GIT_MIRROR",
        );
    }
    if contains(&["does not appear to be a git repository", "not found", "does not exist"]) {
        return Some("check the spelling of the source");
    }
    None
}

/// A commit in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedCommit {
    pub commit: Commit,
    pub repository: PathBuf,
    pub from: FetchOrigin,
}

/// The place that a commit was fetched from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchOrigin {
    Cache,
    Mirror,
    Source,
    /// The mirror failed or does not have the commit.
    SourceAfterMirror {
        mirror_error: String,
    },
}

/// Fetches the pinned commit, or the commit that the ref points to now. Tries the cache, the mirror, then the source.
pub fn fetch(
    git: &Git<'_>,
    repo: &Repo,
    pinned: Option<&Commit>,
    mirror: Option<&str>,
    cache: &Path,
) -> Result<FetchedCommit, RepoFetchError> {
    let source_dir = cache.join(source_dir(&repo.source));
    if let Some(commit) = pinned {
        let repository = source_dir.join(commit.as_str());
        if repository.is_dir() {
            return Ok(FetchedCommit { commit: commit.clone(), repository, from: FetchOrigin::Cache });
        }
    }
    fs::create_dir_all(&source_dir).map_err(|error| RepoFetchError::Cache { path: source_dir.clone(), error })?;
    let from_source = || from_place(git, repo, pinned, &repo.source, &source_dir);
    let Some(mirror) = mirror else {
        return from_source().map(|(commit, repository)| FetchedCommit {
            commit,
            repository,
            from: FetchOrigin::Source,
        });
    };
    match from_place(git, repo, pinned, &in_mirror(mirror, &repo.source), &source_dir) {
        Ok((commit, repository)) => Ok(FetchedCommit { commit, repository, from: FetchOrigin::Mirror }),
        Err(error) if error.is_cancelled() => Err(error),
        Err(mirror) => match from_source() {
            Ok((commit, repository)) => {
                let from = FetchOrigin::SourceAfterMirror { mirror_error: mirror.to_string() };
                Ok(FetchedCommit { commit, repository, from })
            }
            Err(error) => Err(RepoFetchError::Both { mirror: Box::new(mirror), source_place: Box::new(error) }),
        },
    }
}

fn from_place(
    git: &Git<'_>,
    repo: &Repo,
    pinned: Option<&Commit>,
    place: &str,
    source_dir: &Path,
) -> Result<(Commit, PathBuf), RepoFetchError> {
    let clone = TempPath::in_dir(source_dir, "clone");
    let at = clone.path();
    let failed = |error| RepoFetchError::Git { place: place.to_owned(), error };
    git.run(at, "init", &["--quiet", "--bare"]).map_err(failed)?;
    match pinned {
        Some(commit) => {
            refuse_moved_tag(git, &repo.reference, commit, place)?;
            fetch_pinned(git, repo, commit, place, at)?;
        }
        None => fetch_newest(git, &repo.reference, place, at).map_err(failed)?,
    }
    let wanted = pinned.map_or("FETCH_HEAD^{commit}".to_owned(), |commit| format!("{commit}^{{commit}}"));
    let mut printed = String::new();
    let answer = git.run(at, "rev-parse", &["--verify", "--end-of-options", &wanted]).map_err(failed)?;
    answer.take(256).read_to_string(&mut printed).map_err(|error| failed(GitError::Run(error)))?;
    let commit = Commit::new(printed.trim()).ok_or(RepoFetchError::NotACommit { printed })?;
    let repository = source_dir.join(commit.as_str());
    match clone.rename_to(&repository) {
        // Another build has cached the same commit already.
        Err(_) if repository.is_dir() => {}
        Err(error) => return Err(RepoFetchError::Cache { path: repository, error }),
        Ok(()) => {}
    }
    Ok((commit, repository))
}

/// Fails if the ref is a tag that points to another commit than the pinned one. A branch may move.
pub fn refuse_moved_tag(git: &Git<'_>, reference: &str, pinned: &Commit, place: &str) -> Result<(), RepoFetchError> {
    if Commit::new(reference).is_some() {
        return Ok(());
    }
    let tag = format!("refs/tags/{reference}");
    let mut text = String::new();
    match git.list_remote(place, &[&tag, &format!("{tag}^{{}}")]) {
        Ok(listed) => listed.take(4096).read_to_string(&mut text).map(drop).unwrap_or_default(),
        Err(error @ (GitError::Cancelled | GitError::Deadline { .. })) => {
            return Err(RepoFetchError::Git { place: place.to_owned(), error });
        }
        // The fetch that follows reports the reason.
        Err(GitError::NotInstalled { .. } | GitError::Run(_) | GitError::Failed { .. }) => return Ok(()),
    }
    // The last line of an annotated tag is the commit that it points to.
    let found = text.lines().last().and_then(|line| Commit::new(line.split('\t').next()?));
    match found {
        Some(found) if found != *pinned => Err(RepoFetchError::TagMoved {
            place: place.to_owned(),
            reference: reference.to_owned(),
            pinned: pinned.clone(),
            found,
        }),
        Some(_) | None => Ok(()),
    }
}

/// Fetches the newest commit alone, or the complete history if the server cannot do shallow fetches.
fn fetch_newest(git: &Git<'_>, reference: &str, place: &str, at: &Path) -> Result<(), GitError> {
    let shallow = git.run(at, "fetch", &["--quiet", "--no-tags", "--depth=1", "--end-of-options", place, reference]);
    match shallow {
        Err(GitError::Failed { stderr, .. }) if stderr.contains("shallow") => {
            git.run(at, "fetch", &["--quiet", "--no-tags", "--end-of-options", place, reference]).map(drop)
        }
        other => other.map(drop),
    }
}

/// Fetches a commit by its id, or the complete history of its ref if the server refuses to serve a commit by id.
fn fetch_pinned(git: &Git<'_>, repo: &Repo, commit: &Commit, place: &str, at: &Path) -> Result<(), RepoFetchError> {
    let failed = |error| RepoFetchError::Git { place: place.to_owned(), error };
    match fetch_newest(git, commit.as_str(), place, at) {
        Ok(()) => return Ok(()),
        Err(GitError::Failed { .. }) => {}
        Err(
            error
            @ (GitError::NotInstalled { .. } | GitError::Run(_) | GitError::Deadline { .. } | GitError::Cancelled),
        ) => {
            return Err(failed(error));
        }
    }
    git.run(at, "fetch", &["--quiet", "--no-tags", "--end-of-options", place, &repo.reference]).map_err(failed)?;
    match git.run(at, "cat-file", &["-e", &format!("{commit}^{{commit}}")]) {
        Ok(_) => Ok(()),
        Err(GitError::Failed { .. }) => Err(RepoFetchError::Gone {
            place: place.to_owned(),
            reference: repo.reference.clone(),
            commit: commit.clone(),
        }),
        Err(error) => Err(failed(error)),
    }
}

/// Directory of a source's commits in the cache: a hash of its address.
pub(super) fn source_dir(source: &str) -> String {
    let hash = Sha256::digest(source.as_bytes());
    muster_core::release::dir::hex(hash.get(..8).unwrap_or_default())
}

/// `<mirror>/<last part of the source>`
fn in_mirror(mirror: &str, source: &str) -> String {
    let last = source.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or(source);
    format!("{}/{last}", mirror.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_address_ends_with_last_part_of_source() {
        for source in ["https://git.example/a/nova.git", "git@git.example:nova.git", "/srv/git/nova.git/"] {
            assert_eq!(in_mirror("file:///mirror/", source), "file:///mirror/nova.git", "{source}");
        }
    }
}
