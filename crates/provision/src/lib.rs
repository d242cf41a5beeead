//! Machines for nodes: what they should be is planned here, and drivers carry it out.
//!
//! The parts, which know of each other only what they must:
//!
//! - [`driver`]: the trait that all drivers implement, and the words in which machines are wanted and seen. A driver is
//!   the only thing that touches machines. It decides nothing: its steps are idempotent, and it tells what it sees.
//! - [`lifecycle`]: the planner. From a machine's record, what is seen of it and whether its agent is connected to the
//!   one next thing. Pure: time and policy are arguments, reasons are values. One file a phase.
//! - [`executor`]: one turn of a machine: look, decide, carry it out. It returns the new record and when the next turn
//!   is due; [`record`] makes the transaction that writes it, fenced by what the decision was made on.
//! - [`local`]: the driver whose machines are directories and processes of this machine.
//!
//! Whoever owns the loop (the server's provisioning controller) does, for each machine, until it has to wait:
//!
//! ```text
//! record from the view ─▶ executor::reconcile(driver, …) ─▶ record::record_txn ─▶ commit ─▶ again, as `next` says
//! ```
//!
//! and wakes up when an agent connects, when the driver tells of a change, or at the time that was named. All state is
//! in the records and in the machines; a loop that is cut off anywhere goes on from what is seen.
//!
//! This crate must never reach for the server or the store, and never write a key that is not a machine's own.

pub mod driver;
pub mod executor;
pub mod lifecycle;
pub mod local;
pub mod record;
