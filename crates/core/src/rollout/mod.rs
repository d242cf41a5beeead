//! Rollouts as data: strategy, plan, record and progress. The engine that decides on them is the crate
//! `muster-rollout`.
//!
//! - [`strategy`] and [`strategy_check`]: waves, budgets and gates of an environment, and their validation.
//! - [`plan`]: requests to plan or start a rollout, and its waves, node by node.
//! - [`record`]: the state of a rollout in the store.
//! - [`progress`]: states of the nodes and reasons for waiting, computed on request.
//! - [`windows`]: maintenance windows.

pub mod plan;
pub mod progress;
pub mod record;
pub mod strategy;
pub mod strategy_check;
pub mod windows;

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Number of a rollout in its environment, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = u64)]
pub struct RolloutId(pub u64);

impl RolloutId {
    /// Parses a number as written in a key: from 1, without leading zeros.
    pub fn parse(text: &str) -> Option<Self> {
        let number: u64 = text.parse().ok()?;
        (number > 0 && number.to_string() == text).then_some(Self(number))
    }

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for RolloutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
