//! How a version is gone to: the options that planning and starting share.

use std::path::{Path, PathBuf};

use muster_core::names::{Role, Version};
use muster_core::rollout::strategy::Strategy;
use muster_wire::rollout::PlanRequest;

use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Notes;

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

/// Reads a strategy with the roles that the environment has: one that it has not is a mistake.
async fn read(path: &Path, session: &Session, notes: &mut Notes) -> Result<Strategy, Failure> {
    let environment = session.told(session.client().environment(&session.env).await)?;
    let roles: Vec<Role> = environment.roles.into_iter().map(|row| row.role).collect();
    let read = muster_design::strategy::read(path, &roles).map_err(Failure::failed)?;
    notes.findings(&read.warnings);
    Ok(read.value)
}
