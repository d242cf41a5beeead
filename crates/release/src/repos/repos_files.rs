//! Parses `repos.yaml`, the git repositories of a release, and reads and writes `repos.lock`, which pins each repository to a
//! commit. Both files are kept in version control.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::check::{self, YamlError};
use crate::puppetfile::is_version;
use crate::tree::path_problem;

/// Begins the source of a module of the Forge.
pub const FORGE_PREFIX: &str = "forge:";
/// The file beside `release.yaml`.
pub const REPOS: &str = "repos.yaml";
/// Default time for one repository: enough for a large one over a slow line.
const DEADLINE: SignedDuration = SignedDuration::from_mins(5);
/// The file beside `repos.yaml`.
pub const LOCK: &str = "repos.lock";
const FORMAT: u32 = 1;
const HEADER: &str = "\
# Written by `muster release build`: the commit that each repository of repos.yaml is pinned to. For a module of the Forge it is
# the SHA-256 of its archive.
# Keep it in version control; `muster release build --update` moves the pins.
";

#[derive(Debug, Error)]
pub enum ReposError {
    #[error(transparent)]
    Yaml(#[from] YamlError),
    #[error("{}", .0.iter().map(RepoProblem::to_string).collect::<Vec<_>>().join("; "))]
    Problems(Vec<RepoProblem>),
}

/// A problem of one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoProblem {
    pub line: Option<usize>,
    pub name: String,
    pub message: String,
}

impl fmt::Display for RepoProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        write!(f, "{REPOS}{line}: {}: {}", self.name, self.message)
    }
}

/// The repositories of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repos {
    /// Tried before each source, as `<mirror>/<last part of the source>`.
    pub mirror: Option<String>,
    /// Address of the Forge's API.
    pub forge: Option<String>,
    pub repos: BTreeMap<String, Repo>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repo {
    /// A URL for git, or `forge:owner/name`.
    pub source: String,
    /// A branch, a tag, or a full commit id; the version of a module of the Forge.
    pub reference: String,
    /// Directory of its files in the release.
    pub dest: String,
    /// Only this directory of the repository.
    pub path: Option<String>,
    pub deadline: Duration,
}

impl Repo {
    /// `owner/name` of a module of the Forge.
    pub fn forge_module(&self) -> Option<&str> {
        self.source.strip_prefix(FORGE_PREFIX)
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReposDocument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mirror: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) forge: Option<String>,
    #[serde(default, skip_serializing_if = "Defaults::is_empty")]
    pub(super) defaults: Defaults,
    pub(super) repos: BTreeMap<String, RepoEntry>,
}

#[derive(Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<SignedDuration>,
}

