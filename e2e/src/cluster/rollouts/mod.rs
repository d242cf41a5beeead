//! A staged rollout through a fleet of real processes, while things break; judged by the judge of the simulator.
//!
//! - [`fleet`]: nodes in three roles and three racks, with a strategy that makes something of that.
//! - [`journal`]: what appliers, checks and gates write down themselves, with the time.
//! - [`carry`]: plans, starts, steers and follows a rollout, by the store.
//! - [`chapters`]: rollouts under faults in random order, from a seed; [`soak`]: such a story, carried out.
//! - [`hearing`]: brings the history of etcd and the journal into one order, and before the judge. [`verdict`]: what must
//!   come of that.

pub mod carry;
pub mod chapters;
pub mod fleet;
pub mod hearing;
pub mod journal;
pub mod soak;
pub mod verdict;
