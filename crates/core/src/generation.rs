//! How new a desired state is.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Orders what an agent is told. An agent refuses an older generation than it has written down.
///
/// The number is a store revision, so it grows with every decision. The epoch is the time at which the store's content
/// began; it is larger for a store that was made anew or restored, whose revisions may start below those that agents
/// have already seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct Generation {
    pub epoch: u64,
    pub number: u64,
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.number)
    }
}
