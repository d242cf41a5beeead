//! Gets one commit of a repository into the cache.
//!
//! The cache has a repository for each commit, and none of them ever changes: it is made under another name, and gets its
//! own when it is whole. So a commit that is pinned and was fetched once needs no network.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::file::Repo;
use super::git::{Git, GitError};
use super::lock::Commit;
use crate::unfinished::Unfinished;

/// Why a repository cannot be had.
#[derive(Debug, Error)]
pub enum FetchError {
    #[error("{place}: {error}")]
    Git { place: String, error: GitError },
    #[error("{mirror}, and {source_place}")]
    Both { mirror: Box<FetchError>, source_place: Box<FetchError> },
    #[error("the commit {commit} that it is pinned to is not in {reference:?} of {place} any more")]
    Gone { place: String, reference: String, commit: Commit },
    #[error("git named {said:?} as the commit, which is none")]
    NotACommit { said: String },
    #[error("cannot write to the cache {}: {error}", path.display())]
    Cache { path: PathBuf, error: io::Error },
}

impl FetchError {
    /// What a person can do about it.
    pub fn hint(&self, name: &str) -> Option<String> {
        match self {
            FetchError::Git { error: GitError::NotInstalled, .. } => Some("install git".to_owned()),
            FetchError::Git { error: GitError::Deadline { .. }, .. } => {
                Some(format!("is the place reachable from here? Set a `mirror`, or give {name} a longer `deadline`"))
            }
            FetchError::Git { error: GitError::Failed { said, .. }, .. } => hint_for(said).map(str::to_owned),
            FetchError::Git { error: GitError::Run(_) | GitError::Cancelled, .. } => None,
            FetchError::Both { mirror, source_place } => source_place.hint(name).or_else(|| mirror.hint(name)),
            FetchError::Gone { .. } => Some(format!(
                "somebody has rewritten its history: look at what changed, then run `muster release build --update {name}`"
            )),
            FetchError::NotACommit { .. } => None,
            FetchError::Cache { .. } => Some("name another directory with --cache".to_owned()),
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        match self {
            FetchError::Git { error, .. } => matches!(error, GitError::Cancelled),
            FetchError::Both { source_place, .. } => source_place.is_cancelled(),
            FetchError::Gone { .. } | FetchError::NotACommit { .. } | FetchError::Cache { .. } => false,
        }
    }
}

fn hint_for(said: &str) -> Option<&'static str> {
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if says(&["couldn't find remote ref"]) {
        return Some("is there a branch or a tag of that name? A commit is written with all of its digits");
    }
    if says(&["could not read Username", "could not read Password", "Authentication failed", "Permission denied"]) {
        return Some("git needs credentials and may not ask: use a credential helper or an ssh agent");
    }
    if says(&["Could not resolve host", "unable to access", "Connection refused", "Could not connect"]) {
        return Some(
            "is the place reachable from here? A `mirror` in repos.yaml, or MUSTER_GIT_MIRROR, is looked at first",
        );
    }
    if says(&["does not appear to be a git repository", "not found", "does not exist"]) {
        return Some("is the source written correctly?");
    }
    None
}

/// A commit in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub commit: Commit,
    pub repository: PathBuf,
    pub from: From,
}

/// Where a commit came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    Cache,
    Mirror,
    Source,
    /// The mirror is there, and does not have it.
    SourceAfterMirror {
        mirror_said: String,
    },
}

/// Gets the pinned commit, or the one that the ref stands for now.
pub fn fetch(
    git: &Git<'_>,
    repo: &Repo,
    pinned: Option<&Commit>,
    mirror: Option<&str>,
    cache: &Path,
) -> Result<Fetched, FetchError> {
    let shelf = cache.join(shelf(&repo.source));
    if let Some(commit) = pinned {
        let repository = shelf.join(commit.as_str());
        if repository.is_dir() {
            return Ok(Fetched { commit: commit.clone(), repository, from: From::Cache });
        }
    }
    fs::create_dir_all(&shelf).map_err(|error| FetchError::Cache { path: shelf.clone(), error })?;
    let from_source = || from_place(git, repo, pinned, &repo.source, &shelf);
    let Some(mirror) = mirror else {
        return from_source().map(|(commit, repository)| Fetched { commit, repository, from: From::Source });
    };
    match from_place(git, repo, pinned, &in_mirror(mirror, &repo.source), &shelf) {
        Ok((commit, repository)) => Ok(Fetched { commit, repository, from: From::Mirror }),
        Err(error) if error.is_cancelled() => Err(error),
        Err(mirror) => match from_source() {
            Ok((commit, repository)) => {
                let from = From::SourceAfterMirror { mirror_said: mirror.to_string() };
                Ok(Fetched { commit, repository, from })
            }
            Err(error) => Err(FetchError::Both { mirror: Box::new(mirror), source_place: Box::new(error) }),
        },
    }
}

