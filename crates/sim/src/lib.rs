//! For tests only: the store as a model, in memory, with faults on demand.
//!
//! [`Model`] is what the contract of [`muster_store::Store`] means, written down so plainly that a reader can see that
//! it is right: a map, the list of what changed since, and a clock. It passes the same suite as the real backends, and
//! a differential test runs the same random operations on it, on the embedded backend and on a real etcd: whatever
//! the three do not agree on is a mistake in one of them.
//!
//! ```text
//! Model ── Faults: what becomes of this request? ──▶ World: History, under one lock
//!   │         (odds and a seed, or a script)            │
//!   └── client(faults): another way to the same store   └──▶ watches pull, each with the faults of its client
//! ```
//!
//! - [`Faults`] decide, from a seed, what a real network and a real etcd do to a request: it arrives late, the store is
//!   not reached, the answer is lost, the request is lost, it is carried out *after* its sender was told that nobody
//!   knows. A test may also script the fate of the very next commit.
//! - Nothing here waits for a wall clock. Delays are steps of the runtime; leases end by the [`muster_store::Clock`]
//!   that was passed in.
//! - There are no tasks. What is due (a lease that is over, a request that was held back) is carried out by whoever
//!   asks next, before his own request; a watch waits for the next change or the next deadline, whichever comes first.

mod dice;
mod faults;
mod follow;
mod history;
mod model;
pub mod script;
pub mod simulation;
mod world;

pub use self::dice::Dice;
pub use self::faults::{Fate, Faults, Odds};
pub use self::model::Model;
