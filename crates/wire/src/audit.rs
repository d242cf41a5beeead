//! The audit.

use jiff::Timestamp;
use muster_core::audit::{AuditProblem, AuditRecord};
use muster_core::txn::Revision;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Records to select.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only records about this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Only records of this user, name or controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Only records since this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Only records after this number, from the oldest: `next` of the page before. Else the newest ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Most records of the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Seconds to wait for a record after the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u16>,
}

/// Records in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    pub items: Vec<AuditRecord>,
    /// Number to continue after.
    pub next: u64,
    pub revision: Revision,
    /// Some records are missing or were changed: `muster audit verify` shows which.
    pub damaged: bool,
}

/// Result of a check of all records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditVerification {
    pub records: u64,
    /// Number of the last record.
    pub last: u64,
    /// Hash of the last record. Kept in another place, it shows later that no record before it was replaced.
    pub hash: Option<String>,
    pub problems: Vec<AuditProblem>,
    pub revision: Revision,
}

/// A record that must exist, from an earlier verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct VerifyAuditQuery {
    /// Hash of a record that must be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}
