//! Parses `release.yaml` and checks that the files that it names exist. A release that cannot run is refused when it is
//! built, not on the nodes. Errors of YAML files have a position and a suggestion for misspelled keys.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fmt, fs};

use muster_core::release::manifest::Manifest;
use muster_core::release::spec::{Applier, ReleaseSpec};
use muster_core::spelling;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::bundle::{self, BundleIndex, UnpackError};
use crate::tree::{ReleaseTree, ReleaseTreeError};

/// The file that describes a release.
pub const SPEC: &str = "release.yaml";
/// Bytes of `release.yaml`; a longer file is not read.
const SPEC_LIMIT: u64 = 1024 * 1024;

#[derive(Debug, Error)]
pub enum CheckError {
    #[error("{SPEC} is missing: it defines what a release applies and how it is validated")]
    NoSpec,
    #[error("{SPEC} is longer than {SPEC_LIMIT} bytes")]
    TooLong,
    #[error("cannot read {SPEC}")]
    Read(#[source] io::Error),
    #[error(transparent)]
    Yaml(#[from] YamlError),
    #[error("{}", join_problems(.0))]
    Problems(Vec<SpecProblem>),
    #[error(transparent)]
    Tree(#[from] ReleaseTreeError),
}

/// A problem of `release.yaml`, with its line if it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecProblem {
    pub line: Option<usize>,
    pub message: String,
}

impl fmt::Display for SpecProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{SPEC}:{line}: {}", self.message),
            None => write!(f, "{SPEC}: {}", self.message),
        }
    }
}

fn join_problems(problems: &[SpecProblem]) -> String {
    problems.iter().map(SpecProblem::to_string).collect::<Vec<_>>().join("; ")
}

/// Checks the release in a directory, such as an unpacked bundle: directories of modules may be missing, since a bundle
/// has no empty directories. Only the files that `release.yaml` names are looked at.
pub fn check_directory(directory: &Path) -> Result<ReleaseSpec, CheckError> {
    let spec = directory.join(SPEC);
    let size = match fs::symlink_metadata(&spec) {
        Ok(meta) if meta.is_file() => meta.len(),
        Ok(_) => return Err(CheckError::NoSpec),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(CheckError::NoSpec),
        Err(error) => return Err(CheckError::Read(error)),
    };
    check_paths(&ReleasePaths::Directory(directory), &read_spec(&spec, size)?)
}

/// Checks a release before it is packed.
pub fn check(tree: &ReleaseTree) -> Result<ReleaseSpec, CheckError> {
    let file = tree.file(SPEC).ok_or(CheckError::NoSpec)?;
    check_paths(&ReleasePaths::Tree(tree), &read_spec(&file.source, file.size)?)
}

fn read_spec(path: &Path, size: u64) -> Result<String, CheckError> {
    if size > SPEC_LIMIT {
        return Err(CheckError::TooLong);
    }
    fs::read_to_string(path).map_err(CheckError::Read)
}

/// Reasons to refuse a bundle.
#[derive(Debug, Error)]
pub enum CheckBundleError {
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error(transparent)]
    Check(#[from] CheckError),
}

/// Verifies a bundle and checks the release in it, without unpacking it. `open` starts at the first of its `size` bytes.
///
/// The caller verifies the manifest: see [`crate::manifest`].
pub fn check_bundle<R: Read>(
    open: impl Fn() -> R,
    size: u64,
    manifest: &Manifest,
) -> Result<ReleaseSpec, CheckBundleError> {
    let BundleIndex { files, head } = bundle::index(open, size, manifest, SPEC, SPEC_LIMIT + 1)?;
    let spec = head.ok_or(CheckError::NoSpec)?;
    if spec.len() as u64 > SPEC_LIMIT {
        return Err(CheckError::TooLong.into());
    }
    let text = String::from_utf8(spec).map_err(|error| CheckError::Read(io::Error::other(error)))?;
    Ok(check_paths(&ReleasePaths::Bundle(files), &text)?)
}

