//! The queue: one thing goes on, the others wait.
//!
//! [`decide`] says what to do, by what [`waiting`] for the slot may have it, and is pure; [`task`] writes down and carries
//! out, `results` writes down what came of it, `pause` keeps to pauses, and `telling` says what goes on. The task owns the
//! ledger, the snapshot and the outbox's writing end; sync and run talk to it over one channel, and nothing they say has an
//! effect before it is on disk.

pub mod causes;
pub mod decide;
pub mod hooks;
mod pause;
mod results;
pub mod server_time;
pub mod task;
mod telling;
pub mod waiting;
