//! Reads the entries of a bundle, and refuses every one that a release does not hold. Nothing is written here.
//!
//! A bundle is what [`crate::pack()`] makes: regular files, long names as GNU tar writes them, and nothing else that tar knows.
//! So it is read entry by entry as it stands: an extended header, or a sparse file, is an unknown kind of entry and is
//! refused, and no name is ever longer than a path may be. Memory is bounded by the limits, whatever the bundle says.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use thiserror::Error;

use crate::limits::{DIRECTORY_LIMIT, FILE_LIMIT, PATH_LIMIT, SIZE_LIMIT, WINDOW_LOG_LIMIT, path_problem};

/// Why a bundle is not one, with the entry at fault.
#[derive(Debug, Error)]
pub enum EntryError {
    #[error("the bundle is damaged, or no bundle: it cannot be decompressed")]
    Damaged(#[source] io::Error),
    #[error("the bundle ends within {entry:?}")]
    Truncated { entry: String },
    #[error("{entry:?} is {kind}: a release holds files and directories alone")]
    NotAFile { entry: String, kind: &'static str },
    #[error("the path {entry:?} {problem}")]
    Path { entry: String, problem: &'static str },
    #[error("the name {entry:?} is not UTF-8")]
    NotUtf8 { entry: String },
    #[error("{entry:?} is there twice")]
    Duplicate { entry: String },
    #[error("{entry:?} goes through {file:?}, which is a file")]
    ThroughFile { entry: String, file: String },
    #[error("there are more than {FILE_LIMIT} files; {entry:?} is one too many")]
    TooManyFiles { entry: String },
    #[error("there are more than {DIRECTORY_LIMIT} directories; {entry:?} is one too many")]
    TooManyDirectories { entry: String },
    #[error("with {entry:?} the release is larger than {} MiB", SIZE_LIMIT / 1024 / 1024)]
    TooLarge { entry: String },
}

/// One entry of a bundle that may be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub path: String,
    pub kind: EntryKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    Directory,
    File { executable: bool, size: u64 },
}

/// Whoever visits the entries failed, or the bundle did.
#[derive(Debug)]
pub(crate) enum VisitError<E> {
    Bundle(EntryError),
    Visitor(E),
}

/// Calls `visit` with each entry in turn and its content; that reads all of it or fails.
pub(crate) fn visit<E>(
    bundle: impl BufRead,
    mut visit: impl FnMut(&Entry, &mut dyn Read) -> Result<(), E>,
) -> Result<(), VisitError<E>> {
    let damaged = |source| VisitError::Bundle(EntryError::Damaged(source));
    let mut zstd = zstd::Decoder::with_buffer(bundle).map_err(damaged)?;
    zstd.window_log_max(WINDOW_LOG_LIMIT).map_err(damaged)?;
    let mut archive = tar::Archive::new(zstd);
    let mut seen = Seen::default();
    let mut long_name = None;
    for entry in archive.entries().map_err(damaged)?.raw(true) {
        let mut entry = entry.map_err(damaged)?;
        if entry.header().entry_type() == tar::EntryType::GNULongName {
            long_name = Some(read_long_name(&mut entry, long_name.as_deref()).map_err(VisitError::Bundle)?);
            continue;
        }
        let name = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let found = understand(name, &entry).and_then(|found| seen.admit(&found).map(|()| found));
        let found = found.map_err(VisitError::Bundle)?;
        let mut counted = Counted { inner: &mut entry, read: 0, failed: None };
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
        Some(name) => Err(VisitError::Bundle(EntryError::Truncated { entry: shown(&name) })),
    }
}

fn read_long_name<R: Read>(entry: &mut tar::Entry<'_, R>, before: Option<&[u8]>) -> Result<Vec<u8>, EntryError> {
    if let Some(before) = before {
        return Err(EntryError::NotAFile { entry: shown(before), kind: "a name without a file" });
    }
    // One more for the zero at its end, and one to see that it is too long.
    let mut name = Vec::new();
    entry.take(PATH_LIMIT as u64 + 2).read_to_end(&mut name).map_err(EntryError::Damaged)?;
    if name.last() == Some(&0) {
        name.pop();
    }
    if name.len() > PATH_LIMIT {
        return Err(EntryError::Path { entry: shown(&name), problem: "is longer than 512 bytes" });
    }
    Ok(name)
}

fn understand<R: Read>(name: Vec<u8>, entry: &tar::Entry<'_, R>) -> Result<Entry, EntryError> {
    let mut path = String::from_utf8(name).map_err(|error| EntryError::NotUtf8 { entry: shown(error.as_bytes()) })?;
    let refused = |kind| Err(EntryError::NotAFile { entry: path.clone(), kind });
    let kind = match entry.header().entry_type() {
        tar::EntryType::Regular => {
            // Who wrote no mode that can be read did not make this bundle with us.
            let mode = entry.header().mode().map_err(EntryError::Damaged)?;
            EntryKind::File { executable: mode & 0o111 != 0, size: entry.size() }
        }
        tar::EntryType::Directory => EntryKind::Directory,
        tar::EntryType::Symlink | tar::EntryType::Link => return refused("a link"),
        tar::EntryType::Char | tar::EntryType::Block => return refused("a device"),
        tar::EntryType::Fifo => return refused("a named pipe"),
        tar::EntryType::GNUSparse | tar::EntryType::Continuous => return refused("an unusual kind of file"),
        tar::EntryType::GNULongName
        | tar::EntryType::GNULongLink
        | tar::EntryType::XGlobalHeader
        | tar::EntryType::XHeader => return refused("an extended header"),
        // The library's list is open.
        _ => return refused("of a kind that is not known"),
    };
    if kind == EntryKind::Directory && path.ends_with('/') {
        path.pop();
    }
    match path_problem(&path) {
        Some(problem) => Err(EntryError::Path { entry: shown(path.as_bytes()), problem }),
        None => Ok(Entry { path, kind }),
    }
}

/// A name for a message: what is not text, and what is too long, does not reach a person's terminal.
fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    if text.chars().count() <= 80 { text.into_owned() } else { text.chars().take(79).chain(['…']).collect() }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    File,
    /// A directory that an entry of its own names.
    Directory,
    /// A directory that only paths go through so far.
    Implied,
}

/// What has been admitted so far.
#[derive(Default)]
struct Seen {
    what: HashMap<String, What>,
    files: usize,
    directories: usize,
    size: u64,
}

impl Seen {
    fn admit(&mut self, entry: &Entry) -> Result<(), EntryError> {
        let path = &entry.path;
        for (end, _) in path.match_indices('/') {
            let above = &path[..end];
            match self.what.get(above) {
                Some(What::File) => {
                    return Err(EntryError::ThroughFile { entry: path.clone(), file: above.to_owned() });
                }
                Some(What::Directory | What::Implied) => {}
                None => self.add_directory(above, What::Implied, path)?,
            }
        }
        match (entry.kind, self.what.get(path)) {
            (EntryKind::Directory, Some(What::Implied)) => {
                self.what.insert(path.clone(), What::Directory);
                Ok(())
            }
            (EntryKind::Directory, None) => self.add_directory(path, What::Directory, path),
            (EntryKind::File { size, .. }, None) => {
                self.files += 1;
                if self.files > FILE_LIMIT {
                    return Err(EntryError::TooManyFiles { entry: path.clone() });
                }
                self.size = self.size.saturating_add(size);
                if self.size > SIZE_LIMIT {
                    return Err(EntryError::TooLarge { entry: path.clone() });
                }
                self.what.insert(path.clone(), What::File);
                Ok(())
            }
            (EntryKind::Directory | EntryKind::File { .. }, Some(_)) => {
                Err(EntryError::Duplicate { entry: path.clone() })
            }
        }
    }

    fn add_directory(&mut self, directory: &str, what: What, entry: &str) -> Result<(), EntryError> {
        self.directories += 1;
        if self.directories > DIRECTORY_LIMIT {
            return Err(EntryError::TooManyDirectories { entry: entry.to_owned() });
        }
        self.what.insert(directory.to_owned(), what);
        Ok(())
    }
}

/// Counts what was read, and remembers whether it was the bundle that failed.
struct Counted<'r, R> {
    inner: &'r mut R,
    read: u64,
    failed: Option<io::Error>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(read) => {
                self.read += read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let told = io::Error::new(error.kind(), "the bundle cannot be read");
                self.failed = Some(error);
                Err(told)
            }
        }
    }
}
