//! The files of a release before packing, from its directory and its repositories.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::limits::{DIRECTORY_LIMIT, FILE_LIMIT, SIZE_LIMIT, path_problem};

/// Excluded from releases: it differs between two clones of the same commit.
const GIT: &str = ".git";

#[derive(Debug, Error)]
pub enum TreeError {
    #[error("cannot read {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{} is neither a file nor a directory: a release cannot contain links, devices or sockets; replace it by a regular \
         file, or remove it",
        path.display()
    )]
    NotAFile { path: PathBuf },
    #[error("the name of {} is not UTF-8", path.display())]
    Name { path: PathBuf },
    #[error("{path:?} cannot be in a release: it {problem}")]
    Path { path: String, problem: &'static str },
    #[error("{} has more than {FILE_LIMIT} files", root.display())]
    TooManyFiles { root: PathBuf },
    #[error("{} has more than {DIRECTORY_LIMIT} directories", root.display())]
    TooManyDirectories { root: PathBuf },
    #[error(
        "{} is larger than {} MiB; distribute packages and images by other means",
        root.display(),
        SIZE_LIMIT / 1024 / 1024
    )]
    TooLarge { root: PathBuf },
    #[error("{path:?} exists already")]
    PathInUse { path: String },
}

/// One file, and the location of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    pub executable: bool,
    pub size: u64,
    pub source: PathBuf,
}

/// Files by their path in the release; this order is the order in the bundle.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    root: PathBuf,
    files: BTreeMap<String, TreeFile>,
    size: u64,
}

impl Tree {
    /// Reads a directory, without `.git`.
    pub fn read(root: &Path) -> Result<Self, TreeError> {
        let mut tree = Self { root: root.to_owned(), ..Self::default() };
        let mut pending = vec![String::new()];
        let mut directories = 0;
        while let Some(directory) = pending.pop() {
            let full = if directory.is_empty() { root.to_owned() } else { root.join(&directory) };
            let failed = |source| TreeError::Io { path: full.clone(), source };
            for entry in fs::read_dir(&full).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                let name = path.file_name().and_then(|name| name.to_str());
                let Some(name) = name else { return Err(TreeError::Name { path }) };
                if name == GIT {
                    continue;
                }
                let inside = if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
                let failed = |source| TreeError::Io { path: path.clone(), source };
                let meta = fs::symlink_metadata(&path).map_err(failed)?;
                if meta.is_dir() {
                    directories += 1;
                    if directories > DIRECTORY_LIMIT {
                        return Err(TreeError::TooManyDirectories { root: root.to_owned() });
                    }
                    if let Some(problem) = path_problem(&inside) {
                        return Err(TreeError::Path { path: inside, problem });
                    }
                    pending.push(inside);
                } else if meta.is_file() {
                    let executable = meta.permissions().mode() & 0o111 != 0;
                    tree.put(inside, TreeFile { executable, size: meta.len(), source: path })?;
                } else {
                    return Err(TreeError::NotAFile { path });
                }
            }
        }
        Ok(tree)
    }

    fn put(&mut self, path: String, file: TreeFile) -> Result<(), TreeError> {
        if let Some(problem) = path_problem(&path) {
            return Err(TreeError::Path { path, problem });
        }
        self.size = self.size.saturating_add(file.size);
        if self.size > SIZE_LIMIT {
            return Err(TreeError::TooLarge { root: self.root.clone() });
        }
        self.files.insert(path, file);
        if self.files.len() > FILE_LIMIT {
            return Err(TreeError::TooManyFiles { root: self.root.clone() });
        }
        Ok(())
    }

    /// Adds another tree as a directory of this one, which must not exist yet.
    pub fn add(&mut self, directory: &str, other: Tree) -> Result<(), TreeError> {
        if let Some(path) = self.occupied_by(directory) {
            return Err(TreeError::PathInUse { path });
        }
        for (path, file) in other.files {
            self.put(format!("{directory}/{path}"), file)?;
        }
        Ok(())
    }

    /// A file that prevents creating a directory: one inside it, or one in place of it or of a parent.
    pub fn occupied_by(&self, directory: &str) -> Option<String> {
        let inside = self.below(directory).next().map(|(path, _)| path.clone());
        let above = directory.match_indices('/').map(|(end, _)| &directory[..end]).chain([directory]);
        inside.or_else(|| above.filter(|path| self.files.contains_key(*path)).map(str::to_owned).next())
    }

    fn below<'t>(&'t self, directory: &str) -> impl Iterator<Item = (&'t String, &'t TreeFile)> + use<'t> {
        let prefix = format!("{directory}/");
        self.files.range(prefix.clone()..).take_while(move |(path, _)| path.starts_with(&prefix))
    }

    pub fn file(&self, path: &str) -> Option<&TreeFile> {
        self.files.get(path)
    }

    /// True if the directory has any file; empty directories are not part of a release.
    pub fn has_directory(&self, path: &str) -> bool {
        self.below(path).next().is_some()
    }

    pub fn files(&self) -> impl ExactSizeIterator<Item = (&str, &TreeFile)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    pub fn paths(&self) -> BTreeSet<&str> {
        self.files.keys().map(String::as_str).collect()
    }

    /// Total size of the files, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}
