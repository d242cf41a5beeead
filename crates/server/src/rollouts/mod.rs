//! Rollouts in the server: IO for the engine in `muster_rollout`, shared by the controller and the API.
//!
//! The engine decides what happens and in which order.
//!
//! - [`host`]: serves the engine's IO requests, and requests of operators.
//! - [`plans`]: plans and outcomes as blobs. [`gate`]: checks at the end of a wave.
//! - [`status_response`]: status of a rollout for the API.

pub(crate) mod gate;
pub(crate) mod host;
pub mod plans;
pub(crate) mod status_response;
