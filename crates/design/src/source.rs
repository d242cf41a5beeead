//! Sources of a design: named sets of files, read from a directory.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::file_text::FileText;
use crate::finding::{Code, Finding, Findings, Location, one_line};
use crate::project_file::{self, DEFAULT_DIRS, PROJECT_FILE};
use crate::yaml::Limits;

/// Files of a project that look like documents and are in none of its directories for documents, for a warning.
pub fn stray_documents(root: &Path) -> Vec<PathBuf> {
    let mut reader = DirectoryReader::default();
    let Some(dirs) = reader.project_dirs(root) else { return Vec::new() };
    for path in entries(root).unwrap_or_default() {
        let is_known = dirs.contains(&path) || path.file_name().is_some_and(|name| name == RELEASES);
        if path.is_dir() && !is_known {
            reader.directory(&path, 1);
        } else if is_yaml(&path) && !is_pipe(&path) && path.is_file() {
            reader.file(&path);
        }
    }
    let has_key = |text: &str, key: &str| text.lines().any(|line| line.starts_with(key));
    let is_document = |file: &&FileText| {
        has_key(file.text(), "schema: drydock/") || (has_key(file.text(), "kind:") && has_key(file.text(), "spec:"))
    };
    let listed = |path: &PathBuf| dirs.iter().any(|dir| path.starts_with(dir));
    let strays = reader.files.iter().filter(is_document).map(|file| PathBuf::from(file.name()));
    strays.filter(|path| !listed(path)).collect()
}

/// The files of one source. Clones share the texts.
#[derive(Clone, Debug)]
pub struct DesignSource {
    /// Name of the source, unique within a design.
    pub name: String,
    /// Sorted by name, for a deterministic order of findings.
    pub files: Vec<FileText>,
}

/// The `*.yaml` and `*.yml` files below a directory, except hidden files. Of a project, which has releases or a project file, only
/// those of the directories for documents.
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
        if let Some(dirs) = reader.project_dirs(&self.path) {
            dirs.iter().for_each(|dir| reader.directory(dir, 1));
        } else if self.path.is_dir() {
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
    /// The directories of documents of a project; none if the directory is not a project.
    fn project_dirs(&mut self, root: &Path) -> Option<Vec<PathBuf>> {
        let file = root.join(PROJECT_FILE);
        let dirs = if file.is_file() {
            match FileText::read(&file, Limits::HANDWRITTEN.file_bytes) {
                Ok(text) => {
                    let (dirs, findings) = project_file::design_dirs(&text, root);
                    self.findings.extend(findings);
                    dirs
                }
                Err(findings) => {
                    self.findings.extend(findings);
                    Vec::new()
                }
            }
        } else if root.join(RELEASES).is_dir() {
            DEFAULT_DIRS.map(str::to_owned).to_vec()
        } else {
            return None;
        };
        Some(dirs.into_iter().map(|dir| root.join(dir)).filter(|dir| dir.is_dir()).collect())
    }

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
                // A directory named like a YAML file is probably a mistake.
                if is_yaml(&path) {
                    self.report(Code::Unreadable, "this is a directory with the name of a file".into(), &path);
                } else {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn read(root: &Path) -> (Vec<String>, Vec<String>) {
        let (source, findings) = SourceDir { name: "test".to_owned(), path: root.to_owned() }.read();
        let relative = |name: &str| Path::new(name).strip_prefix(root).unwrap().display().to_string();
        let files = source.files.iter().map(|file| relative(file.name())).collect();
        (files, findings.iter().map(|finding| finding.message.clone()).collect())
    }

    const FILES: &[(&str, &str)] = &[
        ("environments/prod.yaml", "roles: {}"),
        ("design/nodes.yaml", "kind: Node"),
        ("hardware/acme.yaml", "kind: HardwareProfile\nname: acme\nspec: {}\n"),
        ("strategy.yaml", "waves: [{percent: 100}]"),
        ("mkdocs.yml", "site_name: x"),
    ];

    #[test]
    fn project_is_read_from_its_directories_for_documents() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), FILES);
        let (files, _) = read(dir.path());
        assert_eq!(files.len(), 5, "not a project: all files");
        assert_eq!(stray_documents(dir.path()), Vec::<PathBuf>::new());

        fs::create_dir(dir.path().join("releases")).unwrap();
        assert_eq!(read(dir.path()).0, ["design/nodes.yaml", "environments/prod.yaml"]);
        assert_eq!(stray_documents(dir.path()), [dir.path().join("hardware/acme.yaml")]);

        write(dir.path(), &[("muster.yaml", "design: [hardware]\n")]);
        assert_eq!(read(dir.path()), (vec!["environments/prod.yaml".into(), "hardware/acme.yaml".into()], vec![]));
        assert_eq!(stray_documents(dir.path()), Vec::<PathBuf>::new());
    }

    #[test]
    fn invalid_project_files_are_findings() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), FILES);
        for (text, expected) in [
            ("desing: [design]\n", "unknown key \"desing\" in the project file"),
            ("design: [../other]\n", "\"../other\" is not a path inside the project"),
            ("design: [/etc]\n", "\"/etc\" is not a path inside the project"),
            ("design: [missing]\n", "\"missing\" is not a directory of the project"),
        ] {
            write(dir.path(), &[("muster.yaml", text)]);
            assert_eq!(read(dir.path()).1, [expected]);
        }
    }
}
