//! What `muster doctor` is told.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::names::ReplicaId;

/// What a server found when it examined its store, itself and the other replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorReport {
    /// The server's clock when it answered.
    #[schema(value_type = String, format = DateTime)]
    pub now: Timestamp,
    pub findings: Vec<DoctorFinding>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorFinding {
    pub check: DoctorCheck,
    /// Which of several: a member, a replica, a controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub verdict: DoctorVerdict,
    /// What was seen, for people.
    pub seen: String,
    /// What to do about it, if anything should be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl DoctorFinding {
    pub fn new(check: DoctorCheck, verdict: DoctorVerdict, seen: impl Into<String>) -> Self {
        Self { check, subject: None, verdict, seen: seen.into(), advice: None }
    }

    #[must_use]
    pub fn of(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// What can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DoctorCheck {
    /// Whether the store answers.
    Store,
    /// How long it takes to read what no later answer can contradict.
    Latency,
    /// Each server of the store.
    Member,
    /// How much of its quota each of them uses.
    Space,
    Alarm,
    /// How far back the store remembers.
    History,
    /// Which versions of the store and of Muster run side by side.
    Version,
    Replica,
    Controller,
    Clock,
    /// Whether all replicas see the same blobs.
    Blobs,
    /// An environment: whether it is being restored, and what of it cannot be read.
    Environment,
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
            DoctorCheck::Blobs => "blobs",
            DoctorCheck::Environment => "environment",
        }
    }
}

/// How it is; the worse, the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DoctorVerdict {
    Ok,
    /// It works, and somebody should look at it before it does not.
    Warning,
    /// It could not be found out.
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

/// What a replica says of itself, to the one that examines it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaReport {
    pub replica: ReplicaId,
    pub version: String,
    /// Its clock when it answered.
    #[schema(value_type = String, format = DateTime)]
    pub now: Timestamp,
    /// How many agents are connected to it.
    pub agents: usize,
    /// The replicas, and whether it sees the mark of each among its own blobs.
    pub sees_blobs_of: Vec<BlobVisibility>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlobVisibility {
    pub replica: ReplicaId,
    pub sees: bool,
}
