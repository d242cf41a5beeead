//! How a version is gone to: the options that planning and starting share.

use std::fmt;
use std::path::{Path, PathBuf};

use muster_core::names::{Role, Version};
use muster_core::rollout::strategy::Strategy;
use muster_wire::rollout::PlanRequest;

use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Notes, plain};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct How {
    /// A file with a strategy, in place of the environment's own
    #[arg(long, value_name = "FILE")]
    strategy: Option<PathBuf>,
    /// Decides the order among equals: the same seed gives the same order [default: one for each rollout, the same until it begins]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Let nodes go there from a later release
    #[arg(long)]
    allow_older: bool,
    /// Every node in one transaction: without waves, budgets and gates
    #[arg(long, conflicts_with = "strategy")]
    at_once: bool,
}

impl How {
    pub(super) async fn request(
        &self,
        to: &Version,
        session: &Session,
        notes: &mut Notes,
    ) -> Result<PlanRequest, Failure> {
        let strategy = match &self.strategy {
            Some(path) => Some(read(path, session, notes).await?),
            None => None,
        };
        let How { seed, allow_older, at_once, .. } = self;
        Ok(PlanRequest { to: to.clone(), strategy, seed: *seed, allow_older: *allow_older, at_once: *at_once })
    }
}

/// The options as they are typed, each after a space: whoever repeats them means the same.
impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let How { strategy, seed, allow_older, at_once } = self;
        if let Some(path) = strategy {
            write!(f, " --strategy {}", typed(&path.to_string_lossy()))?;
        }
        if let Some(seed) = seed {
            write!(f, " --seed {seed}")?;
        }
        f.write_str(if *allow_older { " --allow-older" } else { "" })?;
        f.write_str(if *at_once { " --at-once" } else { "" })
    }
}

/// A word as a shell takes it for one.
pub(super) fn typed(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", plain::one_line(word).replace('\'', r"'\''")),
    }
}

/// Reads a strategy with the roles that the environment has: one that it has not is a mistake.
async fn read(path: &Path, session: &Session, notes: &mut Notes) -> Result<Strategy, Failure> {
    let environment = session.told(session.client().environment(&session.env).await)?;
    let roles: Vec<Role> = environment.roles.into_iter().map(|row| row.role).collect();
    let read = muster_design::strategy::read(path, &roles).map_err(Failure::failed)?;
    notes.findings(&read.warnings);
    Ok(read.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_repeated_as_they_were_typed() {
        let how = |strategy: Option<&str>, seed, both| How {
            strategy: strategy.map(PathBuf::from),
            seed,
            allow_older: both,
            at_once: both,
        };
        assert_eq!(how(None, None, false).to_string(), "");
        assert_eq!(how(None, None, true).to_string(), " --allow-older --at-once");
        assert_eq!(how(Some("dir/s.yaml"), Some(7), false).to_string(), " --strategy dir/s.yaml --seed 7");
        assert_eq!(how(Some("it's mine.yaml"), None, false).to_string(), r" --strategy 'it'\''s mine.yaml'");
    }
}
