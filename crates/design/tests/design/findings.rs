//! Catalogue of findings: every code has an explanation, an example that triggers this code alone, and a similar
//! example that triggers none.
//!
//! Examples are in `examples/findings/<code>/{bad,good}`, and are read as `muster design check` does in the root of the
//! repository.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use muster_core::names::Role;
use muster_design::file_text::FileText;
use muster_design::finding::{Code, Finding, Findings};
use muster_design::source::{DesignSource, SourceDir};
use muster_design::{CompileOptions, Design};

/// Codes that no example directory triggers alone: the reason, and the test that covers the code.
pub(crate) const ELSEWHERE: &[(Code, &str, fn())] = &[
    (Code::TooManyFindings, "two hundred others come before it", findings_of_a_file_are_limited),
    (Code::UnknownRole, "it is about the command line", cardinality_of_an_unknown_role_is_reported),
];

#[test]
fn every_code_is_explained() {
    let mut failing = Vec::new();
    for code in Code::ALL {
        let explanation = code.explanation().trim();
        let lines = explanation.lines().count();
        let is_explained = (3..=40).contains(&lines) && explanation.len() > 2 * code.meaning().len();
        if !is_explained {
            failing.push(format!("{code}: {lines} lines"));
        }
    }
    assert!(failing.is_empty(), "explanations that say too little: {failing:#?}");
}

#[test]
fn every_code_has_an_example_with_only_this_finding() {
    let mut failing = Vec::new();
    for code in directories() {
        let found = example(code, "bad").map(|bad| bad.findings());
        let is_alone = found.as_ref().is_some_and(|found| codes(found) == [code]);
        if !is_alone {
            failing.push(describe(code, "bad", found));
        }
    }
    assert!(failing.is_empty(), "unexpected findings:\n\n{}", failing.join("\n"));
}

#[test]
fn every_code_has_a_similar_example_without_findings() {
    let mut failing = Vec::new();
    for code in directories() {
        let found = example(code, "good").map(|good| good.findings());
        let is_fine = found.as_ref().is_some_and(Findings::is_empty);
        if !is_fine {
            failing.push(describe(code, "good", found));
        }
    }
    assert!(failing.is_empty(), "unexpected findings:\n\n{}", failing.join("\n"));
}

#[test]
fn codes_without_a_directory_have_a_test() {
    for (code, why, shows) in ELSEWHERE {
        assert!(example(*code, "bad").is_none(), "{code} has an example after all, though {why}");
        shows();
    }
}

fn findings_of_a_file_are_limited() {
    let found = compile("---\n]\n".repeat(1_000), &CompileOptions::default());
    assert_eq!(found.iter().count(), 201);
    assert_eq!(found.iter().last().unwrap().code, Code::TooManyFindings);
}

fn cardinality_of_an_unknown_role_is_reported() {
    let with = |role: &str| {
        let cardinality = BTreeMap::from([(Role::new(role).unwrap(), 3)]);
        let options = CompileOptions { cardinality, ..CompileOptions::default() };
        codes(&compile("roles: {web: {cardinality: 1, flavor: small}}".to_owned(), &options))
    };
    assert_eq!(with("wbe"), [Code::UnknownRole]);
    assert_eq!(with("web"), []);
}

fn compile(text: String, options: &CompileOptions) -> Findings {
    let files = vec![FileText::new("environments/prod.yaml", text)];
    Design::compile(vec![DesignSource { name: "site".into(), files }], options).findings
}

/// Codes that a directory triggers.
fn directories() -> impl Iterator<Item = Code> {
    Code::ALL.iter().copied().filter(|code| ELSEWHERE.iter().all(|(elsewhere, ..)| elsewhere != code))
}

fn codes(findings: &Findings) -> Vec<Code> {
    findings.iter().map(|finding| Code::parse(finding.code.as_str()).unwrap()).collect()
}

fn describe(code: Code, which: &str, found: Option<Findings>) -> String {
    let found = match found {
        None => "there is no such directory".to_owned(),
        Some(found) if found.is_empty() => "nothing was found".to_owned(),
        Some(found) => printed(&found),
    };
    format!("examples/findings/{code}/{which}:\n{found}\n")
}

/// Root of the repository, relative to the working directory of the tests.
pub(crate) const ROOT: &str = "../..";

/// An example: one design directory, or several sources in order.
pub(crate) struct Example {
    /// Relative to the root of the repository.
    pub path: String,
    pub sources: Vec<SourceDir>,
}

/// Example `bad` or `good` of a code, if it exists.
pub(crate) fn example(code: Code, which: &str) -> Option<Example> {
    let path = format!("examples/findings/{code}/{which}");
    let directory = Path::new(ROOT).join(&path);
    let numbered = entries(&directory).into_iter().filter(|entry| is_numbered(entry));
    let mut sources: Vec<SourceDir> = numbered.map(source).collect();
    if sources.is_empty() && directory.is_dir() {
        sources.push(source(directory));
    }
    (!sources.is_empty()).then_some(Example { path, sources })
}

fn source(path: PathBuf) -> SourceDir {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    SourceDir { name, path }
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
pub(crate) fn findings(sources: &[SourceDir]) -> Findings {
    let read = || -> (Vec<DesignSource>, Vec<Findings>) { sources.iter().map(SourceDir::read).unzip() };
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
    let mut seen: HashSet<String> = HashSet::new();
    all.retain(|finding| seen.insert(format!("{finding:?}")));
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
