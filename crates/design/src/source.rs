//! Sources of a design: named sets of files, read from a directory.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::file_text::FileText;
use crate::finding::{Code, Finding, Findings, Location, one_line};
use crate::yaml::Limits;

/// The files of one source.
#[derive(Debug)]
pub struct DesignSource {
    /// Name of the source, unique within a design.
    pub name: String,
    /// Sorted by name, for a deterministic order of findings.
    pub files: Vec<FileText>,
}

/// All `*.yaml` and `*.yml` files below a directory, except hidden files and the releases of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceDir {
    pub name: String,
    pub path: PathBuf,
}

/// Releases hold Puppet code, not a design.
const RELEASES: &str = "releases";
/// Depth of directories. Bounds the recursion for a link to a parent directory.
const MAX_DEPTH: usize = 32;
/// Bytes of one source, which is held in memory.
const MAX_BYTES: u64 = 256 << 20;
/// Files of one source. A design of 50,000 nodes with a file each fits twice.
const MAX_FILES: usize = 100_000;

impl SourceDir {
    /// Reads all files. A file that cannot be read becomes a finding; the rest is returned.
    pub fn read(&self) -> (DesignSource, Findings) {
        let mut reader = DirectoryReader::default();
        if self.path.is_dir() {
            reader.directory(&self.path, 0);
        } else {
            let message = if self.path.exists() { "this is not a directory" } else { "there is no such directory" };
            reader.report(Code::Unreadable, message.to_owned(), &self.path);
        }
        let DirectoryReader { mut files, findings, .. } = reader;
        files.sort_by(|a, b| a.name().cmp(b.name()));
        (DesignSource { name: self.name.clone(), files }, findings.into())
    }
}

#[derive(Default)]
struct DirectoryReader {
    files: Vec<FileText>,
    findings: Vec<Finding>,
    bytes: u64,
    is_full: bool,
}

impl DirectoryReader {
    fn directory(&mut self, directory: &Path, depth: usize) {
        if depth > MAX_DEPTH {
            let message = format!("directories are nested more than {MAX_DEPTH} deep");
            return self.report(Code::Unreadable, message, directory);
        }
        let entries = match entries(directory) {
            Ok(entries) => entries,
            Err(error) => {
                let message = format!("the directory cannot be read: {}", one_line(&error.to_string()));
                return self.report(Code::Unreadable, message, directory);
            }
        };
        for path in entries {
            if path.is_dir() {
                let is_releases = depth == 0 && path.file_name().is_some_and(|name| name == RELEASES);
                // A directory named like a YAML file is probably a mistake.
                if is_yaml(&path) {
                    self.report(Code::Unreadable, "this is a directory with the name of a file".into(), &path);
                } else if !is_releases {
                    self.directory(&path, depth + 1);
                }
            } else if is_yaml(&path) && is_pipe(&path) {
                // Opening a pipe would block until a process writes to it.
                self.report(Code::Unreadable, "this is a pipe, not a file".into(), &path);
            } else if is_yaml(&path) {
                self.file(&path);
            }
        }
    }

    fn file(&mut self, path: &Path) {
        if self.is_full {
            return;
        }
        match FileText::read(path, Limits::DOCUMENTS.file_bytes) {
            Ok(file) => {
                self.bytes += file.text().len() as u64;
                if self.bytes > MAX_BYTES || self.files.len() >= MAX_FILES {
                    self.is_full = true;
                    let message =
                        format!("the source exceeds the limit of {MAX_BYTES} bytes or {MAX_FILES} files at this file");
                    return self.report(Code::TooLarge, message, path);
                }
                self.files.push(file);
            }
            Err(findings) => self.findings.extend(findings),
        }
    }

    fn report(&mut self, code: Code, message: String, path: &Path) {
        self.findings.push(code.finding(message).at(Location::file(path.display().to_string())));
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Entries of a directory that are not hidden, sorted.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}
