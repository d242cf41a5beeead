//! Rollouts, carried out: what the controller and the API share. What is decided, and in which order, is decided by the crate
//! `rollout`.
//!
//! - [`bring`]: the hands of the engine. [`asked`]: what people ask for.
//! - [`plans`]: plans as blobs, read once. [`way`]: how an environment wants to be moved. [`sight`]: what is decided on.
//! - [`shown`]: how a rollout looks to people; [`outcome`]: how it did when it was over. [`gate`]: the checks at the end of a wave.

pub(crate) mod asked;
pub(crate) mod bring;
pub(crate) mod gate;
pub(crate) mod outcome;
pub mod plans;
pub(crate) mod shown;
pub(crate) mod sight;
pub(crate) mod way;
