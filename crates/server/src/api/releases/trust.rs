//! Keys that agents trust to sign releases.

use axum::Json;
use axum::extract::{Query, State};
use muster_core::release::manifest::SignedTrust;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::release::{ReplaceTrustResponse, TrustResponse, TrustedKeys};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::error::{ApiError, JsonBody, chain};
use crate::api::request::Scope;
use crate::app::{Reader, Writer};
use crate::releases::{ReplaceTrustError, ReplacedTrust, replace as replace_trust};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ForceQuery {
    /// Accept the list even if none of its keys has signed the current release.
    #[serde(default)]
    force: bool,
}

/// Shows the trusted keys of the environment.
#[utoipa::path(get, path = "/v1/envs/{env}/trust", params(("env" = String, Path)),
    responses((status = 200, body = TrustResponse)))]
pub(crate) async fn show_trust(State(reader): State<Reader>, scope: Scope) -> Result<Json<TrustResponse>, ApiError> {
    let (trust, revision) =
        scope.ask(&reader, |fleet| (fleet.trust().map(|(trust, _)| trust.clone()), fleet.revision))?;
    let list = trust.and_then(|signed| {
        let list = signed.read().ok()?;
        Some(TrustedKeys { serial: list.serial, keys: list.keys, signed })
    });
    Ok(Json(TrustResponse { list, revision }))
}

/// Replaces the list of trusted keys. A key of the previous list must have signed it; agents verify the same.
///
/// Refused if no node could run the current release any more, unless `force` is set.
#[utoipa::path(put, path = "/v1/envs/{env}/trust", params(("env" = String, Path), ForceQuery),
    request_body = SignedTrust, responses((status = 200, body = ReplaceTrustResponse)))]
pub(crate) async fn replace_trusted_keys(
    State(writer): State<Writer>,
    scope: Scope,
    Query(ForceQuery { force }): Query<ForceQuery>,
    JsonBody(trust): JsonBody<SignedTrust>,
) -> Result<Json<ReplaceTrustResponse>, ApiError> {
    let ReplacedTrust { list, verified, changed, revision } = replace_trust(&writer, &scope.env, trust, force).await?;
    Ok(Json(ReplaceTrustResponse { serial: list.serial, keys: list.keys, verified, changed, revision }))
}

impl From<ReplaceTrustError> for ApiError {
    fn from(error: ReplaceTrustError) -> Self {
        let text = chain(&error);
        match error {
            ReplaceTrustError::Payload(_) => Self::invalid(text),
            ReplaceTrustError::Refused(_) => {
                let problem = Problem::new(ProblemCode::ReleaseRefused, text);
                Self(problem.hint("sign it with a key of the list that it replaces; `muster key list` shows them"))
            }
            ReplaceTrustError::NotNewer { .. } => {
                let problem = Problem::new(ProblemCode::Conflict, text);
                Self(problem.hint("check `muster key list`, then make the list again"))
            }
            ReplaceTrustError::UntrustsCurrent { .. } => {
                let problem = Problem::new(ProblemCode::UntrustsCurrent, text);
                Self(problem.hint(
                    "build and push the release under a new version, signed with a key that stays, and roll it out with `muster \
                     trigger-update` first; use --force if this is intended",
                ))
            }
            ReplaceTrustError::NotAccepting(error) => (*error).into(),
            ReplaceTrustError::Store(error) => error.into(),
            ReplaceTrustError::StaleView(behind) => behind.into(),
            ReplaceTrustError::Record(_) => Self(Problem::new(ProblemCode::Internal, text)),
            ReplaceTrustError::Contended { .. } => Self(Problem::new(ProblemCode::Conflict, text)),
        }
    }
}
