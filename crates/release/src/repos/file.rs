//! `repos.yaml`: which repositories are part of a release, and where they go.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use serde::Deserialize;
use thiserror::Error;

use crate::limits::path_problem;
use crate::yaml::{self, YamlError};

/// The file beside `release.yaml`.
pub const REPOS: &str = "repos.yaml";
/// How long git may take for a repository if nobody says: a large one over a slow line.
const DEADLINE: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Error)]
pub enum ReposError {
    #[error(transparent)]
    Yaml(#[from] YamlError),
    #[error("{}", .0.iter().map(RepoProblem::to_string).collect::<Vec<_>>().join("; "))]
    Problems(Vec<RepoProblem>),
}

/// What is wrong with one repository.
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
    /// Where to look first: `<mirror>/<last part of the source>`.
    pub mirror: Option<String>,
    pub repos: BTreeMap<String, Repo>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repo {
    pub source: String,
    /// A branch, a tag, or a commit in full.
    pub reference: String,
    /// Where its files go, in the release.
    pub dest: String,
    /// Only what is in this directory of it.
    pub path: Option<String>,
    pub deadline: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    mirror: Option<String>,
    #[serde(default)]
    defaults: Defaults,
    repos: BTreeMap<String, WrittenRepo>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    #[serde(default, rename = "ref")]
    reference: Option<String>,
    #[serde(default)]
    deadline: Option<SignedDuration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRepo {
    source: String,
    #[serde(default, rename = "ref")]
    reference: Option<String>,
    #[serde(default)]
    dest: Option<String>,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    deadline: Option<SignedDuration>,
}

/// Understands the text of `repos.yaml`.
pub fn read(text: &str) -> Result<Repos, ReposError> {
    let Written { mirror, defaults, repos } = yaml::read(REPOS, text)?;
    let mut problems = Vec::new();
    let mut understood = BTreeMap::new();
    for (name, written) in repos {
        match understand(&name, written, &defaults) {
            Ok(repo) => {
                understood.insert(name, repo);
            }
            Err(messages) => problems.extend(messages.into_iter().map(|message| problem(text, &name, message))),
        }
    }
    problems.extend(overlaps(&understood).into_iter().map(|(name, message)| problem(text, name, message)));
    if problems.is_empty() { Ok(Repos { mirror, repos: understood }) } else { Err(ReposError::Problems(problems)) }
}

fn understand(name: &str, written: WrittenRepo, defaults: &Defaults) -> Result<Repo, Vec<String>> {
    let mut problems = Vec::new();
    if !is_name(name) {
        problems.push("the name of a repository is 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'".to_owned());
    }
    let source = written.source;
    // It goes to git as an argument, and must not be taken for an option.
    if source.is_empty() || source.starts_with('-') || source.chars().any(char::is_control) {
        problems.push(format!("{source:?} is not a source that git could fetch from"));
    }
    let reference = written.reference.or_else(|| defaults.reference.clone()).unwrap_or_default();
    if reference.is_empty() {
        problems.push("it has no ref, and there is none in `defaults`: say which branch, tag or commit".to_owned());
    } else if !is_reference(&reference) {
        problems.push(format!("{reference:?} is not the name of a branch or tag, nor a commit"));
    }
    let dest = trimmed(written.dest.unwrap_or_else(|| format!("modules/{name}")));
    let path = written.path.map(trimmed);
    for (what, path) in [("dest", Some(&dest)), ("path", path.as_ref())] {
        if let Some(path) = path
            && let Some(problem) = path_problem(path)
        {
            problems.push(format!("its {what} {path:?} {problem}"));
        }
    }
    let deadline = written.deadline.or(defaults.deadline).unwrap_or(DEADLINE);
    let deadline = Duration::try_from(deadline).unwrap_or_default();
    if deadline.is_zero() {
        problems.push("its deadline must be longer than nothing".to_owned());
    }
    if problems.is_empty() { Ok(Repo { source, reference, dest, path, deadline }) } else { Err(problems) }
}

/// Two repositories at one place, or one inside of the other.
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
            problems.push((*name, format!("its dest {dest:?} is taken: {of} goes to {other:?}")));
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

/// As `git check-ref-format` has it, as far as it matters here: neither an option nor a refspec.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_as_it_is_documented() {
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
    fn what_is_wrong_is_said_with_its_place_and_all_at_once() {
        for (text, says) in [
            ("repos: {}\nmiror: x\n", "repos.yaml:2:1: unknown key \"miror\"; did you mean \"mirror\"?"),
            ("repos:\n  nova: {sorce: x}\n", "repos.yaml:2:10: unknown key \"sorce\"; did you mean \"source\"?"),
            ("repos:\n  nova: {source: x, reff: y}\n", "unknown key \"reff\"; did you mean \"ref\"?"),
            ("repos:\n  nova: {source: x}\n", "repos.yaml:2: nova: it has no ref, and there is none in `defaults`"),
            ("repos:\n  nova: {source: --upload-pack=evil, ref: m}\n", "is not a source that git could fetch from"),
            ("repos:\n  nova: {source: x, ref: --evil}\n", "\"--evil\" is not the name of a branch or tag"),
            ("repos:\n  nova: {source: x, ref: 'a:b'}\n", "\"a:b\" is not the name of a branch or tag"),
            ("repos:\n  nova: {source: x, ref: m, dest: ../out}\n", "its dest \"../out\" leads out of the release"),
            ("repos:\n  nova: {source: x, ref: m, dest: /etc}\n", "its dest \"/etc\" is absolute"),
            ("repos:\n  nova: {source: x, ref: m, deadline: 0s}\n", "its deadline must be longer than nothing"),
            (
                "repos:\n  a: {source: x, ref: m, dest: m/x}\n  b: {source: y, ref: m, dest: m/x}\n",
                "repos.yaml:3: b: its dest \"m/x\" is taken: a goes to \"m/x\"",
            ),
            (
                "repos:\n  a: {source: x, ref: m, dest: m/x/y}\n  b: {source: y, ref: m, dest: m/x}\n",
                "repos.yaml:2: a: its dest \"m/x/y\" is taken: b goes to \"m/x\"",
            ),
        ] {
            let problem = read(text).unwrap_err().to_string();
            assert!(problem.contains(says), "{says:?} is not in: {problem}");
        }
        let both = read("repos:\n  a: {source: x}\n  b: {source: y, ref: '-'}\n").unwrap_err().to_string();
        assert!(both.contains("repos.yaml:2: a: ") && both.contains("repos.yaml:3: b: "), "{both}");
    }
}