impl Defaults {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RepoEntry {
    pub(super) source: String,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub(super) reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<SignedDuration>,
}

/// Parses the text of `repos.yaml`; reports all problems at once.
pub fn read(text: &str) -> Result<Repos, ReposError> {
    let ReposDocument { mirror, forge, defaults, repos } = check::parse_yaml(REPOS, text)?;
    let mut problems = Vec::new();
    let mut parsed = BTreeMap::new();
    for (name, entry) in repos {
        match validate(&name, entry, &defaults) {
            Ok(repo) => {
                parsed.insert(name, repo);
            }
            Err(messages) => problems.extend(messages.into_iter().map(|message| problem(text, &name, message))),
        }
    }
    problems.extend(overlaps(&parsed).into_iter().map(|(name, message)| problem(text, name, message)));
    if problems.is_empty() { Ok(Repos { mirror, forge, repos: parsed }) } else { Err(ReposError::Problems(problems)) }
}

fn validate(name: &str, entry: RepoEntry, defaults: &Defaults) -> Result<Repo, Vec<String>> {
    let mut problems = Vec::new();
    if !is_name(name) {
        problems.push("a repository name has 1 to 64 characters out of A-Z, a-z, 0-9, '.', '_' and '-'".to_owned());
    }
    let source = entry.source;
    // It becomes an argument of git, and must not look like an option.
    if source.is_empty() || source.starts_with('-') || source.chars().any(char::is_control) {
        problems.push(format!("{source:?} is not a source that git can fetch from"));
    }
    let reference = entry.reference.or_else(|| defaults.reference.clone()).unwrap_or_default();
    if reference.is_empty() {
        problems.push("it has no ref, and `defaults` has none: set a branch, tag or commit".to_owned());
    } else if let Some(module) = source.strip_prefix(FORGE_PREFIX) {
        problems.extend(forge_problem(module, &reference, entry.path.is_some()));
    } else if !is_reference(&reference) {
        problems.push(format!("{reference:?} is not the name of a branch or tag, nor a commit"));
    }
    let dest = trimmed(entry.dest.unwrap_or_else(|| format!("modules/{name}")));
    let path = entry.path.map(trimmed);
    for (field, path) in [("dest", Some(&dest)), ("path", path.as_ref())] {
        if let Some(path) = path
            && let Some(problem) = path_problem(path)
        {
            problems.push(format!("its {field} {path:?} {problem}"));
        }
    }
    let deadline = entry.deadline.or(defaults.deadline).unwrap_or(DEADLINE);
    let deadline = Duration::try_from(deadline).unwrap_or_default();
    if deadline.is_zero() {
        problems.push("its deadline must be longer than zero".to_owned());
    }
    if problems.is_empty() { Ok(Repo { source, reference, dest, path, deadline }) } else { Err(problems) }
}

fn forge_problem(module: &str, version: &str, has_path: bool) -> Option<String> {
    let legal = |part: &str| {
        part.starts_with(|char: char| char.is_ascii_alphanumeric())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if !module.split_once('/').is_some_and(|(owner, name)| legal(owner) && legal(name)) {
        return Some(format!("{module:?} is not a module of the Forge: write `forge:owner/name`"));
    }
    if !is_version(version) {
        return Some(format!("its ref {version:?} is not an exact version, such as 9.6.0"));
    }
    has_path.then(|| "it has a `path`, which a module of the Forge cannot have".to_owned())
}

/// Finds repositories with the same destination, or with one inside another.
fn overlaps(repos: &BTreeMap<String, Repo>) -> Vec<(&str, String)> {
    let mut places: Vec<(&str, &str)> = repos.iter().map(|(name, repo)| (repo.dest.as_str(), name.as_str())).collect();
    places.sort_unstable();
    let mut problems = Vec::new();
    for (number, (dest, name)) in places.iter().enumerate() {
        let before = places
            .iter()
            .take(number)
            .find(|(other, _)| dest.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
        if let Some((other, of)) = before {
            problems.push((*name, format!("its dest {dest:?} is in use: {of} goes to {other:?}")));
        }
    }
    problems
}

fn trimmed(path: String) -> String {
    path.trim_end_matches('/').strip_prefix("./").map_or_else(|| path.trim_end_matches('/').to_owned(), str::to_owned)
}

fn is_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(legal) && name.as_bytes()[0].is_ascii_alphanumeric()
}

/// A subset of `git check-ref-format`: neither an option nor a refspec.
fn is_reference(text: &str) -> bool {
    let illegal = |char: char| char.is_control() || char.is_whitespace() || "~^:?*[\\+".contains(char);
    text.len() <= 255 && !text.starts_with(['-', '/']) && !text.contains("..") && !text.contains(illegal)
}

fn problem(text: &str, name: &str, message: String) -> RepoProblem {
    let line = text.lines().position(|line| {
        let line = line.trim_start();
        line.trim_start_matches(['"', '\''])
            .strip_prefix(name)
            .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).starts_with(':'))
    });
    RepoProblem { line: line.map(|line| line + 1), name: name.to_owned(), message }
}

