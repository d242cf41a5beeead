//! Options that `rollout plan` and `rollout start` share, and files of saved plans.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::names::{Role, Version};
use muster_core::rollout::plan::{FORMAT, RolloutPlan};
use muster_core::rollout::strategy::Strategy;
use muster_wire::rollout::PlanRequest;

use crate::connect::Session;
use crate::failure::Failure;
use crate::output::{Notes, text};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// File with a strategy, overriding the one of the environment
    #[arg(long, value_name = "FILE")]
    strategy: Option<PathBuf>,
    /// Seed for the order of equal nodes: the same seed gives the same order [default: fixed until the rollout starts]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Allow a downgrade to an older release
    #[arg(long)]
    allow_older: bool,
    /// Update every node in one transaction, without waves, budgets and gates
    #[arg(long, conflicts_with = "strategy")]
    at_once: bool,
}

impl PlanArgs {
    pub(super) async fn request(
        &self,
        to: &Version,
        session: &Session,
        notes: &mut Notes,
    ) -> Result<PlanRequest, Failure> {
        let strategy = match &self.strategy {
            Some(path) => Some(read_strategy(path, session, notes).await?),
            None => None,
        };
        let PlanArgs { seed, allow_older, at_once, .. } = self;
        Ok(PlanRequest { to: to.clone(), strategy, seed: *seed, allow_older: *allow_older, at_once: *at_once })
    }
}

/// The options as they are typed, each after a space, for a command that repeats them.
impl fmt::Display for PlanArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanArgs { strategy, seed, allow_older, at_once } = self;
        if let Some(path) = strategy {
            write!(f, " --strategy {}", shell_word(&path.to_string_lossy()))?;
        }
        if let Some(seed) = seed {
            write!(f, " --seed {seed}")?;
        }
        f.write_str(if *allow_older { " --allow-older" } else { "" })?;
        f.write_str(if *at_once { " --at-once" } else { "" })
    }
}

/// Quotes an argument for a shell, if necessary.
pub(super) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", text::one_line(word).replace('\'', r"'\''")),
    }
}

/// Reads a strategy, and checks that the environment has its roles.
async fn read_strategy(path: &Path, session: &Session, notes: &mut Notes) -> Result<Strategy, Failure> {
    let environment = session.map_err(session.client().environment(&session.env).await)?;
    let roles: Vec<Role> = environment.roles.into_iter().map(|row| row.role).collect();
    let read = muster_design::strategy::read(path, &roles).map_err(Failure::failed)?;
    notes.findings(&read.warnings);
    Ok(read.value)
}

/// Saves a plan, as YAML if the file is named `.yaml`. An existing file is replaced: it has an older plan.
pub(super) fn write_plan(path: &Path, plan: &RolloutPlan) -> Result<(), Failure> {
    let text = if is_yaml(path) {
        serde_saphyr::to_string(plan).map_err(|error| anyhow::Error::msg(error.to_string()))
    } else {
        serde_json::to_string_pretty(plan).map_err(anyhow::Error::new)
    };
    let text = text.context("cannot serialize the plan").map_err(Failure::failed)?;
    let written = std::fs::write(path, text.trim_end().to_owned() + "\n");
    written.with_context(|| format!("cannot write {}", path.display())).map_err(Failure::failed)
}

/// Reads a plan, as `--out` writes it or as `-o json` and `-o yaml` print it.
pub(super) fn read_plan(path: &Path) -> Result<RolloutPlan, Failure> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let text = text.map_err(Failure::argument)?;
    let read = if text.trim_start().starts_with('{') {
        serde_json::from_str::<RolloutPlan>(&text).map_err(anyhow::Error::new)
    } else {
        // The further lines are an excerpt of the file.
        let first = |text: String| text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        serde_saphyr::from_str::<RolloutPlan>(&text).map_err(|error| anyhow::Error::msg(first(error.to_string())))
    };
    let plan = read.map_err(|error| {
        let failure = Failure::failed(error.context(format!("{} is not a rollout plan", path.display())));
        failure.hint("`muster rollout plan VERSION --out FILE` writes one")
    })?;
    if plan.format != FORMAT {
        let (path, format) = (path.display(), plan.format);
        let message = format!("{path} has plan format {format}, and this version of muster supports format {FORMAT}");
        return Err(
            Failure::failed(anyhow::Error::msg(message)).hint("create the plan again with this version of muster")
        );
    }
    Ok(plan)
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

#[cfg(test)]
mod tests {
    use super::super::test_data::plan;
    use super::*;

    #[test]
    fn options_are_printed_as_they_are_typed() {
        let args = |strategy: Option<&str>, seed, both| PlanArgs {
            strategy: strategy.map(PathBuf::from),
            seed,
            allow_older: both,
            at_once: both,
        };
        assert_eq!(args(None, None, false).to_string(), "");
        assert_eq!(args(None, None, true).to_string(), " --allow-older --at-once");
        assert_eq!(args(Some("dir/s.yaml"), Some(7), false).to_string(), " --strategy dir/s.yaml --seed 7");
        assert_eq!(args(Some("it's mine.yaml"), None, false).to_string(), r" --strategy 'it'\''s mine.yaml'");
    }

    #[test]
    fn plan_round_trips_as_json_and_yaml() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["plan.json", "plan.yaml", "plan"] {
            let path = dir.path().join(name);
            write_plan(&path, &plan()).unwrap();
            assert_eq!(read_plan(&path).unwrap(), plan(), "{name}");
        }
        let yaml = std::fs::read_to_string(dir.path().join("plan.yaml")).unwrap();
        assert!(yaml.starts_with("format: 1\n"), "{yaml}");
    }

    #[test]
    fn invalid_plan_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan");
        for text in ["", "{}", "- a\n- b\n", "{\"format\": "] {
            std::fs::write(&path, text).unwrap();
            assert!(read_plan(&path).unwrap_err().error.to_string().ends_with("is not a rollout plan"), "{text}");
        }
        write_plan(&path, &RolloutPlan { format: 7, ..plan() }).unwrap();
        assert!(read_plan(&path).unwrap_err().error.to_string().contains("has plan format 7"));
        assert!(read_plan(&dir.path().join("none")).unwrap_err().error.to_string().starts_with("cannot read"));
    }
}
