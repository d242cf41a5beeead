//! The files of a release before packing, from its directory and its repositories, and the size limits of a release.
//!
//! Building checks the same limits as unpacking: a release that builds can be unpacked on a node.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use thiserror::Error;

pub use muster_core::release::dir::{FILE_LIMIT, SIZE_LIMIT};

/// Excluded from releases: it differs between two clones of the same commit.
const GIT: &str = ".git";
/// Number of directories: each file may be alone in its directory.
pub const DIRECTORY_LIMIT: usize = FILE_LIMIT;
/// Parts of a path. A deeper path is a mistake, such as a directory that was copied into itself.
pub const DEPTH_LIMIT: usize = 32;
/// Bytes of a path. With the node's own directory in front, it must fit into PATH_MAX of Linux.
pub const PATH_LIMIT: usize = 512;
/// Compression window of a bundle, as a power of two: 4 MiB. The agent that unpacks the bundle needs as much memory.
pub const WINDOW_LOG: u32 = 22;
/// A bundle with a larger window is refused before the memory is allocated.
pub const WINDOW_LOG_LIMIT: u32 = 23;
/// Bytes of a bundle. Content that does not compress grows by far less than an eighth.
pub const BUNDLE_LIMIT: u64 = SIZE_LIMIT + SIZE_LIMIT / 8;

#[derive(Debug, Error)]
pub enum ReleaseTreeError {
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
pub struct ReleaseTree {
    root: PathBuf,
    files: BTreeMap<String, TreeFile>,
    size: u64,
}

impl ReleaseTree {
    /// Reads a directory, without `.git`.
    pub fn read(root: &Path) -> Result<Self, ReleaseTreeError> {
        let mut tree = Self { root: root.to_owned(), ..Self::default() };
        let mut pending = vec![String::new()];
        let mut directories = 0;
        while let Some(directory) = pending.pop() {
            let full = if directory.is_empty() { root.to_owned() } else { root.join(&directory) };
            let failed = |source| ReleaseTreeError::Io { path: full.clone(), source };
            for entry in fs::read_dir(&full).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                let name = path.file_name().and_then(|name| name.to_str());
                let Some(name) = name else { return Err(ReleaseTreeError::Name { path }) };
                if name == GIT {
                    continue;
                }
                let inside = if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
                let failed = |source| ReleaseTreeError::Io { path: path.clone(), source };
                let meta = fs::symlink_metadata(&path).map_err(failed)?;
                if meta.is_dir() {
                    directories += 1;
                    if directories > DIRECTORY_LIMIT {
                        return Err(ReleaseTreeError::TooManyDirectories { root: root.to_owned() });
                    }
                    if let Some(problem) = path_problem(&inside) {
                        return Err(ReleaseTreeError::Path { path: inside, problem });
                    }
                    pending.push(inside);
                } else if meta.is_file() {
                    let executable = meta.permissions().mode() & 0o111 != 0;
                    tree.put(inside, TreeFile { executable, size: meta.len(), source: path })?;
                } else {
                    return Err(ReleaseTreeError::NotAFile { path });
                }
            }
        }
        Ok(tree)
    }

    fn put(&mut self, path: String, file: TreeFile) -> Result<(), ReleaseTreeError> {
        if let Some(problem) = path_problem(&path) {
            return Err(ReleaseTreeError::Path { path, problem });
        }
        self.size = self.size.saturating_add(file.size);
        if self.size > SIZE_LIMIT {
            return Err(ReleaseTreeError::TooLarge { root: self.root.clone() });
        }
        self.files.insert(path, file);
        if self.files.len() > FILE_LIMIT {
            return Err(ReleaseTreeError::TooManyFiles { root: self.root.clone() });
        }
        Ok(())
    }

    /// Adds another tree as a directory of this one, which must not exist yet.
    pub fn add(&mut self, directory: &str, other: ReleaseTree) -> Result<(), ReleaseTreeError> {
        if let Some(path) = self.occupied_by(directory) {
            return Err(ReleaseTreeError::PathInUse { path });
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

/// Checks a path of a release. Returns the problem as a phrase that follows the path in a message.
pub(crate) fn path_problem(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("is empty");
    }
    if path.starts_with('/') {
        return Some("is absolute");
    }
    if path.len() > PATH_LIMIT {
        return Some("is longer than 512 bytes");
    }
    if path.split('/').any(|part| part == "..") {
        return Some("leads out of the release");
    }
    if path.split('/').any(|part| part.is_empty() || part == ".") {
        return Some("is not written in its shortest form");
    }
    if path.split('/').count() > DEPTH_LIMIT {
        return Some("has more than 32 parts");
    }
    path.chars().any(char::is_control).then_some("contains a control character")
}
