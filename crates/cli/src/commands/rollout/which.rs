//! Which rollout is meant.

use muster_core::rollout::RolloutId;
use muster_wire::client::RolloutRef;

/// Reads a number as `muster rollout history` shows it.
pub(super) fn id(text: &str) -> Result<RolloutId, String> {
    RolloutId::parse(text).ok_or_else(|| "expected the number of a rollout, such as 7".to_owned())
}

/// The option of all commands that say something to a rollout.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Which {
    /// The number of the rollout [default: the last one that was started]
    #[arg(long, value_name = "ID", value_parser = id)]
    id: Option<RolloutId>,
}

impl Which {
    pub(super) fn rollout(&self) -> RolloutRef {
        which(self.id)
    }

    /// Whether a number was given.
    pub(super) fn is_named(&self) -> bool {
        self.id.is_some()
    }
}

pub(super) fn which(id: Option<RolloutId>) -> RolloutRef {
    id.map_or(RolloutRef::Active, RolloutRef::Id)
}
