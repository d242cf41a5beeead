//! The files of a release before packing, from its directory and its repositories, and the size limits of a release.
//!
//! Building checks the same limits as unpacking: a release that builds can be unpacked on a node. A symbolic link that stays
//! inside the release becomes a copy of its target; nodes never see a link.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use thiserror::Error;

use crate::exclude::ExcludeRules;

pub use muster_core::release::dir::{FILE_LIMIT, SIZE_LIMIT};

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
        "{} is neither a file nor a directory: a release cannot contain devices or sockets; replace it by a regular file, \
         or remove it",
        path.display()
    )]
    NotAFile { path: PathBuf },
    #[error("the link {path:?} points to {}, which {problem}: replace it by a copy, or add it to `exclude`", target.display())]
    Link { path: String, target: PathBuf, problem: &'static str },
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
    /// All directories, including empty ones, which a bundle does not have.
    directories: BTreeSet<String>,
    size: u64,
    rules: ExcludeRules,
}

/// A directory that remains to be read.
struct PendingDirectory {
    /// Path in the release; empty for its root.
    inside: String,
    full: PathBuf,
    /// Resolved paths of this directory and its parents if a link was followed on the way, to detect loops.
    chain: Vec<PathBuf>,
}

impl ReleaseTree {
    /// Reads a directory, without the files that its `release.yaml` excludes.
    pub fn read(root: &Path) -> Result<Self, ReleaseTreeError> {
        Self::read_part(root, "", ExcludeRules::read(root))
    }

    /// Reads a directory that becomes the directory `part` of a release with these rules.
    pub(crate) fn read_part(root: &Path, part: &str, rules: ExcludeRules) -> Result<Self, ReleaseTreeError> {
        let mut tree = Self { root: root.to_owned(), rules, ..Self::default() };
        let mut pending = vec![PendingDirectory { inside: String::new(), full: root.to_owned(), chain: Vec::new() }];
        while let Some(directory) = pending.pop() {
            let failed = |source| ReleaseTreeError::Io { path: directory.full.clone(), source };
            for entry in fs::read_dir(&directory.full).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                let name = path.file_name().and_then(|name| name.to_str());
                let Some(name) = name else { return Err(ReleaseTreeError::Name { path }) };
                let inside = join(&directory.inside, name);
                let failed = |source| ReleaseTreeError::Io { path: path.clone(), source };
                let own = fs::symlink_metadata(&path).map_err(failed)?;
                // The target of a link that is excluded is not examined. `spec/` excludes a link to a directory too.
                if tree.rules.excludes(&join(part, &inside), own.is_dir() || own.is_symlink()) {
                    continue;
                }
                let (meta, chain) = match own.is_symlink() {
                    true => tree.follow(&path, &inside, &directory)?,
                    false => (own, directory.chain.clone()),
                };
                if meta.is_dir() {
                    tree.add_directory(&inside)?;
                    let chain = if chain.is_empty() { chain } else { extended(chain, &path)? };
                    pending.push(PendingDirectory { inside, full: path, chain });
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

    /// Resolves a link. Returns the metadata of its target, and the resolved parents of the link.
    fn follow(
        &self,
        path: &Path,
        inside: &str,
        directory: &PendingDirectory,
    ) -> Result<(fs::Metadata, Vec<PathBuf>), ReleaseTreeError> {
        let failed = |source| ReleaseTreeError::Io { path: path.to_owned(), source };
        let target = fs::read_link(path).map_err(failed)?;
        let refused = |problem| ReleaseTreeError::Link { path: inside.to_owned(), target: target.clone(), problem };
        let resolved = path.canonicalize().map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                refused("does not exist")
            } else if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
                refused("is a loop of links")
            } else {
                failed(error)
            }
        })?;
        let root = self.root.canonicalize().map_err(failed)?;
        if !resolved.starts_with(&root) {
            return Err(refused("is outside of the release"));
        }
        let above = directory.full.canonicalize().map_err(failed)?;
        let mut chain = directory.chain.clone();
        chain.push(above);
        if chain.iter().any(|above| above.starts_with(&resolved)) {
            return Err(refused("contains the link itself"));
        }
        Ok((fs::metadata(path).map_err(failed)?, chain))
    }

    fn add_directory(&mut self, inside: &str) -> Result<(), ReleaseTreeError> {
        if let Some(problem) = path_problem(inside) {
            return Err(ReleaseTreeError::Path { path: inside.to_owned(), problem });
        }
        self.directories.insert(inside.to_owned());
        if self.directories.len() > DIRECTORY_LIMIT {
            return Err(ReleaseTreeError::TooManyDirectories { root: self.root.clone() });
        }
        Ok(())
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
        self.directories.insert(directory.to_owned());
        self.directories.extend(other.directories.iter().map(|path| format!("{directory}/{path}")));
        Ok(())
    }

    /// True if the directory exists, also if it is empty.
    pub fn has_directory(&self, directory: &str) -> bool {
        directory.is_empty() || self.directories.contains(directory) || self.has_files_in(directory)
    }

    pub fn has_files_in(&self, directory: &str) -> bool {
        self.below(directory).next().is_some()
    }

    /// The directory that was read. Files of repositories are elsewhere.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Rules for paths that are left out.
    pub fn rules(&self) -> &ExcludeRules {
        &self.rules
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

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// The resolved parents with one more directory.
fn extended(mut chain: Vec<PathBuf>, path: &Path) -> Result<Vec<PathBuf>, ReleaseTreeError> {
    let failed = |source| ReleaseTreeError::Io { path: path.to_owned(), source };
    chain.push(path.canonicalize().map_err(failed)?);
    Ok(chain)
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
