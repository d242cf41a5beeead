//! Error responses: RFC 9457 problems with a code for programs and a hint for people.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::design::Finding;

/// Media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Error response of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Kind of problem. Stable.
    pub code: ProblemCode,
    /// Summary of the kind of problem.
    #[schema(value_type = String)]
    pub title: Box<str>,
    pub status: u16,
    /// Details of this occurrence.
    pub detail: String,
    /// Recommended action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Findings of a refused design.
    #[serde(default, skip_serializing_if = "<[Finding]>::is_empty")]
    #[schema(value_type = Vec<Finding>)]
    pub findings: Box<[Finding]>,
    /// Current value, if it is not the expected one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub current: Option<Box<Value>>,
    /// Seconds to wait before the next attempt, also in the header `Retry-After`. Clients add a random delay, so that
    /// they do not all return at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u16>,
    /// Id of the request in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// Kinds of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// Path, query or body are not valid.
    InvalidRequest,
    /// The filter of a list is not valid: its syntax, a key, or a value that never matches.
    InvalidFilter,
    /// The request has no token, or not the token of this server.
    Unauthenticated,
    /// Too many failed attempts to authenticate from this address.
    TooManyAttempts,
    /// The server refuses the client: another user on its Unix socket, or a web page.
    Forbidden,
    /// The join token does not allow this machine to join.
    JoinRefused,
    /// Every node of the role has a machine. The machine may try again later.
    NoPlace,
    /// The certificate of the client has ended, was revoked, or is not that of the node.
    CertificateRefused,
    /// The body has another media type than this resource takes.
    UnsupportedMediaType,
    UnknownEnvironment,
    /// The node is not in the environment's design.
    UnknownNode,
    UnknownVersion,
    /// No node of the design has this role.
    UnknownRole,
    /// There is no such datum in this layer.
    UnknownDatum,
    UnknownRun,
    /// There is no such join token, or no machine has joined as the node.
    UnknownIdentity,
    UnknownUser,
    UnknownRollout,
    UnknownDocument,
    UnknownKind,
    /// The design has no revision with this number.
    UnknownDesignRevision,
    /// The bundle has not been uploaded.
    UnknownBundle,
    NotFound,
    /// The resource exists, and has no such method.
    MethodNotAllowed,
    /// The idempotency key belongs to another request: another method, path, query or body.
    IdempotencyKeyReused,
    /// The request with this idempotency key was executed, and its response was lost or is not kept.
    AlreadyExecuted,
    /// Changed concurrently.
    Conflict,
    /// The environment is being destroyed: nothing new is accepted.
    Destroying,
    /// The plan is out of date: the environment changed since it was made.
    PlanOutdated,
    /// Another rollout is in progress, and the request does not supersede it.
    RolloutUnderWay,
    /// The command is not possible in the current phase of the rollout.
    RolloutRefused,
    /// The node has a policy that does not allow the change.
    PolicyRefused,
    /// The release is older than the current one, and the request does not allow that.
    OlderRelease,
    /// No key of the new trust list has signed the current release, and the request does not force that.
    UntrustsCurrent,
    /// The plan removes all nodes, and the request does not allow that.
    RemovesAll,
    /// The precondition failed (`If-Match`, `If-None-Match`).
    NotAsExpected,
    /// The body is over the limit.
    TooLarge,
    /// The design has findings with severity error. Nothing was accepted.
    DesignRefused,
    /// The release was refused: the content does not match the signature, no trusted key signed it, or no node could
    /// run it.
    ReleaseRefused,
    /// The version is registered with other content, or its serial belongs to another version. A release never changes.
    ReleaseTaken,
    /// The bundle of a release is missing or damaged on the server.
    ReleaseUnreadable,
    /// Too many bundles were uploaded and not registered.
    UploadsFull,
    /// The range begins behind the end.
    RangeNotSatisfiable,
    /// Too many concurrent requests. Retry in a few seconds.
    Busy,
    /// Another agent with the same node name is connected. Only one agent may have it.
    DuplicateAgent,
    /// Agent and server are too many versions apart. The older one has to be upgraded.
    IncompatibleAgent,
    /// Files of a design revision are missing or damaged on the server.
    DesignUnreadable,
    /// The view has not reached the required revision. A response could be stale.
    CannotTell,
    /// The server has no key to seal a secret with, or its replicas have different keys.
    SecretsUnavailable,
    /// The store did not execute the change, or its result is unknown. A retry is safe.
    StoreUnavailable,
    /// The disk of the store is full.
    StoreFull,
    Internal,
}

