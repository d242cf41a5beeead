//! Errors of the API: every failure becomes an RFC 9457 problem with a code and a hint.

use std::fmt::{self, Display};
use std::marker::PhantomData;

use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use muster_core::fleet::{Fleet, RestoreRecord};
use muster_core::names::{EnvName, HostName, NodeName, Version};
use muster_core::spelling::nearest;
use muster_core::txn::Revision;
use muster_store::StoreError;
use muster_wire::problem::{MEDIA_TYPE, Problem, ProblemCode};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::agents::incarnation::IncarnationError;
use crate::api::request::FutureRevision;
use crate::epochs::EpochError;
use crate::reports::ReportError;
use crate::view::StaleView;

/// Error response of the API.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) Problem);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A fleet that reconnects at once makes many `Busy` responses: not worth a warning.
        if status.is_server_error() && self.0.code != ProblemCode::Busy {
            tracing::warn!(code = ?self.0.code, detail = self.0.detail, "a request was refused");
        }
        let later = self.0.retry_after_seconds.map(|seconds| [(header::RETRY_AFTER, seconds.to_string())]);
        (status, later, [(header::CONTENT_TYPE, MEDIA_TYPE)], Json(self.0)).into_response()
    }
}

impl ApiError {
    pub(crate) fn unknown_env(env: &str, known: &[String]) -> Self {
        let hint = if known.is_empty() {
            "there are no environments yet".to_owned()
        } else {
            format!("there is {}", known.join(", "))
        };
        Self(Problem::new(ProblemCode::UnknownEnvironment, format!("there is no environment {env:?}")).hint(hint))
    }

    pub(crate) fn unknown_node(env: &EnvName, node: &dyn Display) -> Self {
        let problem = Problem::new(ProblemCode::UnknownNode, format!("{node} is not in the design of {env}"));
        Self(problem.hint("add it to the environment file; `muster node list` shows the nodes that are there"))
    }

    /// Error for a text that names no node of a fleet, with the closest name.
    pub(crate) fn no_such_node(fleet: &Fleet, text: &str) -> Self {
        if let (Err(error), Err(_)) = (NodeName::new(text), HostName::new(text)) {
            return Self::invalid(error.to_string());
        }
        let Self(problem) = Self::unknown_node(&fleet.env, &text);
        Self(match similar(text, fleet.designed().map(|(name, ..)| name.as_str())) {
            Some(near) => {
                problem.hint(format!("did you mean {near}? `muster node list` shows the nodes that are there"))
            }
            None => problem,
        })
    }

    pub(crate) fn unknown_version(version: &Version, known: &[String]) -> Self {
        let problem = Problem::new(ProblemCode::UnknownVersion, format!("there is no release {version}"));
        let there_is = format!("there is {}", if known.is_empty() { "none".into() } else { known.join(", ") });
        Self(problem.hint(match similar(version.as_str(), known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {near}? {there_is}"),
            None => there_is,
        }))
    }

    pub(crate) fn restoring(env: &EnvName, restoring: &RestoreRecord) -> Self {
        let RestoreRecord { since, by, .. } = restoring;
        let problem = Problem::new(ProblemCode::CannotTell, format!("{env} is being restored since {since}, by {by}"));
        Self(problem.hint("retry when it is done; if it was interrupted, run the same `muster restore FILE` again"))
    }

    pub(crate) fn stopping() -> Self {
        Self(Problem::new(ProblemCode::CannotTell, "the server is stopping").hint("retry when it is back"))
    }

    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self(Problem::new(ProblemCode::Internal, detail))
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self(Problem::new(ProblemCode::InvalidRequest, detail))
    }
}

/// The closest name. Names that differ in numbers alone are no suggestion: web9 is probably not meant to be web1.
fn similar<'k>(text: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let letters = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    let written = letters(text);
    nearest(text, known.filter(|name| letters(name) != written))
}

impl From<StaleView> for ApiError {
    fn from(behind: StaleView) -> Self {
        let problem = Problem::new(ProblemCode::CannotTell, behind.to_string()).current(revision_json(behind.at));
        Self(problem.hint("retry in a moment"))
    }
}

impl From<FutureRevision> for ApiError {
    fn from(future: FutureRevision) -> Self {
        let problem = Problem::new(ProblemCode::CannotTell, future.to_string()).current(revision_json(future.head));
        Self(problem.hint("a revision of another store, or from before a restore, has no meaning here: discard it"))
    }
}

fn revision_json(revision: Revision) -> serde_json::Value {
    serde_json::json!({ "revision": revision })
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let detail = chain(&error);
        match error {
            StoreError::Full { .. } => {
                Self(Problem::new(ProblemCode::StoreFull, detail).hint("free space on the disk of the store"))
            }
            StoreError::Unavailable { .. } | StoreError::Unknown { .. } | StoreError::Closed => {
                Self(Problem::new(ProblemCode::StoreUnavailable, detail).hint("retry: repeating a request is safe"))
            }
            StoreError::Invalid(_)
            | StoreError::Compacted { .. }
            | StoreError::Ahead { .. }
            | StoreError::LeaseEnded { .. }
            | StoreError::Corrupt { .. } => Self(Problem::new(ProblemCode::Internal, detail)),
        }
    }
}

