//! Domain types and decisions of Muster: names, keys, records, node status, rollouts as data. Pure functions, no IO.
//!
//! Nothing here waits, reads a clock, opens a socket or uses a store. Time is an argument and a decision is a value, so the
//! same code runs in the server, in property tests and in the simulator.
//!
//! - [`names`], [`keys`], [`txn`]: legal names, store keys, and transactions as data.
//! - [`node`]: node records, service state, status with its reason, liveness, leaders, pauses, decommissioning.
//! - [`report`]: reports of agents, and the status move that applies a report in one transaction.
//! - [`fleet`]: one environment in memory, updated by key changes. All reads are answered from it.
//! - [`lookup`]: values that nodes look up, their snapshots and tags.
//! - [`design`]: design revisions, and the plan of applying one.
//! - [`release`]: release content, registered releases and signed manifests.
//! - [`rollout`]: strategies, plans, records and progress of rollouts.
//! - [`replica`]: server replicas, controller locks, presence and links of agents.
//! - [`identity`], [`user`], [`audit`]: machines and people, what they may do, and the record of what they did.
//! - [`filter`], [`spelling`]: the filter language of lists, and suggestions for misspelt words.
//!
//! A decision must not depend on the local clock or hold a lock, and a reason is an enum, never free text.

pub mod audit;
pub mod authority;
pub mod design;
pub mod filter;
pub mod finding;
pub mod fleet;
pub mod identity;
pub mod keys;
pub mod lookup;
pub mod names;
pub mod node;
pub mod release;
pub mod replica;
pub mod report;
pub mod rollout;
pub mod spelling;
pub mod txn;
pub mod user;
