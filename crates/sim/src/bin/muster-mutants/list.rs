//! The list of guards, `crates/sim/mutants/guards.toml`: purpose, location, and the run that catches each mutant.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// The path of the list.
pub(crate) const LIST: &str = "crates/sim/mutants/guards.toml";

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    guard: Vec<Guard>,
}

/// A guard of a rollout.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guard {
    pub(crate) name: String,
    pub(crate) keeps: String,
    pub(crate) file: String,
    /// An expression that occurs once in that file.
    pub(crate) find: String,
    /// The expression of the mutant.
    pub(crate) becomes: String,
    /// Other guards that are disabled with it, since each of them alone would catch the fault.
    #[serde(default)]
    pub(crate) also: Vec<String>,
    seed: Option<u64>,
    breaks: Option<String>,
    script: Option<String>,
}

/// The run that catches a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CatchingRun {
    /// The run of a seed violates a rule.
    Seed { seed: u64, breaks: String },
    /// A scenario has another transcript.
    Script { name: String },
}

impl fmt::Display for CatchingRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CatchingRun::Seed { seed, .. } => write!(f, "seed {seed}"),
            CatchingRun::Script { name } => write!(f, "{name}.txt"),
        }
    }
}

impl Guard {
    /// The guards that the mutant disables.
    pub(crate) fn off(&self) -> String {
        let names: Vec<&str> = [&self.name].into_iter().chain(&self.also).map(String::as_str).collect();
        names.join(",")
    }

    pub(crate) fn catching_run(&self) -> Result<CatchingRun> {
        match (self.seed, &self.breaks, &self.script) {
            (Some(seed), Some(breaks), None) => Ok(CatchingRun::Seed { seed, breaks: breaks.clone() }),
            (None, None, Some(name)) => Ok(CatchingRun::Script { name: name.clone() }),
            (_, _, _) => bail!("{:?} needs either seed and breaks, or script: see the comment in {LIST}", self.name),
        }
    }
}

/// Reads the list: all guards, or those with these names.
pub(crate) fn read(text: &str, only: &[String]) -> Result<Vec<Guard>> {
    let List { guard: all } = toml::from_str(text).with_context(|| format!("{LIST} cannot be read"))?;
    let mut names = BTreeSet::new();
    for guard in &all {
        guard.catching_run()?;
        ensure!(names.insert(guard.name.as_str()), "{:?} is in {LIST} twice", guard.name);
        ensure!(
            guard.name.is_ascii() && !guard.name.contains(['"', '\\', ',']),
            "{:?} is not a plain name",
            guard.name
        );
        ensure!(!guard.keeps.is_empty(), "{:?} has an empty `keeps`", guard.name);
    }
    let behind = all.iter().flat_map(|guard| &guard.also);
    if let Some(unknown) = only.iter().chain(behind).find(|name| !names.contains(name.as_str())) {
        bail!("there is no guard {unknown:?}; known guards: {}", names.into_iter().collect::<Vec<_>>().join(", "));
    }
    ensure!(!all.is_empty(), "{LIST} has no guards");
    Ok(all)
}

/// The list with another seed for one guard, and otherwise unchanged.
pub(crate) fn with_seed(text: &str, name: &str, seed: u64) -> String {
    let mut is_it = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with("[[guard]]") {
            is_it = false;
        }
        if let Some(quoted) = line.strip_prefix("name = ") {
            is_it = quoted.trim().trim_matches(['\'', '"']) == name;
        }
        let is_seed = is_it && line.starts_with("seed = ");
        lines.push(if is_seed { format!("seed = {seed}") } else { line.to_owned() });
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "# why\n[[guard]]\nname = 'a'\nkeeps = 'x'\nfile = 'f'\nfind = 'g'\nbecomes = 'h'\nseed = 1\n\
                       breaks = 'I1'\n\n[[guard]]\nname = 'b'\nkeeps = 'x'\nfile = 'f'\nfind = 'i'\nbecomes = 'h'\n\
                       script = 's'\n";

    #[test]
    fn guard_needs_a_seed_or_a_script() {
        let guards = read(TWO, &[]).unwrap();
        assert_eq!(guards[0].catching_run().unwrap(), CatchingRun::Seed { seed: 1, breaks: "I1".into() });
        assert_eq!(guards[1].catching_run().unwrap(), CatchingRun::Script { name: "s".into() });
        let both = TWO.replace("script = 's'", "script = 's'\nseed = 3");
        assert!(read(&both, &[]).unwrap_err().to_string().contains("either seed and breaks, or script"));
        assert!(read(&TWO.replace("'b'", "'a'"), &[]).unwrap_err().to_string().contains("twice"));
        assert!(read(TWO, &["c".into()]).unwrap_err().to_string().contains("known guards: a, b"));
    }

    #[test]
    fn new_seed_replaces_the_old_one() {
        assert_eq!(with_seed(TWO, "a", 77), TWO.replace("seed = 1", "seed = 77"));
        assert_eq!(with_seed(TWO, "b", 77), TWO);
    }
}