/// The paths of a release, by where the release is.
enum ReleasePaths<'t> {
    /// Files with their executable bits. A bundle has no empty directories.
    Bundle(BTreeMap<String, bool>),
    /// An unpacked bundle.
    Directory(&'t Path),
    /// The tree before it is packed.
    Tree(&'t ReleaseTree),
}

fn check_paths(paths: &ReleasePaths<'_>, text: &str) -> Result<ReleaseSpec, CheckError> {
    let spec: ReleaseSpec = parse_yaml(SPEC, text)?;
    let mut problems: Vec<SpecProblem> =
        spec.problems().into_iter().map(|message| SpecProblem { line: None, message }).collect();
    if problems.is_empty() {
        problems = named_files(&spec).filter_map(|(path, required)| required.problem(paths, path, text)).collect();
    }
    if problems.is_empty() { Ok(spec) } else { Err(CheckError::Problems(problems)) }
}

/// The kind of file that a path of `release.yaml` must name.
#[derive(Clone, Copy)]
enum PathRequirement {
    File,
    Executable,
    Directory,
    FileOrDirectory,
}

fn named_files(spec: &ReleaseSpec) -> impl Iterator<Item = (&str, PathRequirement)> {
    let manifest = match spec.applier {
        // Puppet accepts a directory of manifests, too.
        Applier::Puppet => PathRequirement::FileOrDirectory,
        Applier::Script => PathRequirement::Executable,
    };
    let hiera = spec.hiera.as_deref().map(|path| (path, PathRequirement::File));
    let modules = spec.modulepath.iter().map(|path| (path.as_str(), PathRequirement::Directory));
    let execs = spec.validate.iter().filter_map(|check| Some((check.exec.as_deref()?, PathRequirement::Executable)));
    let hooks = spec.hooks.iter().map(|hook| (hook.run.as_str(), PathRequirement::Executable));
    spec.manifest
        .as_deref()
        .map(|path| (path, manifest))
        .into_iter()
        .chain(hiera)
        .chain(modules)
        .chain(execs)
        .chain(hooks)
}

impl PathRequirement {
    fn problem(self, paths: &ReleasePaths<'_>, path: &str, text: &str) -> Option<SpecProblem> {
        let normal = normalized(path);
        let file = paths.executable(&normal);
        let directory = normal.is_empty() || paths.has_files_in(&normal);
        let excluded = paths.excluded_part(&normal);
        let message = match (self, file, directory) {
            (PathRequirement::File | PathRequirement::FileOrDirectory, Some(_), _) => return None,
            (PathRequirement::Directory | PathRequirement::FileOrDirectory, None, true) => return None,
            (PathRequirement::Directory, None, false) if paths.has_empty_directory(&normal) => return None,
            (PathRequirement::Executable, Some(true), _) => return None,
            (PathRequirement::Executable, Some(false), _) => {
                format!("{path:?} is not executable; run `chmod +x` on it")
            }
            (PathRequirement::Directory, Some(_), _) => format!("{path:?} is a file and should be a directory"),
            (PathRequirement::File | PathRequirement::Executable, None, true) => {
                format!("{path:?} is a directory and should be a file")
            }
            (_, None, false) if excluded.is_some() => {
                let excluded = excluded.unwrap_or_default();
                format!("it names {path:?}, and {excluded:?} is excluded from the release")
            }
            (PathRequirement::Directory, None, false) => format!("it names {path:?}, which is not in the release"),
            (PathRequirement::FileOrDirectory, None, false) => {
                format!("it names {path:?}, which is not in the release, or is an empty directory")
            }
            (PathRequirement::File | PathRequirement::Executable, None, false) => {
                format!("it names {path:?}, which is not in the release")
            }
        };
        Some(SpecProblem { line: line_of(text, path), message })
    }
}

impl ReleasePaths<'_> {
    /// The executable bit of a file; none if there is no such file.
    fn executable(&self, path: &str) -> Option<bool> {
        match self {
            ReleasePaths::Bundle(files) => files.get(path).copied(),
            ReleasePaths::Directory(root) => {
                let meta = fs::symlink_metadata(root.join(path)).ok().filter(fs::Metadata::is_file)?;
                Some(meta.permissions().mode() & 0o111 != 0)
            }
            ReleasePaths::Tree(tree) => tree.file(path).map(|file| file.executable),
        }
    }

    /// True if the directory has any file. An unpacked bundle has no other directories.
    fn has_files_in(&self, directory: &str) -> bool {
        match self {
            ReleasePaths::Bundle(files) => {
                let prefix = format!("{directory}/");
                files.range(prefix.clone()..).next().is_some_and(|(path, _)| path.starts_with(&prefix))
            }
            ReleasePaths::Directory(root) => fs::symlink_metadata(root.join(directory)).is_ok_and(|meta| meta.is_dir()),
            ReleasePaths::Tree(tree) => tree.has_files_in(directory),
        }
    }

    /// True if a directory exists without files. In a bundle every directory without files may have existed.
    fn has_empty_directory(&self, directory: &str) -> bool {
        match self {
            ReleasePaths::Bundle(_) | ReleasePaths::Directory(_) => true,
            ReleasePaths::Tree(tree) => tree.has_directory(directory),
        }
    }

    /// The part of a path that is left out of the release.
    fn excluded_part<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self {
            ReleasePaths::Bundle(_) | ReleasePaths::Directory(_) => None,
            ReleasePaths::Tree(tree) => tree.rules().excluded_part(path),
        }
    }
}

