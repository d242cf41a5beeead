//! Controllers: each reconciles one concern of all environments while this replica holds its lock.
//!
//! A pure function elsewhere decides; the controller reads the view, commits the decision, and sleeps until a change.

pub mod design;
pub mod leaders;
pub mod liveness;
pub mod provision;
pub mod rollout;
