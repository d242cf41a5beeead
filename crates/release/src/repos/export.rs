//! Exports the files of a commit byte for byte. Attributes, filters and line endings of this machine do not apply, which
//! makes the bundle the same on every machine.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::git::{Git, GitError};
use super::repos_files::Commit;
use crate::temp_path::TempPath;
use crate::tree::{FILE_LIMIT, SIZE_LIMIT, path_problem};

#[derive(Debug, Error)]
pub enum ExportError {
    #[error("{0}")]
    Git(GitError),
    #[error("there is no directory {path:?} in commit {commit}")]
    NoPath { path: String, commit: Commit },
    #[error("{path:?} is a submodule: add its repository to repos.yaml with a `dest` of its own")]
    Submodule { path: String },
    #[error("{path:?} cannot be in a release: it {problem}")]
    Path { path: String, problem: &'static str },
    #[error("it has more than {FILE_LIMIT} files, or more than {} MiB", SIZE_LIMIT / 1024 / 1024)]
    TooLarge,
    #[error("the output of git cannot be parsed")]
    Unparsable,
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
}

struct Blob {
    id: String,
    path: String,
    kind: BlobKind,
    size: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlobKind {
    File,
    Executable,
    /// A symbolic link; the blob is its target.
    Link,
}

/// Writes the files of a commit, or of a directory of it, into a new directory. Links are written as links:
/// [`crate::tree::ReleaseTree`] follows those that stay inside.
pub fn export(
    git: &Git<'_>,
    repository: &Path,
    commit: &Commit,
    path: Option<&str>,
    target: &Path,
) -> Result<(), ExportError> {
    let mut blobs = list(git, repository, commit, path)?;
    // Links come last: no file can be written through one of them.
    blobs.sort_by_key(|blob| blob.kind == BlobKind::Link);
    let failed = |error| ExportError::Write { path: target.to_owned(), error };
    fs::create_dir_all(target).map_err(failed)?;
    let ids = blob_ids(git.temporary, &blobs).map_err(failed)?;
    let contents = git.run_with_input(repository, "cat-file", &["--batch"], ids.into()).map_err(ExportError::Git)?;
    let mut contents = BufReader::new(contents);
    blobs.iter().try_for_each(|blob| write(&mut contents, blob, target))
}

fn list(git: &Git<'_>, repository: &Path, commit: &Commit, path: Option<&str>) -> Result<Vec<Blob>, ExportError> {
    let tree = format!("{commit}:{}", path.unwrap_or_default());
    let listed = match git.run(repository, "ls-tree", &["-r", "-z", "--long", "--end-of-options", &tree]) {
        Err(GitError::Failed { .. }) if path.is_some() => {
            let path = path.unwrap_or_default().to_owned();
            return Err(ExportError::NoPath { path, commit: commit.clone() });
        }
        other => other.map_err(ExportError::Git)?,
    };
    let (mut blobs, mut size) = (Vec::new(), 0u64);
    for entry in BufReader::new(listed).split(0) {
        let entry = entry.map_err(|error| ExportError::Git(GitError::Run(error)))?;
        let entry = String::from_utf8(entry).map_err(|error| ExportError::Path {
            path: String::from_utf8_lossy(error.as_bytes()).into_owned(),
            problem: "is not UTF-8",
        })?;
        let blob = parse_entry(&entry)?;
        size = size.saturating_add(blob.size);
        blobs.push(blob);
        if blobs.len() > FILE_LIMIT || size > SIZE_LIMIT {
            return Err(ExportError::TooLarge);
        }
    }
    Ok(blobs)
}

/// `<mode> <type> <id> <size>\t<path>`
fn parse_entry(entry: &str) -> Result<Blob, ExportError> {
    let (facts, path) = entry.split_once('\t').ok_or(ExportError::Unparsable)?;
    let path = path.to_owned();
    let mut facts = facts.split_whitespace();
    let (Some(mode), Some(_), Some(id), Some(size)) = (facts.next(), facts.next(), facts.next(), facts.next()) else {
        return Err(ExportError::Unparsable);
    };
    let kind = match mode {
        "100644" | "100664" => BlobKind::File,
        "100755" => BlobKind::Executable,
        "120000" => BlobKind::Link,
        "160000" => return Err(ExportError::Submodule { path }),
        _ => return Err(ExportError::Unparsable),
    };
    if let Some(problem) = path_problem(&path) {
        return Err(ExportError::Path { path, problem });
    }
    let size = size.parse().map_err(|_| ExportError::Unparsable)?;
    Ok(Blob { id: id.to_owned(), path, kind, size })
}

/// Input of `git cat-file`: one object id per line.
fn blob_ids(temporary: &Path, blobs: &[Blob]) -> io::Result<File> {
    let ids = TempPath::in_dir(temporary, "ids");
    let mut file = File::options().read(true).write(true).create_new(true).open(ids.path())?;
    let text: String = blobs.iter().flat_map(|blob| [blob.id.as_str(), "\n"]).collect();
    file.write_all(text.as_bytes())?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// Writes the next file of the output of `git cat-file`: `<id> blob <size>\n<content>\n`.
fn write(contents: &mut impl BufRead, blob: &Blob, target: &Path) -> Result<(), ExportError> {
    let unread = |error| ExportError::Git(GitError::Run(error));
    let mut head = String::new();
    contents.take(256).read_line(&mut head).map_err(unread)?;
    if head.trim_end() != format!("{} blob {}", blob.id, blob.size) {
        return Err(ExportError::Unparsable);
    }
    let path = target.join(&blob.path);
    let failed = |error| ExportError::Write { path: path.clone(), error };
    fs::create_dir_all(path.parent().unwrap_or(target)).map_err(failed)?;
    let mut content = contents.take(blob.size);
    let new = |mode| OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
    let copied = match blob.kind {
        BlobKind::File => new(0o644).and_then(|mut file| io::copy(&mut content, &mut file)),
        BlobKind::Executable => new(0o755).and_then(|mut file| io::copy(&mut content, &mut file)),
        BlobKind::Link => {
            let mut link = Vec::new();
            let read = content.read_to_end(&mut link).map_err(unread)?;
            symlink(OsStr::from_bytes(&link), &path).map(|()| read as u64)
        }
    };
    let copied = copied.map_err(failed)?;
    let mut newline = [0];
    contents.read_exact(&mut newline).map_err(unread)?;
    if copied == blob.size && newline == *b"\n" { Ok(()) } else { Err(ExportError::Unparsable) }
}
