//! Checks of the store and the replicas: the findings that `muster doctor` prints.
//!
//! [`gather`] collects the facts from the store and all replicas at once, each with a timeout, and never fails: a missing answer
//! is a fact. [`judge`] turns the facts into findings, without IO; each subject has one file. A finding says what was found
//! and, if it is not ok, what to do.

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

/// All findings, in reading order: the store first, then what depends on it.
pub fn judge(facts: &Facts) -> Vec<DoctorFinding> {
    let mut findings = judge_store(&facts.store);
    findings.extend(replicas::judge(&facts.me, &facts.replicas));
    findings.extend(blobs::judge(&facts.blobs, &facts.replicas));
    findings.extend(facts.environments.iter().flat_map(environments::judge));
    findings
}

/// Findings of a store alone.
pub fn judge_store(facts: &StoreFacts) -> Vec<DoctorFinding> {
    let mut findings = store::judge(facts);
    findings.extend(members::judge(&facts.health));
    findings.extend(space::judge(&facts.health));
    findings.extend(history::judge(&facts.health));
    findings.extend(versions::judge(&facts.health));
    findings
}
