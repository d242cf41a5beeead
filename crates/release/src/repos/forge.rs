//! Fetches modules from the Puppet Forge, or a server with the same API (version 3), and unpacks their archives.
//!
//! A module is pinned by the SHA-256 of its archive. The archive is verified against the digest that the Forge gives and against
//! the pin, and is kept in the cache under its digest.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::fetch::source_dir;
use super::git::{Git, GitError};
use super::repos_files::{Commit, FORGE_PREFIX};
use crate::bundle::digest_of;
use crate::temp_path::TempPath;
use crate::tree::{FILE_LIMIT, SIZE_LIMIT, path_problem};

/// Address of the Forge without `forge` in `repos.yaml`.
pub const FORGE: &str = "https://forgeapi.puppet.com";
/// Bytes of an answer of the API.
const ANSWER_LIMIT: u64 = 4 * 1024 * 1024;
/// Exit code of curl for an HTTP status of 400 or more.
const HTTP_ERROR: i32 = 22;

#[derive(Debug, Error)]
pub enum ForgeError {
    #[error("{forge} has no {what}")]
    Missing { forge: String, what: String },
    #[error("{0}")]
    Download(GitError),
    #[error("the answer of {url} is not that of a Forge: {problem}")]
    Answer { url: String, problem: String },
    #[error("the archive {url} has the SHA-256 {found}, and the Forge says {expected}")]
    Damaged { url: String, found: String, expected: String },
    #[error(
        "the archive of {module} {version} has changed: it is pinned to SHA-256 {pinned}, and {forge} has {found} now"
    )]
    Changed { module: String, version: String, forge: String, pinned: Commit, found: String },
    #[error("its archive cannot be unpacked: {0}")]
    Archive(String),
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
}

impl ForgeError {
    /// Action that resolves it.
    pub fn hint(&self, name: &str) -> Option<String> {
        match self {
            ForgeError::Missing { .. } => Some("check owner, name and version".to_owned()),
            ForgeError::Download(GitError::NotInstalled { program }) => Some(format!("install {program}")),
            ForgeError::Download(GitError::Failed { .. } | GitError::Deadline { .. }) => Some(
                "check that the Forge is reachable from here; `forge` in repos.yaml or MUSTER_FORGE names another"
                    .to_owned(),
            ),
            ForgeError::Changed { .. } => Some(format!(
                "a published version should not change: review it, then accept it with `muster release build --update {name}`"
            )),
            ForgeError::Download(GitError::Run(_) | GitError::Cancelled)
            | ForgeError::Answer { .. }
            | ForgeError::Damaged { .. }
            | ForgeError::Archive(_)
            | ForgeError::Write { .. } => None,
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self, ForgeError::Download(GitError::Cancelled))
    }
}

/// `/v3/releases/<owner>-<name>-<version>`
#[derive(Deserialize)]
struct ReleaseAnswer {
    file_uri: String,
    #[serde(default)]
    file_sha256: Option<String>,
}

/// `/v3/modules/<owner>-<name>`
#[derive(Deserialize)]
struct ModuleAnswer {
    current_release: CurrentRelease,
}

#[derive(Deserialize)]
struct CurrentRelease {
    version: String,
}

/// A Forge.
#[derive(Clone, Copy, Debug)]
pub struct Forge<'a> {
    pub git: &'a Git<'a>,
    /// Address without a trailing `/`.
    pub url: &'a str,
}

