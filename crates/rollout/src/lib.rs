//! The rollout engine, without its hands: what is going to happen, and what is to be done next.
//!
//! Everything here is a pure function. A plan is made from the environment, the strategy and a seed, and is carried out
//! as it is. A step looks at the plan, the record of the rollout and the environment, and says what is to be written: one
//! transaction, which rewrites the record under the revision that it was decided on. So whatever is decided on an old
//! view, by a server that was replaced, or twice, is refused by the store and not by luck; and an operator's word, which
//! rewrites the same record, is never overtaken by a grant.
//!
//! How that is carried out is in [`executor`]: what is needed next, and what follows from it. Who lends it hands (a server, or
//! the simulator) brings a view of the environment and how long it has known of it ([`arrivals`]), who is connected, the time,
//! and what is asked for. It decides nothing.
//!
//! It must never: read a clock, wait, draw a random number that is not in the plan, or return a reason as free text.

pub mod arrivals;
pub mod budget;
pub mod compare;
pub mod executor;
pub mod health;
pub mod operate;
pub mod order;
mod outgrown;
pub mod plan;
pub mod predict;
pub mod progress;
mod refusal;
pub mod sight;
pub mod stages;
pub mod start;
pub mod step;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod unwell;
mod waves;
