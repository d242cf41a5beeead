//! Test support: a model of the store with fault injection, and a simulator of a fleet in virtual time.
//!
//! - [`Model`] implements the contract of [`muster_store::Store`] in memory, as plainly as possible: a map, the list of
//!   changes, and a clock. It passes the same test suite as the real backends. A differential test runs the same random
//!   operations on it, on the embedded backend and on a real etcd, and compares every answer.
//! - [`Faults`] decides from a seed, or from a script, what happens to each request: it is late, the store is unreachable,
//!   the request or the answer is lost, or the transaction commits after the client got an unknown outcome.
//! - [`simulation`] runs servers, agents, operators and their network from a seed, with faults, and checks the rules of the
//!   design after every transaction.
//! - [`script`] plays the scenarios in `scenarios/` in the same simulation, and compares their transcripts.
//!
//! Nothing here waits for the wall clock. The model has no tasks: an overdue lease or a delayed transaction takes effect
//! before the next request, and a watch waits for the next change or the next deadline.

mod model;
mod rng;
pub mod script;
pub mod simulation;

pub use self::model::Model;
pub use self::model::faults::{Faults, RequestFate, StoreFaultRates};
pub use self::rng::Rng;
