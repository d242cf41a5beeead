//! Rollouts, carried out: what the controller and the API share. What is decided is decided by the crate `rollout`.
//!
//! - [`plans`]: plans as blobs, read once. [`way`]: how an environment wants to be moved.
//! - [`sight`]: what is decided on. [`begin`]: plans and starts a rollout, forward or back. [`word`]: an operator's word.
//! - [`shown`]: how a rollout looks to people; [`outcome`]: how it did when it was over. [`gate`]: the checks at the end of a wave.

pub(crate) mod begin;
pub(crate) mod gate;
pub(crate) mod outcome;
pub mod plans;
pub(crate) mod shown;
pub(crate) mod sight;
pub(crate) mod way;
pub(crate) mod word;
