//! A fleet in virtual time, from a seed: servers, a store, agents, the network between them, operators, and all that goes
//! wrong.
//!
//! ```text
//! operators ──▶ replicas ◀──── network ────▶ machines: agent (RunQueue, Dispatch) · disk · applier
//!                  │  view, tenure, presence, liveness, reports, rollout: core and rollout decide
//!                  ▼
//!                store: History ──▶ checker: every transaction, and what really runs
//! ```
//!
//! - There is one thread, and one [queue](queue): the next event happens, at its moment, and puts others there. Whatever
//!   is drawn is drawn from one pair of rng, so a seed is a story, and tells itself the same way each time.
//! - Whatever decides is the product's own code, called as plain functions. What is here is what a runtime, a network and a
//!   disk do: carry messages, be late, be lost, break.
//! - The [checker] looks at every transaction and at what the appliers really do, and knows the rules by itself.

mod checker;
pub mod design;
mod event;
pub mod event_queue;
pub mod fault_counts;
pub mod fault_rates;
mod final_checks;
mod log;
pub(crate) mod machine;
mod network;
pub mod operator;
pub mod releases;
mod replica;
pub mod seed_run;
pub(crate) mod store;
pub mod undisturbed;
mod world;

pub(crate) use self::world::RELEASES;

pub use self::checker::{Rule, TraceChecker, TraceRun, TraceWriter, Violation};
pub use self::log::EventLog;
pub use self::world::{GateBehaviour, START, World};
