//! Examines the store and the replicas: what `muster doctor` prints.
//!
//! [`gather`] asks everybody at once, each with a time limit, and never fails: what does not answer is a fact. [`judge`]
//! makes findings of the facts, and is pure; one file for each thing that is looked at. A finding says what was seen and,
//! unless all is well, what to do.

mod blobs;
mod clocks;
mod environments;
mod facts;
mod gather;
mod history;
mod members;
mod replicas;
mod space;
mod store;
mod versions;

use muster_wire::doctor::DoctorFinding;

pub use clocks::clock;
pub use facts::{EnvironmentFacts, Facts, ReplicaFacts, StoreFacts};
pub use gather::ask_store;
pub(crate) use gather::{examine_self, gather};

/// Everything that can be said about the facts, in the order in which people read it: what the rest stands on first.
pub fn judge(facts: &Facts) -> Vec<DoctorFinding> {
    let mut findings = judge_store(&facts.store);
    findings.extend(replicas::judge(&facts.me, &facts.replicas));
    findings.extend(blobs::judge(&facts.blobs, &facts.replicas));
    findings.extend(facts.environments.iter().flat_map(environments::judge));
    findings
}

/// What can be said about a store alone.
pub fn judge_store(facts: &StoreFacts) -> Vec<DoctorFinding> {
    let mut findings = store::judge(facts);
    findings.extend(members::judge(&facts.health));
    findings.extend(space::judge(&facts.health));
    findings.extend(history::judge(&facts.health));
    findings.extend(versions::judge(&facts.health));
    findings
}
