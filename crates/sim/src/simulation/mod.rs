//! Simulates a fleet in virtual time from a seed: servers, their store, agents, the network, operators, and faults.
//!
//! ```text
//! operators ──▶ replicas ◀──── network ────▶ machines: agent (RunQueue, Dispatch) · disk · applier
//!                  │  view, controller locks, presence, liveness, reports, rollouts: core and rollout decide
//!                  ▼
//!                store: History ──▶ checker: every transaction, and what really runs
//! ```
//!
//! - There is one thread and one [event queue](event). All random numbers are drawn from one generator, and a seed
//!   always gives the same run.
//! - All decisions are made by the product's own code, called as plain functions. The simulation replaces the runtime, the
//!   network and the disk: messages are delayed or lost, and processes crash.
//! - The [checker] sees every transaction and what the appliers really do. It implements the rules on its own.

mod checker;
pub mod coverage;
pub mod event;
pub mod faults;
mod final_checks;
pub mod fleet;
mod log;
pub(crate) mod machine;
mod network;
pub mod operator;
mod operator_schedule;
mod replica;
pub mod seed_run;
pub mod seed_set;
pub(crate) mod store;
pub mod undisturbed;
mod world;

pub(crate) use self::world::RELEASES;

pub use self::checker::{Rule, TraceChecker, TraceRun, TraceWriter, Violation};
pub use self::log::EventLog;
pub use self::world::{GateBehaviour, START, World};
