//! A project directory: the environments and releases that an operator keeps together.
//!
//! ```text
//! examples/quickstart/
//! ├── environments/
//! │   └── quickstart.yaml      one file an environment
//! └── releases/
//!     ├── v1/                  one directory a version
//!     └── v2/
//! ```
//!
//! Only names are read when a project is opened; a file is read when somebody asks for its environment.

use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use muster_core::names::{NameError, Version};
use thiserror::Error;

use crate::environment::Environment;
use crate::finding::{Accepted, Findings};

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
    #[error("the name of the release directory {} is no version", path.display())]
    ReleaseName { path: PathBuf, source: NameError },
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
}

#[derive(Debug, Error)]
pub enum LoadEnvironmentError {
    #[error("there is no environment {wanted:?} in {}: there is {}", root.display(), available.join(", "))]
    Unknown { root: PathBuf, wanted: String, available: Vec<String> },
    #[error("{} has several environments: say which, of {}", root.display(), available.join(", "))]
    Ambiguous { root: PathBuf, available: Vec<String> },
    /// The findings are the whole story: show them as they are.
    #[error(transparent)]
    Findings(#[from] Findings),
}

/// Names what is there in place of what was looked for: most often a file that ends in `.yml`.
fn instead(others: &[String]) -> String {
    match others {
        [] => String::new(),
        _ => format!(" (there is {})", others.join(", ")),
    }
}

impl Project {
    /// Looks at what is in a project directory. Hidden entries are passed over.
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

    /// The names of the environments, sorted; whether one is legal is found out when it is loaded.
    pub fn environments(&self) -> &[String] {
        &self.environments
    }

    /// The versions that there are releases of, sorted as text.
    pub fn releases(&self) -> &[Version] {
        &self.releases
    }

    /// Where the content of a release is.
    pub fn release_dir(&self, version: &Version) -> PathBuf {
        self.root.join("releases").join(version.as_str())
    }

    /// Loads an environment; without a name, the only one.
    pub fn environment(&self, wanted: Option<&str>) -> Result<Accepted<Environment>, LoadEnvironmentError> {
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

/// The names of the environment files, and those of the other files that are there.
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

/// The entries of a directory that are not hidden, sorted: the order of the file system is nobody's.
fn visible(directory: &Path) -> Result<Vec<DirEntry>, OpenProjectError> {
    let unreadable = |source| OpenProjectError::Unreadable { path: directory.to_owned(), source };
    let mut entries =
        fs::read_dir(directory).and_then(|entries| entries.collect::<Result<Vec<_>, _>>()).map_err(unreadable)?;
    entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}