impl ProblemCode {
    /// All codes.
    pub const ALL: [ProblemCode; 52] = [
        ProblemCode::InvalidRequest,
        ProblemCode::InvalidFilter,
        ProblemCode::Unauthenticated,
        ProblemCode::TooManyAttempts,
        ProblemCode::Forbidden,
        ProblemCode::JoinRefused,
        ProblemCode::NoPlace,
        ProblemCode::CertificateRefused,
        ProblemCode::UnsupportedMediaType,
        ProblemCode::UnknownEnvironment,
        ProblemCode::UnknownNode,
        ProblemCode::UnknownVersion,
        ProblemCode::UnknownRole,
        ProblemCode::UnknownDatum,
        ProblemCode::UnknownRun,
        ProblemCode::UnknownIdentity,
        ProblemCode::UnknownUser,
        ProblemCode::UnknownRollout,
        ProblemCode::UnknownDocument,
        ProblemCode::UnknownKind,
        ProblemCode::UnknownDesignRevision,
        ProblemCode::UnknownBundle,
        ProblemCode::NotFound,
        ProblemCode::MethodNotAllowed,
        ProblemCode::IdempotencyKeyReused,
        ProblemCode::AlreadyExecuted,
        ProblemCode::Conflict,
        ProblemCode::Destroying,
        ProblemCode::PlanOutdated,
        ProblemCode::RolloutUnderWay,
        ProblemCode::RolloutRefused,
        ProblemCode::PolicyRefused,
        ProblemCode::OlderRelease,
        ProblemCode::UntrustsCurrent,
        ProblemCode::RemovesAll,
        ProblemCode::NotAsExpected,
        ProblemCode::TooLarge,
        ProblemCode::DesignRefused,
        ProblemCode::ReleaseRefused,
        ProblemCode::ReleaseTaken,
        ProblemCode::ReleaseUnreadable,
        ProblemCode::UploadsFull,
        ProblemCode::RangeNotSatisfiable,
        ProblemCode::Busy,
        ProblemCode::DuplicateAgent,
        ProblemCode::IncompatibleAgent,
        ProblemCode::DesignUnreadable,
        ProblemCode::CannotTell,
        ProblemCode::SecretsUnavailable,
        ProblemCode::StoreUnavailable,
        ProblemCode::StoreFull,
        ProblemCode::Internal,
    ];