#[derive(Debug, Error)]
pub enum LockError {
    #[error(transparent)]
    Yaml(#[from] YamlError),
    #[error("{LOCK} has format {found}, and this version of muster supports format {FORMAT}: use a newer muster")]
    Format { found: u32 },
    #[error("{LOCK}: {name}: {commit:?} is not a commit")]
    Commit { name: String, commit: String },
    #[error("{LOCK} cannot be written as YAML: {0}")]
    Write(String),
}

/// A full commit id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Commit(String);

impl Commit {
    pub fn new(text: &str) -> Option<Self> {
        let legal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        // SHA-1, or SHA-256 in a repository with that object format.
        (matches!(text.len(), 40 | 64) && text.bytes().all(legal)).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12 digits.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The commit, or the digest of an archive, that a repository is pinned to, and the source and ref that it was resolved from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    pub source: String,
    #[serde(rename = "ref")]
    pub reference: String,
    pub commit: Commit,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    pub pins: BTreeMap<String, Pin>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockDocument {
    format: u32,
    repos: BTreeMap<String, Pin>,
}

impl Lock {
    pub fn read(text: &str) -> Result<Self, LockError> {
        let LockDocument { format, repos } = check::parse_yaml(LOCK, text)?;
        if format != FORMAT {
            return Err(LockError::Format { found: format });
        }
        for (name, Pin { commit, .. }) in &repos {
            if Commit::new(commit.as_str()).is_none() {
                return Err(LockError::Commit { name: name.clone(), commit: commit.to_string() });
            }
        }
        Ok(Self { pins: repos })
    }

    pub fn write(&self) -> Result<String, LockError> {
        let written = LockDocument { format: FORMAT, repos: self.pins.clone() };
        let text = serde_saphyr::to_string(&written).map_err(|error| LockError::Write(error.to_string()))?;
        Ok(format!("{HEADER}{}\n", text.trim_end()))
    }

    /// The pinned commit of a repository; none if its source or ref has changed since.
    pub fn commit_of(&self, name: &str, repo: &Repo) -> Option<&Commit> {
        let pin = self.pins.get(name)?;
        (pin.source == repo.source && pin.reference == repo.reference).then_some(&pin.commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_file_is_parsed() {
        let repos = read(
            "\
mirror: file:///srv/git
defaults: {ref: main, deadline: 2m}
repos:
  nova: {source: https://git.example/puppet-nova.git, ref: stable/kilo, dest: modules/nova}
  stdlib: {source: 'git@git.example:puppet/stdlib.git', path: ./lib/, deadline: 10s}
",
        )
        .unwrap();
        assert_eq!(repos.mirror.as_deref(), Some("file:///srv/git"));
        assert_eq!(repos.repos["nova"].reference, "stable/kilo");
        assert_eq!(repos.repos["nova"].deadline, Duration::from_secs(120));
        let stdlib = &repos.repos["stdlib"];
        assert_eq!((stdlib.reference.as_str(), stdlib.dest.as_str()), ("main", "modules/stdlib"));
        assert_eq!((stdlib.path.as_deref(), stdlib.deadline), (Some("lib"), Duration::from_secs(10)));
    }

    #[test]
    fn problems_have_line_numbers_and_are_reported_together() {
        for (text, expected) in [
            ("repos: {}\nmiror: x\n", "repos.yaml:2:1: unknown key \"miror\"; did you mean \"mirror\"?"),
            ("repos:\n  nova: {sorce: x}\n", "repos.yaml:2:10: unknown key \"sorce\"; did you mean \"source\"?"),
            ("repos:\n  nova: {source: x, reff: y}\n", "unknown key \"reff\"; did you mean \"ref\"?"),
            ("repos:\n  nova: {source: x}\n", "repos.yaml:2: nova: it has no ref, and `defaults` has none"),
            ("repos:\n  nova: {source: --upload-pack=evil, ref: m}\n", "is not a source that git can fetch from"),
            ("repos:\n  nova: {source: x, ref: --evil}\n", "\"--evil\" is not the name of a branch or tag"),
            ("repos:\n  nova: {source: x, ref: 'a:b'}\n", "\"a:b\" is not the name of a branch or tag"),
            ("repos:\n  nova: {source: x, ref: m, dest: ../out}\n", "its dest \"../out\" leads out of the release"),
            ("repos:\n  nova: {source: x, ref: m, dest: /etc}\n", "its dest \"/etc\" is absolute"),
            ("repos:\n  a: {source: 'forge:stdlib', ref: 1.0.0}\n", "\"stdlib\" is not a module of the Forge"),
            ("repos:\n  a: {source: 'forge:x/stdlib', ref: latest}\n", "its ref \"latest\" is not an exact version"),
            ("repos:\n  nova: {source: x, ref: m, deadline: 0s}\n", "its deadline must be longer than zero"),
            (
                "repos:\n  a: {source: x, ref: m, dest: m/x}\n  b: {source: y, ref: m, dest: m/x}\n",
                "repos.yaml:3: b: its dest \"m/x\" is in use: a goes to \"m/x\"",
            ),
            (
                "repos:\n  a: {source: x, ref: m, dest: m/x/y}\n  b: {source: y, ref: m, dest: m/x}\n",
                "repos.yaml:2: a: its dest \"m/x/y\" is in use: b goes to \"m/x\"",
            ),
        ] {
            let problem = read(text).unwrap_err().to_string();
            assert!(problem.contains(expected), "{expected:?} is not in: {problem}");
        }
        let both = read("repos:\n  a: {source: x}\n  b: {source: y, ref: '-'}\n").unwrap_err().to_string();
        assert!(both.contains("repos.yaml:2: a: ") && both.contains("repos.yaml:3: b: "), "{both}");
    }

    #[test]
    fn lock_round_trips() {
        let commit = Commit::new(&"a1".repeat(20)).unwrap();
        let pin = Pin { source: "https://git.example/nova.git".into(), reference: "yes".into(), commit };
        let lock = Lock { pins: BTreeMap::from([("nova".to_owned(), pin)]) };
        let text = lock.write().unwrap();
        assert_eq!(Lock::read(&text).unwrap(), lock, "{text}");
        assert_eq!(Lock::read(&Lock::default().write().unwrap()).unwrap(), Lock::default());
        assert!(text.starts_with("# Written by") && text.ends_with("\n") && !text.ends_with("\n\n"), "{text}");
    }

    #[test]
    fn invalid_lock_is_refused() {
        let pin = "format: 1\nrepos:\n  nova: {source: x, ref: main, commit: abc}\n";
        assert_eq!(Lock::read(pin).unwrap_err().to_string(), "repos.lock: nova: \"abc\" is not a commit");
        assert!(matches!(Lock::read("format: 2\nrepos: {}\n"), Err(LockError::Format { found: 2 })));
        let markers = "<<<<<<< ours\nformat: 1\n";
        assert!(Lock::read(markers).unwrap_err().to_string().starts_with("repos.lock:"));
    }
}
