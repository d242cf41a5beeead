//! What acts on its own: each controller has a pure part that decides, elsewhere, and here the part that carries it out.

pub mod design;
pub mod leaders;
pub mod liveness;
pub mod provision;
pub mod rollout;
mod stuck;
