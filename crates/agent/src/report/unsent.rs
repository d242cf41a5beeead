//! Type of a report before sending; it gets the agent's incarnation when it is sent.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use muster_core::lookup::Lookups;
use muster_core::lookup::published::Publication;
use muster_core::lookup::services::Services;
use muster_core::names::{NodeName, RunId, Version};
use muster_core::report::reason::RunReason;
use muster_core::report::{
    Cause, CheckResult, Counts, Facts, FirstFailure, HookResult, Outcome, Report, ResourceChange, ResourceError,
};
use muster_core::txn::Generation;

/// A [`Report`] without an incarnation. The server assigns incarnations, and may assign another one before the report is
/// sent, for example after a restore of its store.
///
/// This is also the format of the files in the outbox. Files of older agents contain `"incarnation":0`, which is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsentReport {
    pub node: NodeName,
    pub seq: u64,
    pub run: RunId,
    #[serde(flatten)]
    pub outcome: Outcome,
    pub version: Version,
    pub digest: String,
    pub generation: Generation,
    pub causes: Vec<Cause>,
    #[serde(default)]
    pub reason: Option<RunReason>,
    #[serde(default)]
    pub attempt: u32,
    pub started: Timestamp,
    pub ended: Timestamp,
    #[serde(flatten)]
    pub applier: ApplierSummary,
    #[serde(default)]
    pub first_failure: Option<FirstFailure>,
    #[serde(default)]
    pub checks: Vec<CheckResult>,
    #[serde(default)]
    pub hooks: Vec<HookResult>,
    /// Services that the node offers, if this is a validation that passed.
    #[serde(default)]
    pub services: Services,
    pub facts: Facts,
    #[serde(default)]
    pub lookups: Lookups,
    #[serde(default)]
    pub log: String,
}

/// The applier's part of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplierSummary {
    #[serde(default)]
    pub counts: Counts,
    #[serde(default)]
    pub errors: Vec<ResourceError>,
    #[serde(default)]
    pub changes: Vec<ResourceChange>,
    #[serde(default)]
    pub published: Option<Publication>,
}

impl UnsentReport {
    /// The report to send under an incarnation.
    pub fn with_incarnation(self, incarnation: u64) -> Report {
        let Self { node, seq, run, outcome, version, digest, generation, causes, reason, attempt, started, .. } = self;
        let ApplierSummary { counts, errors, changes, published } = self.applier;
        Report {
            node,
            incarnation,
            seq,
            run,
            outcome,
            version,
            digest,
            generation,
            causes,
            reason,
            attempt,
            started,
            ended: self.ended,
            counts,
            errors,
            changes,
            first_failure: self.first_failure,
            checks: self.checks,
            hooks: self.hooks,
            published,
            services: self.services,
            facts: self.facts,
            lookups: self.lookups,
            log: self.log,
        }
    }
}
