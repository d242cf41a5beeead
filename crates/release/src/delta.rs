//! The difference between two releases: a node that has one of them needs only the changed files of the other.
//!
//! A delta is a `tar.zst` with two kinds of entries. The first entry is the list of unchanged files, one line each: the path,
//! and after a tab the path in the base if that is another one. The changed files follow, below `files/`.
//!
//! A delta is neither signed nor trusted. The unpacked release must have the content digest of its signed manifest, as after
//! [`crate::unpack()`], whatever the delta and the base contain.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use muster_core::release::manifest::{Digest, Manifest};
use thiserror::Error;

use crate::bundle::{UnpackError, add_file, compressor, create_directory, create_parent, verify_unpacked, write_entry};
use crate::contents::ReleaseContents;
use crate::entries::{BundleEntry, EntryError, EntryKind, VisitError, visit};
use crate::temp_path::TempPath;
use crate::tree::{FILE_LIMIT, PATH_LIMIT, path_problem};

/// Entry with the list of unchanged files.
const UNCHANGED: &str = "unchanged";
/// Directory of the changed files.
const FILES: &str = "files/";
/// Bytes of the list of unchanged files: two paths, a tab and a line break for each.
const LIST_LIMIT: u64 = (FILE_LIMIT * (2 * PATH_LIMIT + 2)) as u64;

#[derive(Debug, Error)]
pub enum PackDeltaError {
    #[error("the bundle cannot be read")]
    Bundle(#[from] EntryError),
    #[error("the path {path:?} is too long for a delta")]
    Path { path: String },
    #[error("the delta cannot be written")]
    Write(#[from] io::Error),
}

/// Number of files of a delta, and bytes of those that it contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeltaInfo {
    pub unchanged: usize,
    pub changed: usize,
    pub changed_size: u64,
}

/// Writes what a node with `base` needs for `target`. `bundle` is the bundle of `target`, from its first byte.
pub fn pack_delta(
    base: &ReleaseContents,
    target: &ReleaseContents,
    bundle: impl Read,
    to: impl Write,
) -> Result<DeltaInfo, PackDeltaError> {
    let (list, changed) = compare(base, target);
    let mut info = DeltaInfo { unchanged: target.len() - changed.len(), changed: changed.len(), changed_size: 0 };
    let mut tar = tar::Builder::new(compressor(to)?);
    add_file(&mut tar, UNCHANGED, false, list.len() as u64, list.as_bytes())?;
    let visited = visit(BufReader::new(bundle), None, |entry, content| match entry.kind {
        EntryKind::File { executable, size } if changed.contains(entry.path.as_str()) => {
            let path = format!("{FILES}{}", entry.path);
            if path_problem(&path).is_some() {
                return Err(PackDeltaError::Path { path: entry.path.clone() });
            }
            info.changed_size += size;
            Ok(add_file(&mut tar, &path, executable, size, content)?)
        }
        EntryKind::File { .. } => Ok(io::copy(content, &mut io::sink()).map(drop)?),
        EntryKind::Directory => Ok(()),
    });
    visited.map_err(|error| match error {
        VisitError::Bundle(error) => PackDeltaError::Bundle(error),
        VisitError::Visitor(error) => error,
    })?;
    tar.into_inner().and_then(zstd::Encoder::finish)?.flush()?;
    Ok(info)
}

/// The list of unchanged files, and the paths of the changed ones. A file that was moved or copied is unchanged.
fn compare<'t>(base: &ReleaseContents, target: &'t ReleaseContents) -> (String, BTreeSet<&'t str>) {
    let mut by_digest: HashMap<(&Digest, bool), &str> = HashMap::new();
    for (path, file) in base {
        by_digest.insert((&file.digest, file.executable), path);
    }
    let (mut list, mut changed) = (String::new(), BTreeSet::new());
    for (path, file) in target {
        let same_path = base.get(path).is_some_and(|before| before == file);
        match by_digest.get(&(&file.digest, file.executable)) {
            Some(_) if same_path => list.push_str(path),
            Some(before) => {
                list.push_str(path);
                list.push('\t');
                list.push_str(before);
            }
            None => {
                changed.insert(path.as_str());
                continue;
            }
        }
        list.push('\n');
    }
    (list, changed)
}

