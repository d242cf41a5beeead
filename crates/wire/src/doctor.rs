//! Response types of `muster doctor`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::names::ReplicaId;

/// Findings of a server about its store, itself and the other replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorReport {
    /// Clock of the server.
    #[schema(value_type = String, format = DateTime)]
    pub now: Timestamp,
    pub findings: Vec<DoctorFinding>,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorFinding {
    pub check: DoctorCheck,
    /// Checked item, if there are several: a member, a replica, a controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub verdict: DoctorVerdict,
    /// Observation, as text.
    #[serde(alias = "seen")]
    pub detail: String,
    /// Recommended action, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl DoctorFinding {
    pub fn new(check: DoctorCheck, verdict: DoctorVerdict, detail: impl Into<String>) -> Self {
        Self { check, subject: None, verdict, detail: detail.into(), advice: None }
    }

    #[must_use]
    pub fn on(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Kind of check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DoctorCheck {
    /// Reachability of the store.
    Store,
    /// Latency of a linearizable read.
    Latency,
    /// Each server of the store.
    Member,
    /// Used share of the quota.
    Space,
    Alarm,
    /// Length of the retained history.
    History,
    /// Versions of the store and of Muster in use.
    Version,
    Replica,
    Controller,
    Clock,
    /// Keys of the certificate authority on all replicas.
    Authority,
    /// Visibility of the same blobs by all replicas.
    Blobs,
    /// Keys of secrets: the same on all replicas, and enough to open all secrets.
    Secrets,
    /// Environments: restores in progress and unreadable keys.
    Environment,
    /// Connections of the nodes' agents.
    Node,
}

impl DoctorCheck {
    pub fn word(self) -> &'static str {
        match self {
            DoctorCheck::Store => "store",
            DoctorCheck::Latency => "latency",
            DoctorCheck::Member => "member",
            DoctorCheck::Space => "space",
            DoctorCheck::Alarm => "alarm",
            DoctorCheck::History => "history",
            DoctorCheck::Version => "version",
            DoctorCheck::Replica => "replica",
            DoctorCheck::Controller => "controller",
            DoctorCheck::Clock => "clock",
            DoctorCheck::Authority => "authority",
            DoctorCheck::Blobs => "blobs",
            DoctorCheck::Secrets => "secrets",
            DoctorCheck::Environment => "environment",
            DoctorCheck::Node => "node",
        }
    }
}

/// Result, ordered from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DoctorVerdict {
    Ok,
    /// Works, but needs attention.
    Warning,
    /// Could not be determined.
    CannotTell,
    Failed,
}

impl DoctorVerdict {
    pub fn word(self) -> &'static str {
        match self {
            DoctorVerdict::Ok => "ok",
            DoctorVerdict::Warning => "warning",
            DoctorVerdict::CannotTell => "cannot tell",
            DoctorVerdict::Failed => "failed",
        }
    }
}

/// Self-report of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaReport {
    pub replica: ReplicaId,
    pub version: String,
    /// Clock of the replica.
    #[schema(value_type = String, format = DateTime)]
    pub now: Timestamp,
    /// Number of connected agents.
    pub agents: usize,
    /// Replicas, and whether their marks are visible in the local blob directory.
    pub sees_blobs_of: Vec<BlobVisibility>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlobVisibility {
    pub replica: ReplicaId,
    pub sees: bool,
}
