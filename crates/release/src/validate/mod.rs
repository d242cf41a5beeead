//! Validates the syntax of a Puppet release before it is packed: manifests, templates and YAML files.
//!
//! Manifests and EPP templates are parsed by `puppet`, a few processes with many files each, since one start takes a second.
//! ERB templates and YAML files are parsed by one `ruby`, as on a node. Without these programs a warning says what was not
//! validated; YAML files are always parsed.
//!
//! - `exported`: finds uses of PuppetDB, which nodes do not have.
//! - [`programs`]: calls of `puppet` and `ruby`, and their output. [`validated`]: digests of files that were valid before.

mod exported;
pub mod programs;
mod validated;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use muster_core::release::spec::{Applier, ReleaseSpec};
use thiserror::Error;

use crate::bundle::digest_of;
use crate::tree::ReleaseTree;
use programs::{Programs, check_epp, check_manifests, check_with_ruby, check_yaml};
use validated::ValidatedFiles;

/// Files of one process. A process for fewer files costs more than it saves.
const FILES_AT_LEAST: usize = 40;
const FILES_AT_MOST: usize = 1_500;
/// Directories whose files Puppet does not parse: `files` are copied as they are, and plans are for Bolt.
const NOT_PARSED: [&str; 5] = ["files", "plans", "spec", "locales", "vendor"];

#[derive(Debug, Error)]
pub enum ValidateError {
    #[error("cannot run {program}")]
    Run {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("{program} failed: {output}")]
    Failed { program: String, output: String },
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Syntax of a file, which determines the program that parses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Syntax {
    Manifest,
    Epp,
    Erb,
    Yaml,
}

impl Syntax {
    fn of(path: &str) -> Option<Self> {
        let (directories, name) = path.rsplit_once('/').unwrap_or(("", path));
        let (stem, extension) = name.rsplit_once('.')?;
        if stem.is_empty() || name.starts_with('.') || directories.split('/').any(|part| NOT_PARSED.contains(&part)) {
            return None;
        }
        let in_templates = directories.split('/').any(|part| part == "templates");
        match extension {
            "pp" if !in_templates => Some(Syntax::Manifest),
            "epp" => Some(Syntax::Epp),
            "erb" => Some(Syntax::Erb),
            "yaml" | "yml" if !in_templates => Some(Syntax::Yaml),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Syntax::Manifest => "manifests",
            Syntax::Epp => "EPP templates",
            Syntax::Erb => "ERB templates",
            Syntax::Yaml => "YAML files",
        }
    }
}

/// A file that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileProblem {
    /// Path in the release.
    pub path: String,
    pub line: Option<u64>,
    pub column: Option<u64>,
    pub message: String,
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Result of a validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// Files that are valid or invalid, including those that an earlier validation found valid.
    pub files: usize,
    pub problems: Vec<FileProblem>,
    /// Kinds of files that were not validated, each with the missing program.
    pub skipped: Vec<String>,
    /// Uses of exported resources and PuppetDB in the release's own files: a run that evaluates one fails.
    pub exported: Vec<FileProblem>,
}

/// A file with its location on disk.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path in the release.
    pub path: String,
    pub source: PathBuf,
    pub syntax: Syntax,
    key: String,
}

/// Files for one process.
struct Batch {
    syntax: Syntax,
    files: Vec<SourceFile>,
}

/// Validates the files of a release. `cache` is a directory that keeps digests of valid files.
pub fn validate(
    tree: &ReleaseTree,
    spec: &ReleaseSpec,
    programs: &Programs,
    cache: Option<&Path>,
) -> Result<Validation, ValidateError> {
    // An executable may have YAML files of any kind, such as templates.
    if spec.applier != Applier::Puppet {
        return Ok(Validation::default());
    }
    let mut validated = cache.map(ValidatedFiles::read).unwrap_or_default();
    let mut by_syntax: BTreeMap<Syntax, Vec<SourceFile>> = BTreeMap::new();
    let mut done = Validation::default();
    for (path, file) in tree.files() {
        let Some(syntax) = Syntax::of(path) else { continue };
        if syntax == Syntax::Manifest && file.source.starts_with(tree.root()) {
            done.exported.extend(exported_uses(path, &file.source)?);
        }
        if !programs.can_parse(syntax) {
            continue;
        }
        done.files += 1;
        let file = source_file(path, &file.source, syntax, programs)?;
        if !validated.contains(&file.key) {
            by_syntax.entry(syntax).or_default().push(file);
        }
    }
    for syntax in [Syntax::Manifest, Syntax::Epp, Syntax::Erb] {
        let count = tree.files().filter(|(path, _)| Syntax::of(path) == Some(syntax)).count();
        if count > 0 && !programs.can_parse(syntax) {
            let program = if syntax == Syntax::Erb { "ruby" } else { "puppet" };
            let (kind, verb) = match count {
                1 => (syntax.name().trim_end_matches('s'), "was"),
                _ => (syntax.name(), "were"),
            };
            done.skipped.push(format!("{program} is not installed: {count} {kind} {verb} not validated"));
        }
    }
    let batches = batches(by_syntax);
    let files: Vec<SourceFile> = batches.iter().flat_map(|batch| batch.files.clone()).collect();
    done.problems = run_batches(batches, programs)?;
    done.problems.sort();
    let is_valid = |file: &&SourceFile| done.problems.iter().all(|problem| problem.path != file.path);
    validated.add(files.iter().filter(is_valid).map(|file| file.key.clone()));
    if let Some(cache) = cache {
        validated.write(cache);
    }
    Ok(done)
}

