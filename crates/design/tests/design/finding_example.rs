//! The examples of findings: what `examples/findings/<code>/{bad,good}` holds, and what comes of it.
//!
//! Everything is done as `muster design check` does it, for a person who stands in the root of the repository.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use muster_design::bundle::{Bundle, Directory, DocumentSource};
use muster_design::finding::{Code, Finding, Findings};
use muster_design::{CompileOptions, Design};

/// The root of the repository, from where the tests run.
pub(crate) const ROOT: &str = "../..";

/// One design directory of an example, or several sources in their order.
pub(crate) struct Example {
    /// From the root of the repository.
    pub path: String,
    pub sources: Vec<Directory>,
}

/// One of the two examples of a code: `bad` or `good`. None if there is none.
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

/// `1-site`: one of several sources.
fn is_numbered(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    path.is_dir() && name.starts_with(|c: char| c.is_ascii_digit()) && name.get(1..2) == Some("-")
}

/// What is in a directory and not hidden, sorted.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| !path.file_name().unwrap().to_str().unwrap().starts_with('.')).collect();
    paths.sort();
    paths
}

/// Everything that is found, in every environment, and the same once.
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

    /// All of its files, hidden ones left out, by their names within the example.
    pub(crate) fn files(&self) -> Vec<(String, PathBuf)> {
        let root = Path::new(ROOT).join(&self.path);
        let mut found = Vec::new();
        let mut open = vec![root.clone()];
        while let Some(path) = open.pop() {
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            // An empty directory is something to show as well.
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
