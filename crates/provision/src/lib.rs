//! Provisions machines for nodes: a planner decides, and drivers carry out its decisions.
//!
//! - [`driver`]: the trait of all drivers, and the types for requested and observed machines. Only drivers touch machines.
//!   Their steps are idempotent, and they make no decisions.
//! - [`lifecycle`]: the planner. It takes a machine's record, its observed state and whether its agent is connected, and
//!   returns one decision. It has no IO; time and policy are arguments, and reasons are values.
//! - [`executor`]: reconciles one machine: observe, decide, carry out. It returns the new record and when to reconcile again.
//!   [`record`] makes the transaction that writes the record, fenced by the revision that the decision used.
//! - [`local`]: the driver whose machines are directories and processes of this machine.
//!
//! The server's provisioning controller repeats for each machine:
//!
//! ```text
//! record from the view ─▶ executor::reconcile(driver, …) ─▶ record::record_txn ─▶ commit ─▶ again, as `next` says
//! ```
//!
//! It wakes up when an agent connects, when the driver reports a change, or at the requested time. All state is in the
//! records and in the machines; an interrupted loop continues from the observed state.
//!
//! This crate must never use the server or the store, and never write a key that does not belong to a machine.

pub mod driver;
pub mod executor;
pub mod lifecycle;
pub mod local;
pub mod record;
