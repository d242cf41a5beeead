//! The rollout engine: plans rollouts, decides their next step, and orders the IO that carries them out.
//!
//! Every function here is pure. [`plan`] makes a plan from the environment, a strategy and a seed; the plan is carried out
//! unchanged. [`step`] reads the plan, the rollout record and the environment, and returns one transaction, which rewrites
//! the record under the revision that the decision was made on. The store therefore refuses a step that was decided on a
//! stale view, by a replica that lost the controller, or twice. An operator's command rewrites the same record, and no grant
//! that was decided before it can follow it.
//!
//! [`executor`] orders reads, decisions and writes. Its host (a server or the simulator) performs the IO and supplies the
//! [`decision`] input: a view of the environment, for how long each revision has been observed, the connected agents,
//! and the time. The host decides nothing.
//!
//! This crate must never read a clock, wait, draw a random number that is not in the plan, or return a reason as free text.

pub mod command;
pub mod decision;
pub mod executor;
pub mod health;
pub mod plan;
pub mod predict;
pub mod preflight;
pub mod progress;
mod record_limit;
pub mod start;
pub mod step;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