#[derive(Debug, Error)]
pub enum UnpackDeltaError {
    #[error("cannot read the delta {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the delta has the unknown entry {entry:?}")]
    Entry { entry: String },
    #[error("the list of unchanged files of the delta is not valid: {problem}")]
    List { problem: String },
    #[error("cannot take {} from the previous release", path.display())]
    Base {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Unpack(#[from] UnpackError),
}

/// Builds a release in `target`, which must not exist and is removed on failure: unchanged files are hard links to those of
/// `base`, which must be on the same file system.
///
/// The caller verifies the manifest: see [`crate::manifest`].
pub fn unpack_delta(
    delta: &Path,
    base: &Path,
    manifest: &Manifest,
    target: &Path,
) -> Result<DeltaInfo, UnpackDeltaError> {
    let file = File::open(delta).map_err(|source| UnpackDeltaError::Read { path: delta.to_owned(), source })?;
    create_directory(target)?;
    let unpacked = TempPath::new(target);
    let mut info = DeltaInfo::default();
    let limit = manifest.content_size.map(|size| size.saturating_add(LIST_LIMIT));
    let visited = visit(BufReader::new(file), limit, |entry, content| {
        match (entry.kind, entry.path.strip_prefix(FILES)) {
            (EntryKind::File { size, .. }, Some(path)) => {
                info.changed += 1;
                info.changed_size += size;
                let entry = BundleEntry { path: path.to_owned(), kind: entry.kind };
                write_entry(target, &entry, content)?;
            }
            (EntryKind::File { size, .. }, None) if entry.path == UNCHANGED && size <= LIST_LIMIT => {
                info.unchanged = link_unchanged(content, base, target)?;
            }
            (EntryKind::File { .. } | EntryKind::Directory, _) => {
                return Err(UnpackDeltaError::Entry { entry: entry.path.clone() });
            }
        }
        Ok(())
    });
    visited.map_err(|error| match error {
        VisitError::Bundle(error) => UnpackDeltaError::Unpack(error.into()),
        VisitError::Visitor(error) => error,
    })?;
    verify_unpacked(target, manifest)?;
    unpacked.keep();
    Ok(info)
}

/// Links the listed files, and returns their number.
fn link_unchanged(list: &mut dyn Read, base: &Path, target: &Path) -> Result<usize, UnpackDeltaError> {
    let mut count = 0;
    for line in BufReader::new(list).lines() {
        let line = line.map_err(|error| UnpackDeltaError::List { problem: error.to_string() })?;
        let (path, before) = line.split_once('\t').unwrap_or((&line, &line));
        if let Some(problem) = path_problem(path).or_else(|| path_problem(before)) {
            return Err(UnpackDeltaError::List { problem: format!("{line:?} {problem}") });
        }
        link(&base.join(before), &target.join(path))?;
        count += 1;
        if count > FILE_LIMIT {
            return Err(UnpackDeltaError::List { problem: format!("it has more than {FILE_LIMIT} files") });
        }
    }
    Ok(count)
}

/// Links a file of the base, or copies it where the file system allows no further link.
fn link(before: &Path, path: &Path) -> Result<(), UnpackDeltaError> {
    let missing = |source| UnpackDeltaError::Base { path: before.to_owned(), source };
    if !fs::symlink_metadata(before).map_err(missing)?.is_file() {
        return Err(missing(io::Error::other("it is not a file")));
    }
    create_parent(path)?;
    match fs::hard_link(before, path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::TooManyLinks | io::ErrorKind::PermissionDenied) => {
            fs::copy(before, path).map(drop).map_err(missing)
        }
        linked => linked.map_err(missing),
    }
}
