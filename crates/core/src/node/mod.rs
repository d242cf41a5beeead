//! Nodes: records, status, and the decisions that take them in and out of service.

pub mod agent;
pub mod decommission;
pub mod evidence;
pub mod failure;
pub mod leaders;
pub mod liveness;
pub mod pause;
pub mod policy;
pub mod record;
pub mod service_state;
pub mod status;
