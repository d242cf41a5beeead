//! The queue: one thing goes on, the others wait.
//!
//! [`decide`] says what to do, by what [`waiting`] for the slot may have it, and is pure; [`task`] writes down and carries
//! out, and [`results`] writes down what came of it. The task owns the ledger, the snapshot and the outbox's writing end;
//! sync and run talk to it over one channel, and nothing they say has an effect before it is on disk.

pub mod causes;
pub mod decide;
pub mod hooks;
mod results;
pub mod server_time;
pub mod task;
pub mod waiting;