    pub fn status(self) -> u16 {
        match self {
            ProblemCode::InvalidRequest | ProblemCode::InvalidFilter => 400,
            ProblemCode::Unauthenticated | ProblemCode::CertificateRefused => 401,
            ProblemCode::Forbidden | ProblemCode::JoinRefused => 403,
            ProblemCode::UnsupportedMediaType => 415,
            ProblemCode::TooManyAttempts => 429,
            ProblemCode::UnknownEnvironment
            | ProblemCode::UnknownNode
            | ProblemCode::UnknownVersion
            | ProblemCode::UnknownRole
            | ProblemCode::UnknownDatum
            | ProblemCode::UnknownRun
            | ProblemCode::UnknownIdentity
            | ProblemCode::UnknownUser
            | ProblemCode::UnknownRollout
            | ProblemCode::UnknownDocument
            | ProblemCode::UnknownKind
            | ProblemCode::UnknownDesignRevision
            | ProblemCode::UnknownBundle
            | ProblemCode::NotFound => 404,
            ProblemCode::MethodNotAllowed => 405,
            ProblemCode::Conflict
            | ProblemCode::AlreadyExecuted
            | ProblemCode::NoPlace
            | ProblemCode::ReleaseTaken
            | ProblemCode::Destroying
            | ProblemCode::PlanOutdated
            | ProblemCode::RolloutUnderWay
            | ProblemCode::RolloutRefused
            | ProblemCode::PolicyRefused
            | ProblemCode::RemovesAll
            | ProblemCode::UntrustsCurrent
            | ProblemCode::OlderRelease
            | ProblemCode::SecretsUnavailable
            | ProblemCode::DuplicateAgent
            | ProblemCode::IncompatibleAgent => 409,
            ProblemCode::NotAsExpected => 412,
            ProblemCode::TooLarge => 413,
            ProblemCode::RangeNotSatisfiable => 416,
            ProblemCode::DesignRefused | ProblemCode::ReleaseRefused | ProblemCode::IdempotencyKeyReused => 422,
            ProblemCode::Internal | ProblemCode::DesignUnreadable | ProblemCode::ReleaseUnreadable => 500,
            ProblemCode::Busy | ProblemCode::CannotTell | ProblemCode::StoreUnavailable => 503,
            ProblemCode::StoreFull | ProblemCode::UploadsFull => 507,
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            ProblemCode::InvalidRequest => "The request is not valid",
            ProblemCode::InvalidFilter => "The filter is not valid",
            ProblemCode::Unauthenticated => "The request is not authenticated",
            ProblemCode::TooManyAttempts => "Too many attempts failed",
            ProblemCode::Forbidden => "The client is not allowed",
            ProblemCode::JoinRefused => "The machine may not join",
            ProblemCode::NoPlace => "The design has no free place for the machine",
            ProblemCode::CertificateRefused => "The certificate is not accepted",
            ProblemCode::UnsupportedMediaType => "The media type is not supported",
            ProblemCode::UnknownEnvironment => "There is no such environment",
            ProblemCode::UnknownNode => "There is no such node in the design",
            ProblemCode::UnknownVersion => "There is no such release",
            ProblemCode::UnknownRole => "There is no such role in the design",
            ProblemCode::UnknownDatum => "There is no such datum",
            ProblemCode::UnknownRun => "There is no such run",
            ProblemCode::UnknownIdentity => "There is no such token or certificate",
            ProblemCode::UnknownUser => "There is no such user",
            ProblemCode::UnknownRollout => "There is no such rollout",
            ProblemCode::UnknownDocument => "There is no such document in the design",
            ProblemCode::UnknownKind => "There is no such kind of document",
            ProblemCode::UnknownDesignRevision => "There is no such revision of the design",
            ProblemCode::UnknownBundle => "There is no such bundle",
            ProblemCode::NotFound => "There is no such resource",
            ProblemCode::MethodNotAllowed => "The resource has no such method",
            ProblemCode::IdempotencyKeyReused => "The idempotency key belongs to another request",
            ProblemCode::AlreadyExecuted => "The request was executed before",
            ProblemCode::Conflict => "It was changed concurrently",
            ProblemCode::Destroying => "The environment is being destroyed",
            ProblemCode::PlanOutdated => "The plan is out of date",
            ProblemCode::RolloutUnderWay => "Another rollout is in progress",
            ProblemCode::RolloutRefused => "The command is not possible in this phase",
            ProblemCode::PolicyRefused => "The policy of the node does not allow it",
            ProblemCode::OlderRelease => "The release is older than the current one",
            ProblemCode::UntrustsCurrent => "No node could run the current release",
            ProblemCode::RemovesAll => "No node would be left",
            ProblemCode::NotAsExpected => "The precondition failed",
            ProblemCode::TooLarge => "The body is too large",
            ProblemCode::DesignRefused => "The design cannot be used",
            ProblemCode::ReleaseRefused => "The release cannot be used",
            ProblemCode::ReleaseTaken => "The version belongs to another release",
            ProblemCode::ReleaseUnreadable => "The release cannot be read",
            ProblemCode::UploadsFull => "Too many bundles are not registered",
            ProblemCode::RangeNotSatisfiable => "The range begins behind the end",
            ProblemCode::IncompatibleAgent => "Agent and server are too many versions apart",
            ProblemCode::DuplicateAgent => "Another agent with this node name is connected",
            ProblemCode::Busy => "The server is busy",
            ProblemCode::DesignUnreadable => "The design cannot be read",
            ProblemCode::CannotTell => "The view is behind the required revision",
            ProblemCode::SecretsUnavailable => "Secrets cannot be sealed",
            ProblemCode::StoreUnavailable => "The store is unavailable",
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

    /// Sets the current value.
    #[must_use]
    pub fn current(mut self, current: Value) -> Self {
        self.current = Some(Box::new(current));
        self
    }

    /// Sets the delay before the next attempt in seconds.
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

#[cfg(test)]
mod tests {
    use utoipa::PartialSchema;

    use super::*;

    #[test]
    fn list_of_codes_is_complete() {
        let schema = serde_json::to_value(ProblemCode::schema()).unwrap();
        assert_eq!(schema["enum"], serde_json::to_value(ProblemCode::ALL.as_slice()).unwrap());
    }
}