impl From<ReportError> for ApiError {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::UnknownNode { env, node } => Self::unknown_node(&env, &node),
            ReportError::Store(error) => error.into(),
            ReportError::Contended { .. } => Self(Problem::new(ProblemCode::Conflict, chain(&error))),
            ReportError::Unreadable { .. } => Self(Problem::new(ProblemCode::Internal, chain(&error))),
            ReportError::Restoring { .. } => Self(Problem::new(ProblemCode::CannotTell, chain(&error))),
            ReportError::Log(ref source) if source.kind() == std::io::ErrorKind::StorageFull => {
                let problem = Problem::new(ProblemCode::StoreFull, chain(&error));
                Self(problem.hint("free some space on the server's disk"))
            }
            ReportError::Log(_) => Self(Problem::new(ProblemCode::StoreUnavailable, chain(&error))),
            ReportError::Stopping => Self(Problem::new(ProblemCode::StoreUnavailable, chain(&error))),
        }
    }
}

impl From<IncarnationError> for ApiError {
    fn from(error: IncarnationError) -> Self {
        match error {
            IncarnationError::Store(error) => error.into(),
            IncarnationError::StaleView(behind) => behind.into(),
            IncarnationError::Contended { .. } => Self(Problem::new(ProblemCode::Conflict, chain(&error))),
            IncarnationError::Unreadable { .. } | IncarnationError::Unwritable { .. } => {
                Self(Problem::new(ProblemCode::Internal, chain(&error)))
            }
        }
    }
}

impl From<EpochError> for ApiError {
    fn from(error: EpochError) -> Self {
        match error {
            EpochError::Store(error) => error.into(),
            EpochError::StaleView(behind) => behind.into(),
            EpochError::Contended { .. } => Self(Problem::new(ProblemCode::Conflict, chain(&error))),
            EpochError::Future { .. } => {
                let problem = Problem::new(ProblemCode::InvalidRequest, chain(&error));
                Self(problem.hint("check the clocks of the servers and of the store's machines"))
            }
            EpochError::ClaimLimit { .. } => {
                let problem = Problem::new(ProblemCode::InvalidRequest, chain(&error));
                Self(problem.hint(
                    "if the store was restored from an older snapshot once more, restart the servers; otherwise the \
                     state directory of this agent is wrong",
                ))
            }
        }
    }
}

/// Error with all of its sources, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// JSON body. The error of an invalid body names the position in it.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        match Json::<JsonObject<T>>::from_request(request, state).await {
            Ok(Json(JsonObject(body))) => Ok(Self(body)),
            Err(rejection) => Err(refuse_body(&rejection)),
        }
    }
}

/// A JSON object. Serde would also read a struct from an array of its fields, which the document of the API does not allow.
pub(crate) struct JsonObject<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = JsonObject<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(JsonObject)
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

fn refuse_body(rejection: &JsonRejection) -> ApiError {
    let code = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ProblemCode::TooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ProblemCode::UnsupportedMediaType,
        _ => ProblemCode::InvalidRequest,
    };
    ApiError(Problem::new(code, chain(rejection)))
}

/// Body as it was sent. The error of one that is too large or interrupted is a problem.
pub(crate) struct RawBody(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Bytes::from_request(request, state).await.map(Self).map_err(|rejection| {
            let too_large = rejection.status() == StatusCode::PAYLOAD_TOO_LARGE;
            let code = if too_large { ProblemCode::TooLarge } else { ProblemCode::InvalidRequest };
            ApiError(Problem::new(code, chain(&rejection)))
        })
    }
}

/// Query of a request. An invalid one is a problem, not the plain text of axum.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        query.map(|query| Self(query.0)).map_err(|rejection| ApiError::invalid(rejection.body_text()))
    }
}

/// Parameters in the path of a request. Invalid ones are a problem.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0)).map_err(|rejection| ApiError::invalid(rejection.body_text()))
    }
}

pub(crate) async fn not_found(method: Method, uri: Uri) -> ApiError {
    let detail = format!("there is nothing at {method} {}", uri.path());
    ApiError(Problem::new(ProblemCode::NotFound, detail).hint("GET /v1/openapi.json lists what there is"))
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let detail = format!("{} does not take {method}", uri.path());
    ApiError(Problem::new(ProblemCode::MethodNotAllowed, detail).hint("GET /v1/openapi.json lists what there is"))
}

/// Id of a request: of the client, or made by the server. It is in each response, in the log and in the audit.
pub(super) const REQUEST_ID: &str = "x-request-id";
/// Longest id of a client, in characters: one of this server has 36.
const LONGEST_REQUEST_ID: usize = 100;

/// Removes the id of a client that is not one line of a few letters: the server then makes one.
pub(super) async fn drop_invalid_request_id(mut request: Request) -> Request {
    let is_valid = |id: &[u8]| {
        (1..=LONGEST_REQUEST_ID).contains(&id.len())
            && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._:/+=-".contains(byte))
    };
    let mut ids = request.headers().get_all(REQUEST_ID).iter();
    let is_one = match (ids.next(), ids.next()) {
        (Some(id), None) => is_valid(id.as_bytes()),
        (None, _) => true,
        (Some(_), Some(_)) => false,
    };
    if !is_one {
        request.headers_mut().remove(REQUEST_ID);
    }
    request
}

/// Adds the request id to a problem, so that a client can quote it and the log entry is found.
pub(crate) async fn add_request_id(request: Request, next: Next) -> Response {
    let id = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
    let response = next.run(request).await;
    let is_problem = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == MEDIA_TYPE);
    if !is_problem {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let Ok(mut problem) = serde_json::from_slice::<Problem>(&bytes) else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    problem.request_id = id;
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = serde_json::to_vec(&problem).map_or_else(|_| Body::from(bytes), Body::from);
    Response::from_parts(parts, body)
}
