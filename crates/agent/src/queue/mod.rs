//! The queue: one run goes on, one waits.
//!
//! [`decide`] says what to do, and is pure; [`task`] writes down and carries out. The task owns the ledger, the snapshot
//! and the outbox's writing end; sync and run talk to it over one channel, and nothing they say has an effect before it
//! is on disk.

pub mod causes;
pub mod decide;
pub mod task;