fn exported_uses(path: &str, source: &Path) -> Result<Vec<FileProblem>, ValidateError> {
    let text = fs::read(source).map_err(|error| ValidateError::Read { path: source.to_owned(), source: error })?;
    let uses = exported::scan(&String::from_utf8_lossy(&text)).into_iter();
    Ok(uses
        .map(|(line, what)| FileProblem {
            path: path.to_owned(),
            line: Some(line),
            column: None,
            message: what.to_owned(),
        })
        .collect())
}

fn source_file(path: &str, source: &Path, syntax: Syntax, programs: &Programs) -> Result<SourceFile, ValidateError> {
    let failed = |error| ValidateError::Read { path: source.to_owned(), source: error };
    let (digest, _) = File::open(source).and_then(digest_of).map_err(failed)?;
    // Absolute: a path must not look like an option.
    let source = std::path::absolute(source).map_err(failed)?;
    let key = format!("{} {} {}", digest.hex(), syntax.name(), programs.identity(syntax));
    Ok(SourceFile { path: path.to_owned(), source, syntax, key: validated::key(&key) })
}

fn batches(by_syntax: BTreeMap<Syntax, Vec<SourceFile>>) -> VecDeque<Batch> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut batches = VecDeque::new();
    for (syntax, mut files) in by_syntax {
        let size = files.len().div_ceil(cores).clamp(FILES_AT_LEAST, FILES_AT_MOST);
        while !files.is_empty() {
            let rest = files.split_off(size.min(files.len()));
            batches.push_back(Batch { syntax, files: std::mem::replace(&mut files, rest) });
        }
    }
    batches
}

/// Runs one process for each core at a time.
fn run_batches(batches: VecDeque<Batch>, programs: &Programs) -> Result<Vec<FileProblem>, ValidateError> {
    let cores = thread::available_parallelism().map_or(1, usize::from).min(batches.len());
    let waiting = Mutex::new(batches);
    let results = Mutex::new(Vec::new());
    let work = || {
        while let Some(Batch { syntax, files }) = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
            let checked = match syntax {
                Syntax::Manifest => check_manifests(programs, &files),
                Syntax::Epp => check_epp(programs, &files),
                Syntax::Erb => check_with_ruby(programs, &files),
                Syntax::Yaml if programs.can_parse(Syntax::Erb) => check_with_ruby(programs, &files),
                Syntax::Yaml => check_yaml(&files),
            };
            results.lock().unwrap_or_else(PoisonError::into_inner).push(checked);
        }
    };
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(results.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_follows_from_path() {
        for (path, expected) in [
            ("manifests/site.pp", Some(Syntax::Manifest)),
            ("modules/x/manifests/init.pp", Some(Syntax::Manifest)),
            ("modules/x/plans/install.pp", None),
            ("modules/x/files/sample.pp", None),
            ("modules/x/templates/a.conf.erb", Some(Syntax::Erb)),
            ("modules/x/templates/a.conf.epp", Some(Syntax::Epp)),
            ("modules/x/templates/a.yaml", None),
            ("data/nodes/web1.yaml", Some(Syntax::Yaml)),
            ("modules/x/.sync.yml", None),
            ("README.md", None),
            ("Puppetfile", None),
        ] {
            assert_eq!(Syntax::of(path), expected, "{path}");
        }
    }

    #[test]
    fn few_processes_have_many_files() {
        let file = |number: usize| SourceFile {
            path: number.to_string(),
            source: PathBuf::new(),
            syntax: Syntax::Manifest,
            key: String::new(),
        };
        let sizes = |count: usize| -> Vec<usize> {
            let by_syntax = BTreeMap::from([(Syntax::Manifest, (0..count).map(file).collect())]);
            batches(by_syntax).iter().map(|batch| batch.files.len()).collect()
        };
        assert_eq!((sizes(0), sizes(1)), (vec![], vec![1]));
        assert_eq!(sizes(FILES_AT_LEAST), [FILES_AT_LEAST]);
        assert_eq!(sizes(10_000).iter().sum::<usize>(), 10_000);
        assert!(sizes(100_000).iter().all(|size| *size <= FILES_AT_MOST));
    }
}
