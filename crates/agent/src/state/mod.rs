//! The agent's state on disk: the ledger, the outbox of unsent reports, and the directory that holds them.

pub mod directory;
pub mod durable;
pub mod ledger;
pub mod outbox;
