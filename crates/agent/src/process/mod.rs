//! Processes of runs: started with a mark, waited for with a deadline, found again by the mark, reaped.
//!
//! Puppet moves the children of its `exec` into sessions of their own, so ending a process group is not enough. Every
//! process of a run carries `MUSTER_RUN_ID` in the environment that it was started with, which no child can forget by
//! accident; whoever takes it off on purpose, as a service manager does, is no longer part of the run. Unless it is still in
//! the applier's own group, as the applier itself is: a program that clears its environment has not left.

pub mod children;
pub mod group;
pub mod mark;
pub mod output;
pub mod stat;
pub mod supervise;

#[cfg(test)]
mod tests;
