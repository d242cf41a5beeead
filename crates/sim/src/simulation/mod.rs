//! A fleet in virtual time, from a seed: servers, a store, agents, the network between them, operators, and all that goes
//! wrong.
//!
//! ```text
//! operators ──▶ replicas ◀──── network ────▶ machines: agent (RunQueue, Dispatch) · disk · applier
//!                  │  view, tenure, presence, liveness, reports, rollout: core and rollout decide
//!                  ▼
//!                store: History ──▶ judge: every transaction, and what really runs
//! ```
//!
//! - There is one thread, and one [agenda](agenda): the next event happens, at its moment, and puts others there. Whatever
//!   is drawn is drawn from one pair of dice, so a seed is a story, and tells itself the same way each time.
//! - Whatever decides is the product's own code, called as plain functions. What is here is what a runtime, a network and a
//!   disk do: carry messages, be late, be lost, break.
//! - The [judge] looks at every transaction and at what the appliers really do, and knows the rules by itself.

pub mod agenda;
pub mod design;
mod end;
mod event;
mod judge;
mod log;
pub(crate) mod machine;
pub mod mishap;
mod narrate;
mod network;
pub mod operator;
pub mod releases;
mod replica;
pub mod scenario;
pub(crate) mod store;
pub mod undisturbed;
pub mod weather;
mod world;

pub use self::judge::{Rule, Run, Trial, Violation, Word};
pub use self::log::EventLog;
pub(crate) use self::world::RELEASES;
pub use self::world::{GateScript, START, World};
