//! A staged rollout through a fleet of real processes, while things break.
//!
//! - [`fleet`]: fifty nodes in three roles and three racks, with a strategy that makes something of that.
//! - [`journal`]: what appliers, checks and gates write down themselves, with the time.
//! - [`carry`]: plans, starts and follows a rollout, by the store.
//! - [`verdict`]: what must come of that.

pub mod carry;
pub mod fleet;
pub mod journal;
pub mod verdict;
