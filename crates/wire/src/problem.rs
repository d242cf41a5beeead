//! Errors as they cross the wire: RFC 9457 problems, with a code for machines and a hint for people.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// What went wrong, whose turn it is, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Names the kind of problem; stable, for programs.
    pub code: Code,
    /// The same for people, in a few words.
    pub title: String,
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Finds the request in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// Every kind of problem that the server answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The path, the query or the body is not understood.
    InvalidRequest,
    UnknownEnvironment,
    /// The node is not in the environment's design.
    UnknownNode,
    UnknownVersion,
    UnknownRun,
    NotFound,
    /// Someone else changed it meanwhile.
    Conflict,
    /// The view has not reached the revision that the reader demands: the answer could be stale.
    CannotTell,
    /// The store did not carry out the change. Nothing was changed; or it is not known, and asking again is safe.
    StoreUnavailable,
    /// The disk below the store is full.
    StoreFull,
    Internal,
}

impl Code {
    pub fn status(self) -> u16 {
        match self {
            Code::InvalidRequest => 400,
            Code::UnknownEnvironment | Code::UnknownNode | Code::UnknownVersion | Code::UnknownRun | Code::NotFound => {
                404
            }
            Code::Conflict => 409,
            Code::Internal => 500,
            Code::CannotTell | Code::StoreUnavailable => 503,
            Code::StoreFull => 507,
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Code::InvalidRequest => "The request is not understood",
            Code::UnknownEnvironment => "There is no such environment",
            Code::UnknownNode => "There is no such node in the design",
            Code::UnknownVersion => "There is no such release",
            Code::UnknownRun => "There is no such run",
            Code::NotFound => "There is nothing at this address",
            Code::Conflict => "Someone else changed it meanwhile",
            Code::CannotTell => "The answer is not known yet",
            Code::StoreUnavailable => "The store did not carry out the change",
            Code::StoreFull => "The disk of the store is full",
            Code::Internal => "The server failed",
        }
    }
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            title: code.title().to_owned(),
            status: code.status(),
            detail: detail.into(),
            hint: None,
            request_id: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}
