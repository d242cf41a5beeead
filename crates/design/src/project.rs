//! Project directories: environments and releases that belong together.
//!
//! ```text
//! examples/quickstart/
//! ├── environments/
//! │   └── quickstart.yaml      one file for each environment
//! └── releases/
//!     ├── v1/                  one directory for each version
//!     └── v2/
//! ```
//!
//! Opening a project lists names only; an environment file is read on request.

use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use muster_core::names::{NameError, Version};
use thiserror::Error;

use crate::environment::Environment;
use crate::finding::{Findings, WithWarnings};

#[derive(Clone, Debug)]
pub struct Project {
    root: PathBuf,
    environments: Vec<String>,
    releases: Vec<Version>,
}

#[derive(Debug, Error)]
pub enum OpenProjectError {
    #[error("{} is not a project: there is no directory {}", root.display(), missing.display())]
    NotAProject { root: PathBuf, missing: PathBuf },
    #[error("there is no environment file in {}: expected <environment>.yaml{}", directory.display(), instead(.others))]
    NoEnvironments { directory: PathBuf, others: Vec<String> },
    #[error("the name of the release directory {} is not a version", path.display())]
    ReleaseName { path: PathBuf, source: NameError },
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
}

#[derive(Debug, Error)]
pub enum LoadEnvironmentError {
    #[error("there is no environment {wanted:?} in {}: there is {}", root.display(), available.join(", "))]
    Unknown { root: PathBuf, wanted: String, available: Vec<String> },
    #[error("{} has several environments: choose one of {}", root.display(), available.join(", "))]
    Ambiguous { root: PathBuf, available: Vec<String> },
    /// Shown as they are.
    #[error(transparent)]
    Findings(#[from] Findings),
}

/// Lists other files in place of the expected one, such as a file that ends in `.yml`.
fn instead(others: &[String]) -> String {
    match others {
        [] => String::new(),
        _ => format!(" (there is {})", others.join(", ")),
    }
}

impl Project {
    /// Lists a project directory, without hidden entries.
    pub fn open(root: impl Into<PathBuf>) -> Result<Project, OpenProjectError> {
        let root = root.into();
        let (environments, others) = environments(&root)?;
        if environments.is_empty() {
            return Err(OpenProjectError::NoEnvironments { directory: root.join("environments"), others });
        }
        let releases = releases(&root)?;
        Ok(Project { root, environments, releases })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Names of the environments, sorted. They are checked when loaded.
    pub fn environments(&self) -> &[String] {
        &self.environments
    }

    /// Versions with a release, sorted as text.
    pub fn releases(&self) -> &[Version] {
        &self.releases
    }

    /// Directory of a release.
    pub fn release_dir(&self, version: &Version) -> PathBuf {
        self.root.join("releases").join(version.as_str())
    }

    /// Loads an environment; without a name, the only one.
    pub fn environment(&self, wanted: Option<&str>) -> Result<WithWarnings<Environment>, LoadEnvironmentError> {
        let (root, available) = (self.root.clone(), self.environments.clone());
        let name = match (wanted, self.environments.as_slice()) {
            (None, [only]) => only,
            (None, _) => return Err(LoadEnvironmentError::Ambiguous { root, available }),
            (Some(wanted), names) => match names.iter().find(|name| *name == wanted) {
                Some(name) => name,
                None => return Err(LoadEnvironmentError::Unknown { root, wanted: wanted.to_owned(), available }),
            },
        };
        Ok(Environment::read(&self.root.join("environments").join(format!("{name}.yaml")))?)
    }
}

/// Names of the environment files, and of the other files in the directory.
fn environments(root: &Path) -> Result<(Vec<String>, Vec<String>), OpenProjectError> {
    let directory = root.join("environments");
    if !directory.is_dir() {
        return Err(OpenProjectError::NotAProject { root: root.to_owned(), missing: directory });
    }
    let (mut names, mut others) = (Vec::new(), Vec::new());
    for entry in visible(&directory)? {
        let path = entry.path();
        if path.is_dir() {
            continue;
        }
        match (path.extension(), path.file_stem().and_then(OsStr::to_str)) {
            (Some(extension), Some(stem)) if extension == "yaml" => names.push(stem.to_owned()),
            _ => others.push(entry.file_name().to_string_lossy().into_owned()),
        }
    }
    Ok((names, others))
}

fn releases(root: &Path) -> Result<Vec<Version>, OpenProjectError> {
    let directory = root.join("releases");
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let mut versions = Vec::new();
    for entry in visible(&directory)? {
        let path = entry.path();
        if path.is_dir() {
            let version = Version::new(entry.file_name().to_string_lossy());
            versions.push(version.map_err(|source| OpenProjectError::ReleaseName { path, source })?);
        }
    }
    Ok(versions)
}

/// Entries of a directory that are not hidden, sorted by name.
fn visible(directory: &Path) -> Result<Vec<DirEntry>, OpenProjectError> {
    let unreadable = |source| OpenProjectError::Unreadable { path: directory.to_owned(), source };
    let mut entries =
        fs::read_dir(directory).and_then(|entries| entries.collect::<Result<Vec<_>, _>>()).map_err(unreadable)?;
    entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}
