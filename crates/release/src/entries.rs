//! Reads the entries of a bundle and refuses every entry that a release cannot contain. Writes nothing.
//!
//! A bundle as [`crate::pack()`] writes it has regular files and GNU long names, and no other tar features. Extended headers
//! and sparse files are refused, and names are limited to the length of a path. Memory use is bounded by the limits,
//! independent of the content of the bundle.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use thiserror::Error;

use crate::tree::{DIRECTORY_LIMIT, FILE_LIMIT, PATH_LIMIT, SIZE_LIMIT, WINDOW_LOG_LIMIT, path_problem};

/// Reasons to refuse a bundle, with the entry at fault.
#[derive(Debug, Error)]
pub enum EntryError {
    #[error("the bundle is damaged, or is not a bundle: it cannot be decompressed")]
    Damaged(#[source] io::Error),
    #[error("the bundle ends within {entry:?}")]
    Truncated { entry: String },
    #[error("{entry:?} is {kind}: a release contains files and directories only")]
    NotAFile { entry: String, kind: &'static str },
    #[error("the path {entry:?} {problem}")]
    Path { entry: String, problem: &'static str },
    #[error("the name {entry:?} is not UTF-8")]
    NotUtf8 { entry: String },
    #[error("{entry:?} occurs twice")]
    Duplicate { entry: String },
    #[error("{entry:?} goes through {file:?}, which is a file")]
    ThroughFile { entry: String, file: String },
    #[error("there are more than {FILE_LIMIT} files; {entry:?} is one too many")]
    TooManyFiles { entry: String },
    #[error("there are more than {DIRECTORY_LIMIT} directories; {entry:?} is one too many")]
    TooManyDirectories { entry: String },
    #[error("with {entry:?} the release is larger than {} MiB", SIZE_LIMIT / 1024 / 1024)]
    TooLarge { entry: String },
    #[error("with {entry:?} the files declare more than the {declared} bytes of the manifest")]
    MoreThanDeclared { entry: String, declared: u64 },
    #[error("the directory {entry:?} declares {size} bytes of content: directories have none")]
    DirectoryWithContent { entry: String, size: u64 },
    #[error("{entry:?} is not in the order of the paths: build the bundle with `muster release build`")]
    OutOfOrder { entry: String },
}

/// One valid entry of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleEntry {
    pub path: String,
    pub kind: EntryKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    Directory,
    File { executable: bool, size: u64 },
}

/// An error of the bundle, or of the visitor.
#[derive(Debug)]
pub(crate) enum VisitError<E> {
    Bundle(EntryError),
    Visitor(E),
}

/// Calls `visit` with each entry and its content. The visitor reads all of the content or returns an error.
///
/// `content_size` is the total size of the files in the manifest, if it is known. Every entry is refused by its header:
/// content that a release cannot have is not decompressed.
pub(crate) fn visit<E>(
    bundle: impl BufRead,
    content_size: Option<u64>,
    mut visit: impl FnMut(&BundleEntry, &mut dyn Read) -> Result<(), E>,
) -> Result<(), VisitError<E>> {
    let damaged = |source| VisitError::Bundle(EntryError::Damaged(source));
    let mut zstd = zstd::Decoder::with_buffer(bundle).map_err(damaged)?;
    zstd.window_log_max(WINDOW_LOG_LIMIT).map_err(damaged)?;
    let mut archive = tar::Archive::new(zstd);
    let mut admitted = AdmittedEntries { content_size, ..AdmittedEntries::default() };
    let mut long_name = None;
    for entry in archive.entries().map_err(damaged)?.raw(true) {
        let mut entry = entry.map_err(damaged)?;
        if entry.header().entry_type() == tar::EntryType::GNULongName {
            long_name = Some(read_long_name(&mut entry, long_name.as_deref()).map_err(VisitError::Bundle)?);
            continue;
        }
        let name = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let found = parse_entry(name, &entry).and_then(|found| admitted.admit(&found).map(|()| found));
        let found = found.map_err(VisitError::Bundle)?;
        let mut counted = CountingReader { inner: &mut entry, read: 0, failed: None };
        let visited = visit(&found, &mut counted);
        if let Some(error) = counted.failed.take() {
            return Err(damaged(error));
        }
        visited.map_err(VisitError::Visitor)?;
        match found.kind {
            EntryKind::File { size, .. } if counted.read != size => {
                return Err(VisitError::Bundle(EntryError::Truncated { entry: found.path }));
            }
            EntryKind::File { .. } | EntryKind::Directory => {}
        }
    }
    match long_name {
        None => Ok(()),
        Some(name) => Err(VisitError::Bundle(EntryError::Truncated { entry: printable(&name) })),
    }
}

fn read_long_name<R: Read>(entry: &mut tar::Entry<'_, R>, before: Option<&[u8]>) -> Result<Vec<u8>, EntryError> {
    if let Some(before) = before {
        return Err(EntryError::NotAFile { entry: printable(before), kind: "a name without a file" });
    }
    // One more byte for the zero at its end, and one to detect a name that is too long.
    let (size, most) = (entry.size(), PATH_LIMIT as u64 + 2);
    let mut name = Vec::new();
    entry.take(most).read_to_end(&mut name).map_err(EntryError::Damaged)?;
    if (name.len() as u64) < size.min(most) {
        return Err(EntryError::Truncated { entry: printable(&name) });
    }
    if name.last() == Some(&0) {
        name.pop();
    }
    if name.len() > PATH_LIMIT || size > most {
        return Err(EntryError::Path { entry: printable(&name), problem: "is longer than 512 bytes" });
    }
    Ok(name)
}

fn parse_entry<R: Read>(name: Vec<u8>, entry: &tar::Entry<'_, R>) -> Result<BundleEntry, EntryError> {
    let mut path =
        String::from_utf8(name).map_err(|error| EntryError::NotUtf8 { entry: printable(error.as_bytes()) })?;
    let refused = |kind| Err(EntryError::NotAFile { entry: path.clone(), kind });
    let kind = match entry.header().entry_type() {
        tar::EntryType::Regular => {
            // Bundles of `pack` always have a valid mode.
            let mode = entry.header().mode().map_err(EntryError::Damaged)?;
            EntryKind::File { executable: mode & 0o111 != 0, size: entry.size() }
        }
        tar::EntryType::Directory if entry.size() > 0 => {
            return Err(EntryError::DirectoryWithContent { entry: path, size: entry.size() });
        }
        tar::EntryType::Directory => EntryKind::Directory,
        tar::EntryType::Symlink | tar::EntryType::Link => return refused("a link"),
        tar::EntryType::Char | tar::EntryType::Block => return refused("a device"),
        tar::EntryType::Fifo => return refused("a named pipe"),
        tar::EntryType::GNUSparse | tar::EntryType::Continuous => return refused("a special kind of file"),
        tar::EntryType::GNULongName
        | tar::EntryType::GNULongLink
        | tar::EntryType::XGlobalHeader
        | tar::EntryType::XHeader => return refused("an extended header"),
        // The enum of the library is not exhaustive.
        _ => return refused("of an unknown kind"),
    };
    if kind == EntryKind::Directory && path.ends_with('/') {
        path.pop();
    }
    match path_problem(&path) {
        Some(problem) => Err(EntryError::Path { entry: printable(path.as_bytes()), problem }),
        None => Ok(BundleEntry { path, kind }),
    }
}

/// A name for a message: shortened to 80 characters, with invalid UTF-8 replaced.
fn printable(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    if text.chars().count() <= 80 { text.into_owned() } else { text.chars().take(79).chain(['…']).collect() }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PathKind {
    File,
    /// A directory with an entry of its own.
    Directory,
    /// A parent directory without an entry so far.
    Implied,
}

/// The entries that were admitted so far.
#[derive(Default)]
struct AdmittedEntries {
    kinds: HashMap<String, PathKind>,
    files: usize,
    directories: usize,
    size: u64,
    /// Total size of the files in the manifest; none if it is not known.
    content_size: Option<u64>,
}

impl AdmittedEntries {
    fn admit(&mut self, entry: &BundleEntry) -> Result<(), EntryError> {
        let path = &entry.path;
        for (end, _) in path.match_indices('/') {
            let above = &path[..end];
            match self.kinds.get(above) {
                Some(PathKind::File) => {
                    return Err(EntryError::ThroughFile { entry: path.clone(), file: above.to_owned() });
                }
                Some(PathKind::Directory | PathKind::Implied) => {}
                None => self.add_directory(above, PathKind::Implied, path)?,
            }
        }
        match (entry.kind, self.kinds.get(path)) {
            (EntryKind::Directory, Some(PathKind::Implied)) => {
                self.kinds.insert(path.clone(), PathKind::Directory);
                Ok(())
            }
            (EntryKind::Directory, None) => self.add_directory(path, PathKind::Directory, path),
            (EntryKind::File { size, .. }, None) => {
                self.files += 1;
                if self.files > FILE_LIMIT {
                    return Err(EntryError::TooManyFiles { entry: path.clone() });
                }
                self.size = self.size.saturating_add(size);
                if self.size > SIZE_LIMIT {
                    return Err(EntryError::TooLarge { entry: path.clone() });
                }
                if let Some(declared) = self.content_size.filter(|declared| self.size > *declared) {
                    return Err(EntryError::MoreThanDeclared { entry: path.clone(), declared });
                }
                self.kinds.insert(path.clone(), PathKind::File);
                Ok(())
            }
            (EntryKind::Directory | EntryKind::File { .. }, Some(_)) => {
                Err(EntryError::Duplicate { entry: path.clone() })
            }
        }
    }

    fn add_directory(&mut self, directory: &str, kind: PathKind, entry: &str) -> Result<(), EntryError> {
        self.directories += 1;
        if self.directories > DIRECTORY_LIMIT {
            return Err(EntryError::TooManyDirectories { entry: entry.to_owned() });
        }
        self.kinds.insert(directory.to_owned(), kind);
        Ok(())
    }
}

/// Counts the bytes that were read, and keeps a read error apart from an error of the visitor.
struct CountingReader<'r, R> {
    inner: &'r mut R,
    read: u64,
    failed: Option<io::Error>,
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(read) => {
                self.read += read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let read_error = io::Error::new(error.kind(), "the bundle cannot be read");
                self.failed = Some(error);
                Err(read_error)
            }
        }
    }
}
