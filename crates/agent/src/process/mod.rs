//! Processes of runs: started with a mark, supervised with a deadline, found by the mark, reaped.
//!
//! Puppet moves the children of its `exec` into their own sessions, so ending a process group is not enough. Every process of
//! a run carries `MUSTER_RUN_ID` in its initial environment, which children inherit. A process that removes the mark on
//! purpose, as a service manager does, no longer belongs to the run, unless it is still in the applier's process group.

pub mod children;
pub mod group;
pub mod mark;
pub mod output;
pub mod stat;
pub mod supervise;

#[cfg(test)]
mod tests;