/// The path without `.` parts and without a trailing `/`.
fn normalized(path: &str) -> String {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

/// The first line that contains a value as a separate word, outside of comments.
fn line_of(text: &str, value: &str) -> Option<usize> {
    let contains = |line: &str| {
        let line = line.split(" #").next().unwrap_or(line);
        let parts = line.split([' ', ',', '[', ']', '{', '}', '"', '\'', '\t']);
        !line.trim_start().starts_with('#') && parts.into_iter().any(|part| part == value)
    };
    text.lines().position(contains).map(|line| line + 1)
}

/// A parse error on one line: `repos.yaml:3:5: …`.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct YamlError {
    pub file: String,
    pub line: Option<u64>,
    pub column: Option<u64>,
    pub yaml_message: String,
}

impl fmt::Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        write!(f, ": {}", self.yaml_message)
    }
}

pub(crate) fn parse_yaml<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, YamlError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let at = error.location();
        YamlError {
            file: file.to_owned(),
            line: at.map(|at| at.line()),
            column: at.map(|at| at.column()),
            yaml_message: yaml_message(error.without_snippet()),
        }
    })
}

fn yaml_message(error: &serde_saphyr::Error) -> String {
    let serde_saphyr::Error::SerdeUnknownField { field, expected, .. } = error else {
        return error.to_string().lines().next().unwrap_or_default().to_owned();
    };
    match spelling::nearest(field, expected.iter().copied()) {
        Some(nearest) => format!("unknown key {field:?}; did you mean {nearest:?}?"),
        None => format!("unknown key {field:?}; known keys are {}", expected.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(spec: &str, files: &[(&str, u32)]) -> String {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(SPEC), spec).unwrap();
        for (path, mode) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
        }
        fs::create_dir_all(dir.path().join("empty")).unwrap();
        check(&ReleaseTree::read(dir.path()).unwrap()).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn valid_releases_are_accepted() {
        let puppet = "applier: puppet\nmanifest: manifests/\nmodulepath: [./modules]\nhiera: hiera.yaml\n";
        assert_eq!(problem(puppet, &[("manifests/site.pp", 0o644), ("modules/a/b", 0o644), ("hiera.yaml", 0o600)]), "");
        assert_eq!(problem("applier: script\nmanifest: apply\n", &[("apply", 0o700)]), "");
    }

    #[test]
    fn problems_have_their_line() {
        let apply = ("apply", 0o755);
        for (spec, files, expected) in [
            (
                "applier: script\nmanifest: apply\nvalidat: []\n",
                &[apply][..],
                "release.yaml:3:1: unknown key \"validat\"; did you mean \"validate\"?",
            ),
            (
                "applier: script\nmanifest: apply\ncolour: red\n",
                &[apply],
                "release.yaml:3:1: unknown key \"colour\"; known keys are ",
            ),
            (
                "applier: puppet\nmanifest: apply\npuppet: {strict_variable: false}\n",
                &[apply],
                "release.yaml:3:10: unknown key \"strict_variable\"; did you mean \"strict_variables\"?",
            ),
            (
                "applier: puppet\nmanifest: apply\npuppet:\n  ssldir: /x\n",
                &[apply],
                "release.yaml:4:3: unknown key \"ssldir\"; known keys are environment, strict_variables, strict,",
            ),
            ("applier: scrip\nmanifest: apply\n", &[apply], "release.yaml:1:10: "),
            ("applier: script\nmanifest: [\n", &[apply], "release.yaml:"),
            (
                "applier: script\nmanifest: ../apply\n",
                &[apply],
                "release.yaml: path \"../apply\" leads out of the release",
            ),
            (
                "applier: script\n\nmanifest: other\n",
                &[apply],
                "release.yaml:3: it names \"other\", which is not in the release",
            ),
            (
                "applier: script\nmanifest: apply\n",
                &[("apply", 0o644)],
                "release.yaml:2: \"apply\" is not executable; run `chmod +x` on it",
            ),
            (
                "applier: script\nmanifest: apply\nservices:\n  http: {port: 1, check: up}\n  http: {port: 2, check: up}\n",
                &[apply],
                "release.yaml:5:3: duplicate mapping key: http",
            ),
            (
                "applier: script\nmanifest: apply\nservices: {Http: {port: 1, check: up}}\n",
                &[apply],
                "release.yaml:3:12: \"Http\" is not a legal service name: 1 to 40 of a-z, 0-9, '-' and '_', beginning with a letter",
            ),
            (
                "applier: script\nmanifest: apply\nservices: {http: {port: 1, check: up, tag: x}}\n",
                &[apply],
                "release.yaml:3:39: unknown key \"tag\"; did you mean \"tags\"?",
            ),
            (
                "applier: script\nmanifest: apply\nservices: {http: {port: 99999, check: up}}\n",
                &[apply],
                "release.yaml: port 99999 of service \"http\" is not in 1 to 65535; release.yaml: service \"http\" names the \
                 unknown check \"up\": add it to `validate`",
            ),
            (
                "applier: script\nmanifest: apply\nvalidate:\n  - {name: up, exec: checks/up}\n",
                &[apply],
                "release.yaml:4: it names \"checks/up\"",
            ),
            (
                "applier: puppet\nmanifest: apply\nmodulepath: [empty, module]\n",
                &[apply],
                "release.yaml:3: it names \"module\", which is not in the release",
            ),
            (
                "applier: puppet\nmanifest: empty\n",
                &[],
                "release.yaml:2: it names \"empty\", which is not in the release, or is an empty directory",
            ),
            (
                "applier: puppet\nmanifest: spec/site.pp\n",
                &[("spec/site.pp", 0o644)],
                "release.yaml:2: it names \"spec/site.pp\", and \"spec\" is excluded from the release",
            ),
            (
                "applier: puppet\nmanifest: apply\nhooks:\n  - {on: \"active_roles::db\", run: hooks/db}\n",
                &[apply],
                "release.yaml:4: it names \"hooks/db\"",
            ),
            (
                "applier: puppet\nmanifest: apply\nhiera: x\n",
                &[apply, ("x/y", 0o644)],
                "release.yaml:3: \"x\" is a directory and should be a file",
            ),
        ] {
            let problem = problem(spec, files);
            assert!(problem.starts_with(expected) && !problem.contains('\n'), "expected {expected:?}: {problem}");
        }
    }

    /// A bundle has no empty directories: a node accepts a module path that is missing.
    #[test]
    fn empty_directory_of_modules_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(SPEC), "applier: puppet\nmanifest: site.pp\nmodulepath: [modules]\n").unwrap();
        fs::write(dir.path().join("site.pp"), "").unwrap();
        assert!(check_directory(dir.path()).is_ok());
        assert!(check(&ReleaseTree::read(dir.path()).unwrap()).is_err());
        fs::create_dir(dir.path().join("modules")).unwrap();
        assert!(check(&ReleaseTree::read(dir.path()).unwrap()).is_ok());
    }

    #[test]
    fn directory_without_release_yaml_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(check_directory(dir.path()), Err(CheckError::NoSpec)));
    }
}