fn from_place(
    git: &Git<'_>,
    repo: &Repo,
    pinned: Option<&Commit>,
    place: &str,
    shelf: &Path,
) -> Result<(Commit, PathBuf), FetchError> {
    let unfinished = Unfinished::beside(shelf, "clone");
    let at = unfinished.path();
    let failed = |error| FetchError::Git { place: place.to_owned(), error };
    git.run(at, "init", &["--quiet", "--bare"]).map_err(failed)?;
    match pinned {
        Some(commit) => fetch_pinned(git, repo, commit, place, at)?,
        None => fetch_newest(git, &repo.reference, place, at).map_err(failed)?,
    }
    let wanted = pinned.map_or("FETCH_HEAD^{commit}".to_owned(), |commit| format!("{commit}^{{commit}}"));
    let mut said = String::new();
    let answer = git.run(at, "rev-parse", &["--verify", "--end-of-options", &wanted]).map_err(failed)?;
    answer.take(256).read_to_string(&mut said).map_err(|error| failed(GitError::Run(error)))?;
    let commit = Commit::new(said.trim()).ok_or(FetchError::NotACommit { said })?;
    let repository = shelf.join(commit.as_str());
    match unfinished.rename_to(&repository) {
        // It was there already, or somebody was faster: theirs is the same.
        Err(_) if repository.is_dir() => {}
        Err(error) => return Err(FetchError::Cache { path: repository, error }),
        Ok(()) => {}
    }
    Ok((commit, repository))
}

/// The newest commit alone, where the place can do that.
fn fetch_newest(git: &Git<'_>, reference: &str, place: &str, at: &Path) -> Result<(), GitError> {
    let shallow = git.run(at, "fetch", &["--quiet", "--no-tags", "--depth=1", "--end-of-options", place, reference]);
    match shallow {
        Err(GitError::Failed { said, .. }) if said.contains("shallow") => {
            git.run(at, "fetch", &["--quiet", "--no-tags", "--end-of-options", place, reference]).map(drop)
        }
        other => other.map(drop),
    }
}

/// A commit by its name; where the place does not give it out by that, what its ref has ever been.
fn fetch_pinned(git: &Git<'_>, repo: &Repo, commit: &Commit, place: &str, at: &Path) -> Result<(), FetchError> {
    let failed = |error| FetchError::Git { place: place.to_owned(), error };
    match fetch_newest(git, commit.as_str(), place, at) {
        Ok(()) => return Ok(()),
        Err(GitError::Failed { .. }) => {}
        Err(error @ (GitError::NotInstalled | GitError::Run(_) | GitError::Deadline { .. } | GitError::Cancelled)) => {
            return Err(failed(error));
        }
    }
    git.run(at, "fetch", &["--quiet", "--no-tags", "--end-of-options", place, &repo.reference]).map_err(failed)?;
    match git.run(at, "cat-file", &["-e", &format!("{commit}^{{commit}}")]) {
        Ok(_) => Ok(()),
        Err(GitError::Failed { .. }) => {
            Err(FetchError::Gone { place: place.to_owned(), reference: repo.reference.clone(), commit: commit.clone() })
        }
        Err(error) => Err(failed(error)),
    }
}

/// Where a source's commits are in the cache.
fn shelf(source: &str) -> String {
    let hash = Sha256::digest(source.as_bytes());
    muster_core::release_dir::hex(hash.get(..8).unwrap_or_default())
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
    fn a_mirror_has_the_last_part_of_a_source() {
        for source in ["https://git.example/a/nova.git", "git@git.example:nova.git", "/srv/git/nova.git/"] {
            assert_eq!(in_mirror("file:///mirror/", source), "file:///mirror/nova.git", "{source}");
        }
    }
}
