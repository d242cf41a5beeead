//! Staged rollouts through a fleet of real processes under faults, checked with the simulator's checker.
//!
//! - [`fleet`] has nodes of three roles in three racks, with a strategy. Its appliers, checks and gates write a journal.
//! - [`operator`] plans, starts and steers a rollout.
//! - [`scenario_gen`] generates random rollouts under faults from a seed, and [`soak`] executes them.
//! - [`trace_merge`] merges the history of etcd and the journal and feeds the checker. [`check`] asserts its result.

pub mod check;
pub mod fleet;
pub mod operator;
pub mod scenario_gen;
pub mod soak;
pub mod trace_merge;