impl Forge<'_> {
    /// The newest version of a module `owner/name`.
    pub fn newest_version(&self, module: &str) -> Result<String, ForgeError> {
        let answer: ModuleAnswer = self.get(&format!("/v3/modules/{}", slug(module)), format!("module {module}"))?;
        Ok(answer.current_release.version)
    }

    /// Fetches the archive of a version into the cache. Returns its digest, its path, and whether it was cached.
    pub fn fetch(
        &self,
        module: &str,
        version: &str,
        pinned: Option<&Commit>,
        cache: &Path,
    ) -> Result<(Commit, PathBuf, bool), ForgeError> {
        let directory = cache.join(source_dir(&format!("{FORGE_PREFIX}{module}")));
        if let Some(pinned) = pinned {
            let archive = directory.join(pinned.as_str());
            if archive.is_file() {
                return Ok((pinned.clone(), archive, true));
            }
        }
        let what = format!("version {version} of {module}");
        let answer: ReleaseAnswer = self.get(&format!("/v3/releases/{}-{version}", slug(module)), what.clone())?;
        let url = match answer.file_uri.starts_with('/') {
            true => format!("{}{}", self.url, answer.file_uri),
            false => answer.file_uri,
        };
        let mut content = self.download(&url, SIZE_LIMIT, what)?;
        let (digest, _) = digest_of(&mut content).map_err(|error| ForgeError::Download(GitError::Run(error)))?;
        if let Some(expected) = answer.file_sha256.filter(|expected| expected != digest.hex()) {
            return Err(ForgeError::Damaged { url, found: digest.hex().to_owned(), expected });
        }
        let commit = Commit::new(digest.hex()).ok_or_else(|| ForgeError::Archive("it has no digest".to_owned()))?;
        if let Some(pinned) = pinned.filter(|pinned| **pinned != commit) {
            return Err(ForgeError::Changed {
                module: module.to_owned(),
                version: version.to_owned(),
                forge: self.url.to_owned(),
                pinned: pinned.clone(),
                found: digest.hex().to_owned(),
            });
        }
        let archive = directory.join(commit.as_str());
        let failed = |error| ForgeError::Write { path: archive.clone(), error };
        fs::create_dir_all(&directory).map_err(failed)?;
        let temporary = TempPath::in_dir(&directory, "archive");
        content.seek(SeekFrom::Start(0)).map_err(failed)?;
        File::create_new(temporary.path()).and_then(|mut file| io::copy(&mut content, &mut file)).map_err(failed)?;
        temporary.rename_to(&archive).map_err(failed)?;
        Ok((commit, archive, false))
    }

    fn get<T: DeserializeOwned>(&self, path: &str, what: String) -> Result<T, ForgeError> {
        let url = format!("{}{path}", self.url);
        let mut text = String::new();
        let answer = |problem: String| ForgeError::Answer { url: url.clone(), problem };
        self.download(&url, ANSWER_LIMIT, what)?
            .take(ANSWER_LIMIT)
            .read_to_string(&mut text)
            .map_err(|error| answer(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| answer(error.to_string()))
    }

    fn download(&self, url: &str, limit: u64, what: String) -> Result<File, ForgeError> {
        self.git.download(url, limit).map_err(|error| {
            let is_missing =
                matches!(&error, GitError::Failed { code: Some(HTTP_ERROR), stderr, .. } if stderr.contains("404"));
            if is_missing {
                ForgeError::Missing { forge: self.url.to_owned(), what }
            } else {
                ForgeError::Download(error)
            }
        })
    }
}

fn slug(module: &str) -> String {
    module.replace('/', "-")
}

/// Unpacks an archive into a new directory, without its first directory, `owner-name-version`. Links are written last, as in
/// [`super::export`].
pub fn unpack(archive: &Path, target: &Path) -> Result<(), ForgeError> {
    let failed = |error| ForgeError::Write { path: target.to_owned(), error };
    let unreadable = |error: io::Error| ForgeError::Archive(error.to_string());
    fs::create_dir_all(target).map_err(failed)?;
    let file = File::open(archive).map_err(|error| ForgeError::Write { path: archive.to_owned(), error })?;
    // A decompression bomb ends at the limit. Headers need at most as much as the files.
    let mut tar = tar::Archive::new(GzDecoder::new(file).take(2 * SIZE_LIMIT));
    let (mut files, mut size, mut links) = (0, 0u64, Vec::new());
    for entry in tar.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some((_, path)) = name.trim_start_matches("./").trim_end_matches('/').split_once('/') else { continue };
        if let Some(problem) = path_problem(path) {
            return Err(ForgeError::Archive(format!("{path:?} {problem}")));
        }
        (files, size) = (files + 1, size.saturating_add(entry.size()));
        if files > FILE_LIMIT || size > SIZE_LIMIT {
            return Err(ForgeError::Archive("it is too large".to_owned()));
        }
        let to = target.join(path);
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            fs::create_dir_all(&to).map_err(failed)?;
        } else if kind.is_symlink() {
            let link = entry.link_name().map_err(unreadable)?;
            links.push((to, link.map(std::borrow::Cow::into_owned).unwrap_or_default()));
        } else if kind.is_file() {
            fs::create_dir_all(to.parent().unwrap_or(target)).map_err(failed)?;
            let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
            let mode = if executable { 0o755 } else { 0o644 };
            let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&to).map_err(failed)?;
            io::copy(&mut entry, &mut file).map_err(failed)?;
        } else {
            return Err(ForgeError::Archive(format!("{path:?} is neither a file, a directory nor a link")));
        }
    }
    links.into_iter().try_for_each(|(path, link)| symlink(link, path)).map_err(failed)
}
