//! Examines the store and the replicas: what `muster doctor` prints.
//!
//! [`gather`] asks everybody at once, each with a time limit, and never fails: what does not answer is a fact. [`judge`]
//! makes findings of the facts, and is pure; one file for each thing that is looked at. A finding says what was seen and,
//! unless all is well, what to do.

mod clocks;
mod facts;
mod gather;
mod history;
mod members;
mod space;
mod store;
mod versions;

use muster_wire::doctor::Finding;

pub use clocks::clock;
pub use facts::{Facts, StoreFacts};
pub use gather::ask_store;
pub(crate) use gather::gather;

/// Everything that can be said about the facts, in the order in which people read it: what the rest stands on first.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    judge_store(&facts.store)
}

/// What can be said about a store alone.
pub fn judge_store(facts: &StoreFacts) -> Vec<Finding> {
    let mut findings = store::judge(facts);
    findings.extend(members::judge(&facts.health));
    findings.extend(space::judge(&facts.health));
    findings.extend(history::judge(&facts.health));
    findings.extend(versions::judge(&facts.health));
    findings
}
