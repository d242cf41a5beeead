//! Rollouts as data: how an environment wants to be moved ([`strategy`]; [`legal`] says whether that can be), what is going to happen ([`plan`]), how far
//! it has come ([`record`]), and how that looks at one moment ([`progress`]). What is decided on them is in the crate
//! `rollout`; [`windows`] is the calendar for it.

pub mod plan;
pub mod progress;
pub mod record;
pub mod request;
pub mod strategy;
pub mod strategy_check;
pub mod windows;

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The number of a rollout in its environment, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = u64)]
pub struct RolloutId(pub u64);

impl RolloutId {
    /// Reads a number as it is written in a key: from 1, without leading zeros.
    pub fn parse(text: &str) -> Option<Self> {
        let number: u64 = text.parse().ok()?;
        (number > 0 && number.to_string() == text).then_some(Self(number))
    }

    /// The one after it.
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
