//! Errors as they cross the wire: RFC 9457 problems, with a code for machines and a hint for people.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::design::Finding;

/// The media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// What went wrong, whose turn it is, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Names the kind of problem; stable, for programs.
    pub code: ProblemCode,
    /// The same for people, in a few words.
    #[schema(value_type = String)]
    pub title: Box<str>,
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// All that is wrong with a design that was refused.
    #[serde(default, skip_serializing_if = "<[Finding]>::is_empty")]
    #[schema(value_type = Vec<Finding>)]
    pub findings: Box<[Finding]>,
    /// What is there, when it is not what was expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub current: Option<Box<Value>>,
    /// In how many seconds to ask again, if the server says so; also in the header `Retry-After`. Whoever asks waits a
    /// little longer than that, by chance: else all would be back at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u16>,
    /// Finds the request in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// Every kind of problem that the server answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The path, the query or the body is not understood.
    InvalidRequest,
    UnknownEnvironment,
    /// The node is not in the environment's design.
    UnknownNode,
    UnknownVersion,
    /// No node of the design has this role.
    UnknownRole,
    /// There is no such datum in this layer.
    UnknownDatum,
    UnknownRun,
    UnknownRollout,
    UnknownDocument,
    UnknownKind,
    /// The design has no revision of this number.
    UnknownDesignRevision,
    /// The bundle has not been uploaded.
    UnknownBundle,
    NotFound,
    /// Someone else changed it meanwhile.
    Conflict,
    /// The environment is being destroyed: nothing new is accepted.
    Destroying,
    /// What a plan was made from has changed since.
    PlanOutdated,
    /// Another rollout is under way, and the request does not say that it is to be superseded.
    RolloutUnderWay,
    /// What was asked for cannot be done with the rollout as it stands.
    RolloutRefused,
    /// The release is older than the one that the environment should run, and the request does not say that this is meant.
    OlderRelease,
    /// No key of a new list of trusted keys has signed the release that the environment runs, and the request does not say that
    /// this is meant.
    UntrustsCurrent,
    /// No node would be left, and the request does not say that this is meant.
    RemovesAll,
    /// What is there is not what the request expected (`If-Match`, `If-None-Match`).
    NotAsExpected,
    /// The body is larger than what is taken here.
    TooLarge,
    /// The design has findings of severity error: nothing of it was accepted.
    DesignRefused,
    /// The release cannot be taken: what arrived is not what was signed, nobody who is trusted signed it, or no node could
    /// run it.
    ReleaseRefused,
    /// The version is another release already, or its serial is another version's: a release never changes.
    ReleaseTaken,
    /// The bundle of a release is missing or damaged where the server keeps it.
    ReleaseUnreadable,
    /// What was asked for begins behind the end.
    RangeNotSatisfiable,
    /// Too many ask for the same at once: ask again in a few seconds.
    Busy,
    /// Files of a design revision are missing or damaged where the server keeps them.
    DesignUnreadable,
    /// The view has not reached the revision that the reader demands: the answer could be stale.
    CannotTell,
    /// The store did not carry out the change. Nothing was changed; or it is not known, and asking again is safe.
    StoreUnavailable,
    /// The disk below the store is full.
    StoreFull,
    Internal,
}

impl ProblemCode {
    pub fn status(self) -> u16 {
        match self {
            ProblemCode::InvalidRequest => 400,
            ProblemCode::UnknownEnvironment
            | ProblemCode::UnknownNode
            | ProblemCode::UnknownVersion
            | ProblemCode::UnknownRole
            | ProblemCode::UnknownDatum
            | ProblemCode::UnknownRun
            | ProblemCode::UnknownRollout
            | ProblemCode::UnknownDocument
            | ProblemCode::UnknownKind
            | ProblemCode::UnknownDesignRevision
            | ProblemCode::UnknownBundle
            | ProblemCode::NotFound => 404,
            ProblemCode::Conflict
            | ProblemCode::ReleaseTaken
            | ProblemCode::Destroying
            | ProblemCode::PlanOutdated
            | ProblemCode::RolloutUnderWay
            | ProblemCode::RolloutRefused
            | ProblemCode::RemovesAll
            | ProblemCode::UntrustsCurrent
            | ProblemCode::OlderRelease => 409,
            ProblemCode::NotAsExpected => 412,
            ProblemCode::TooLarge => 413,
            ProblemCode::RangeNotSatisfiable => 416,
            ProblemCode::DesignRefused | ProblemCode::ReleaseRefused => 422,
            ProblemCode::Internal | ProblemCode::DesignUnreadable | ProblemCode::ReleaseUnreadable => 500,
            ProblemCode::Busy | ProblemCode::CannotTell | ProblemCode::StoreUnavailable => 503,
            ProblemCode::StoreFull => 507,
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            ProblemCode::InvalidRequest => "The request is not understood",
            ProblemCode::UnknownEnvironment => "There is no such environment",
            ProblemCode::UnknownNode => "There is no such node in the design",
            ProblemCode::UnknownVersion => "There is no such release",
            ProblemCode::UnknownRole => "There is no such role in the design",
            ProblemCode::UnknownDatum => "There is no such datum",
            ProblemCode::UnknownRun => "There is no such run",
            ProblemCode::UnknownRollout => "There is no such rollout",
            ProblemCode::UnknownDocument => "There is no such document in the design",
            ProblemCode::UnknownKind => "There is no such kind of document",
            ProblemCode::UnknownDesignRevision => "There is no such revision of the design",
            ProblemCode::UnknownBundle => "There is no such bundle",
            ProblemCode::NotFound => "There is nothing at this address",
            ProblemCode::Conflict => "Someone else changed it meanwhile",
            ProblemCode::Destroying => "The environment is being destroyed",
            ProblemCode::PlanOutdated => "The world has moved since the plan was made",
            ProblemCode::RolloutUnderWay => "Another rollout is under way",
            ProblemCode::RolloutRefused => "The rollout does not stand so",
            ProblemCode::OlderRelease => "The release is older than the current one",
            ProblemCode::UntrustsCurrent => "No node could run the current release any more",
            ProblemCode::RemovesAll => "No node would be left",
            ProblemCode::NotAsExpected => "It is not what was expected",
            ProblemCode::TooLarge => "The body is too large",
            ProblemCode::DesignRefused => "The design cannot be used",
            ProblemCode::ReleaseRefused => "The release cannot be used",
            ProblemCode::ReleaseTaken => "The version is another release already",
            ProblemCode::ReleaseUnreadable => "The release cannot be read",
            ProblemCode::RangeNotSatisfiable => "There is nothing behind the end",
            ProblemCode::Busy => "The server has too much to do",
            ProblemCode::DesignUnreadable => "The design cannot be read",
            ProblemCode::CannotTell => "The answer is not known yet",
            ProblemCode::StoreUnavailable => "The store did not carry out the change",
            ProblemCode::StoreFull => "The disk of the store is full",
            ProblemCode::Internal => "The server failed",
        }
    }
}

impl Problem {
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            title: code.title().into(),
            status: code.status(),
            detail: detail.into(),
            hint: None,
            findings: Box::default(),
            current: None,
            retry_after_seconds: None,
            request_id: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Asks to come back in so many seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u16) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}
