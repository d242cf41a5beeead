//! Where documents come from: named sources, each a bundle of files.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::file_text::FileText;
use crate::finding::{Code, Finding, Findings, Location, one_line};
use crate::yaml::Limits;

/// One source, read already.
#[derive(Debug)]
pub struct Bundle {
    /// What a value says that it comes from: unique within a design.
    pub name: String,
    /// Sorted by name: the order of files does not matter, but findings shall stand in one.
    pub files: Vec<FileText>,
}

/// Something that documents can be read from. A directory now; a git repository and an HTTP server fit as well.
pub trait Origin {
    /// Reads everything. What cannot be read is a finding; the rest is there all the same.
    fn read(&self) -> (Bundle, Findings);
}

/// All `*.yaml` and `*.yml` files below a directory, but for hidden ones and the releases of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    pub name: String,
    pub path: PathBuf,
}

/// The content of releases is Puppet's, not a design.
const RELEASES: &str = "releases";
/// A directory that is a link to its parent would go on for ever.
const DEEPEST: usize = 32;
/// So much is read from one source: it is held in memory.
const MOST_BYTES: u64 = 256 << 20;
/// A design of 50,000 nodes with a file each fits twice.
const MOST_FILES: usize = 100_000;

impl Origin for Directory {
    fn read(&self) -> (Bundle, Findings) {
        let mut reading = Reading::default();
        if self.path.is_dir() {
            reading.directory(&self.path, 0);
        } else {
            let message = if self.path.exists() { "this is not a directory" } else { "there is no such directory" };
            reading.complain(Code::Unreadable, message.to_owned(), &self.path);
        }
        let Reading { mut files, findings, .. } = reading;
        files.sort_by(|a, b| a.name().cmp(b.name()));
        (Bundle { name: self.name.clone(), files }, findings.into())
    }
}

#[derive(Default)]
struct Reading {
    files: Vec<FileText>,
    findings: Vec<Finding>,
    bytes: u64,
    is_full: bool,
}

impl Reading {
    fn directory(&mut self, directory: &Path, depth: usize) {
        if depth > DEEPEST {
            let message = format!("directories are nested more than {DEEPEST} deep");
            return self.complain(Code::Unreadable, message, directory);
        }
        let entries = match entries(directory) {
            Ok(entries) => entries,
            Err(error) => {
                let message = format!("the directory cannot be read: {}", one_line(&error.to_string()));
                return self.complain(Code::Unreadable, message, directory);
            }
        };
        for path in entries {
            if path.is_dir() {
                let is_releases = depth == 0 && path.file_name().is_some_and(|name| name == RELEASES);
                // A directory that is called like a file is most likely meant as one.
                if is_yaml(&path) {
                    self.complain(Code::Unreadable, "this is a directory, and is called like a file".into(), &path);
                } else if !is_releases {
                    self.directory(&path, depth + 1);
                }
            } else if is_yaml(&path) && is_pipe(&path) {
                // Whoever opens one waits until somebody writes to it, and that may be for ever.
                self.complain(Code::Unreadable, "this is a pipe, and not a file".into(), &path);
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
                if self.bytes > MOST_BYTES || self.files.len() >= MOST_FILES {
                    self.is_full = true;
                    let message = format!(
                        "the files up to this one hold more than is read of one source: {MOST_BYTES} bytes, {MOST_FILES} files"
                    );
                    return self.complain(Code::TooLarge, message, path);
                }
                self.files.push(file);
            }
            Err(findings) => self.findings.extend(findings),
        }
    }

    fn complain(&mut self, code: Code, message: String, path: &Path) {
        self.findings.push(code.finding(message).at(Location::file(path.display().to_string())));
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// What is in a directory and not hidden, sorted.
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
