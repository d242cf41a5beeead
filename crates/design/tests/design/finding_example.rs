//! Examples of findings in `examples/findings/<code>/{bad,good}`, and their results.
//!
//! Reads them as `muster design check` does in the root of the repository.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use muster_design::bundle::{Bundle, Directory, DocumentSource};
use muster_design::finding::{Code, Finding, Findings};
use muster_design::{CompileOptions, Design};

/// Root of the repository, relative to the working directory of the tests.
pub(crate) const ROOT: &str = "../..";

/// An example: one design directory, or several sources in order.
pub(crate) struct Example {
    /// Relative to the root of the repository.
    pub path: String,
    pub sources: Vec<Directory>,
}

/// Example `bad` or `good` of a code, if it exists.
pub(crate) fn example(code: Code, which: &str) -> Option<Example> {
    let path = format!("examples/findings/{code}/{which}");
    let directory = Path::new(ROOT).join(&path);
    let numbered = entries(&directory).into_iter().filter(|entry| is_numbered(entry));
    let mut sources: Vec<Directory> = numbered.map(source).collect();
    if sources.is_empty() && directory.is_dir() {
        sources.push(source(directory));
    }
    (!sources.is_empty()).then_some(Example { path, sources })
}

fn source(path: PathBuf) -> Directory {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    Directory { name, path }
}

/// Reports whether a directory is one of several sources: `1-site`.
fn is_numbered(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    path.is_dir() && name.starts_with(|c: char| c.is_ascii_digit()) && name.get(1..2) == Some("-")
}

/// Entries of a directory, sorted, without hidden ones.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| !path.file_name().unwrap().to_str().unwrap().starts_with('.')).collect();
    paths.sort();
    paths
}

/// Findings for all environments, without duplicates.
pub(crate) fn findings(sources: &[Directory]) -> Findings {
    let read = || -> (Vec<Bundle>, Vec<Findings>) { sources.iter().map(DocumentSource::read).unzip() };
    let (bundles, unread) = read();
    let mut all: Vec<Finding> = unread.into_iter().flatten().collect();
    let first = Design::compile(bundles, &CompileOptions::default());
    let environments: Vec<_> = first.design.environments().cloned().collect();
    if environments.len() < 2 {
        all.extend(first.findings);
    } else {
        for env in environments {
            let options = CompileOptions { env: Some(env), ..CompileOptions::default() };
            all.extend(Design::compile(read().0, &options).findings);
        }
    }
    let mut said: HashSet<String> = HashSet::new();
    all.retain(|finding| said.insert(format!("{finding:?}")));
    all.into()
}

/// Findings as they are printed.
pub(crate) fn printed(findings: &Findings) -> String {
    findings.to_string().replace(&format!("{ROOT}/"), "")
}

impl Example {
    pub(crate) fn findings(&self) -> Findings {
        findings(&self.sources)
    }

    /// Files of the example by relative name, without hidden ones.
    pub(crate) fn files(&self) -> Vec<(String, PathBuf)> {
        let root = Path::new(ROOT).join(&self.path);
        let mut found = Vec::new();
        let mut open = vec![root.clone()];
        while let Some(path) = open.pop() {
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            // Empty directories are listed too.
            match path.is_dir() {
                true if entries(&path).is_empty() => found.push((format!("{name}/"), path)),
                true => open.extend(entries(&path)),
                false => found.push((name, path)),
            }
        }
        found.sort();
        found
    }
}
