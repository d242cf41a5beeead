//! Files that a release leaves out: `exclude` of `release.yaml`, and defaults for Puppet code.
//!
//! Patterns are a subset of those of `.gitignore`: `*`, `?` and `**`; a trailing `/` selects directories only; a pattern
//! with another `/` starts at the root of the release, one without it matches at any depth.

use std::fs;
use std::path::Path;

use muster_core::release::spec::Applier;
use serde::Deserialize;

use crate::check::SPEC;

/// Excluded from every release: it differs between two clones of the same commit.
const GIT: &str = ".git";
/// Tests and tooling, which no run reads. They are excluded from the root of the release and from the root of each module.
pub const DEFAULTS: [&str; 8] =
    ["spec/", ".fixtures.yml", ".github/", ".gitlab-ci.yml", ".bundle/", ".vagrant/", "vendor/bundle/", "junit/"];
/// Directories of modules in control repositories, in addition to those of `modulepath`.
const MODULES: [&str; 3] = ["modules", "site", "site-modules"];

/// The part of `release.yaml` that determines the rules. Errors of the file are reported by [`crate::check()`].
#[derive(Deserialize)]
struct ExcludeSpec {
    applier: Applier,
    #[serde(default)]
    modulepath: Vec<String>,
    #[serde(default)]
    exclude: Vec<String>,
    #[serde(default = "enabled")]
    exclude_defaults: bool,
}

fn enabled() -> bool {
    true
}

/// Selects the paths that are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludeRules(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// Parts of the pattern, from the root of the release.
    parts: Vec<String>,
    directory_only: bool,
}

impl ExcludeRules {
    /// Rules of the release in a directory. Without a valid `release.yaml` only `.git` is excluded.
    pub fn read(root: &Path) -> Self {
        let text = fs::read_to_string(root.join(SPEC)).unwrap_or_default();
        let Ok(spec) = serde_saphyr::from_str::<ExcludeSpec>(&text) else { return Self::default() };
        let mut patterns: Vec<String> = Vec::new();
        if spec.exclude_defaults && spec.applier == Applier::Puppet {
            let modules = spec.modulepath.iter().map(|path| path.trim_start_matches("./").trim_end_matches('/'));
            let roots = modules.chain(MODULES).map(|modules| format!("/{modules}/*/"));
            for root in roots.chain(["/".to_owned()]) {
                patterns.extend(DEFAULTS.iter().map(|name| format!("{root}{name}")));
            }
        }
        patterns.extend(spec.exclude);
        Self(patterns.iter().map(|pattern| Pattern::parse(pattern)).collect())
    }

    /// Returns whether a path is left out. Its parents are not examined: a reader does not enter an excluded directory.
    pub fn excludes(&self, path: &str, is_directory: bool) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        name == GIT || self.0.iter().any(|pattern| pattern.matches(path, is_directory))
    }

    /// The path, or the parent of it, that is left out.
    pub fn excluded_part<'p>(&self, path: &'p str) -> Option<&'p str> {
        let parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        parents
            .map(|parent| (parent, true))
            .chain([(path, false), (path, true)])
            .find_map(|(part, is_directory)| (!part.is_empty() && self.excludes(part, is_directory)).then_some(part))
    }
}

impl Pattern {
    fn parse(text: &str) -> Self {
        let directory_only = text.ends_with('/');
        let anchored = text.trim_end_matches('/').contains('/');
        let parts = text.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned);
        let any_depth = (!anchored).then(|| "**".to_owned());
        Self { parts: any_depth.into_iter().chain(parts).collect(), directory_only }
    }

    fn matches(&self, path: &str, is_directory: bool) -> bool {
        let parts: Vec<&str> = path.split('/').collect();
        (is_directory || !self.directory_only) && matches_parts(&self.parts, &parts)
    }
}

fn matches_parts(pattern: &[String], path: &[&str]) -> bool {
    match (pattern.split_first(), path.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((first, rest)), _) if first == "**" => {
            (0..=path.len()).any(|skipped| path.get(skipped..).is_some_and(|left| matches_parts(rest, left)))
        }
        (Some(_), None) => false,
        (Some((first, rest)), Some((name, left))) => {
            matches_name(first.as_bytes(), name.as_bytes()) && matches_parts(rest, left)
        }
    }
}

/// Matches one part of a path, with `*` and `?`, in time that is linear in the product of both lengths.
fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || Some(byte) == name.get(from) => {
                at += 1;
                from += 1;
            }
            Some(_) | None => match &mut star {
                Some((after, end)) => {
                    *end += 1;
                    (at, from) = (*after, *end);
                }
                None => return false,
            },
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(spec: &str) -> ExcludeRules {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(SPEC), spec).unwrap();
        ExcludeRules::read(dir.path())
    }

    #[test]
    fn patterns_match_like_gitignore() {
        let rules = rules("applier: script\nmanifest: x\nexclude: ['*.md', /docs/, 'a/**/b', 'tmp?', build/]\n");
        for (path, is_directory, excluded) in [
            ("README.md", false, true),
            ("modules/x/README.md", false, true),
            ("README.md.erb", false, false),
            ("docs", true, true),
            ("docs", false, false),
            ("modules/docs", true, false),
            ("a/b", false, true),
            ("a/x/y/b", false, true),
            ("x/a/b", false, false),
            ("x/tmp1", false, true),
            ("tmp12", false, false),
            ("deep/build", true, true),
            ("deep/build", false, false),
            ("any/.git", true, true),
            (".git", false, true),
            ("spec", true, false),
        ] {
            assert_eq!(rules.excludes(path, is_directory), excluded, "{path}");
        }
        assert_eq!(rules.excluded_part("docs/a/b"), Some("docs"));
        assert_eq!(rules.excluded_part("a/c"), None);
    }

    #[test]
    fn defaults_are_for_roots_of_puppet_code() {
        let puppet = "applier: puppet\nmanifest: site.pp\nmodulepath: [./code/modules/]\n";
        let paths = ["spec", "code/modules/web/spec", "site/profile/spec", "modules/web/files/spec", "modules/spec"];
        let excluded = |spec: &str| rules(spec).0.len().min(1) == 1 && rules(spec).excludes("spec", true);
        assert_eq!(paths.map(|path| rules(puppet).excludes(path, true)), [true, true, true, false, false]);
        assert!(excluded(puppet));
        assert!(!excluded(&format!("{puppet}exclude_defaults: false\n")), "the defaults can be switched off");
        assert!(!excluded("applier: script\nmanifest: x\n"));
        assert!(!excluded("not: [valid"));
    }
}
