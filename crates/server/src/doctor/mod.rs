//! Checks of the store and the replicas: the findings that `muster doctor` prints.
//!
//! [`collect_facts`] queries the store and all replicas at once, each with a timeout. It never fails: a missing answer is a
//! fact. [`findings`] turns the facts into findings, without IO; each subject has one file. A finding says what was found
//! and, if it is not ok, what to do.

mod bundles;
mod environments;
mod facts;
mod members;
mod replicas;
mod secrets;
mod store;

use muster_wire::doctor::DoctorFinding;

pub use bundles::BundleFault;
pub use facts::{
    DoctorFacts, EnvironmentFacts, IntegrityFacts, NoReplicaAnswer, ReplicaFacts, StoreFacts, collect_store,
};
pub(crate) use facts::{collect_facts, examine_self};
pub use replicas::check_clock;

/// All findings, in reading order: the store first, then what depends on it.
pub fn findings(facts: &DoctorFacts) -> Vec<DoctorFinding> {
    let mut findings = store_findings(&facts.store);
    findings.extend(replicas::check_replicas(&facts.me, &facts.replicas));
    findings.extend(facts.authority.iter().flat_map(|record| replicas::check_authority(record, &facts.replicas)));
    findings.extend(replicas::check_blobs(&facts.blobs, &facts.replicas));
    findings.extend(secrets::check_secrets(&facts.replicas, &facts.secrets));
    findings.extend(facts.environments.iter().flat_map(environments::check_environment));
    findings
}

/// Findings of a store alone.
pub fn store_findings(facts: &StoreFacts) -> Vec<DoctorFinding> {
    let mut findings = store::check_store(facts);
    findings.extend(members::check_members(&facts.health));
    findings.extend(members::check_space(&facts.health));
    findings.extend(store::check_history(&facts.health));
    findings.extend(store::check_versions(&facts.health));
    findings
}
