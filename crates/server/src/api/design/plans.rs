//! Check, plan and apply of a design.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use muster_wire::design::{ApplyDesign, ApplyDesignResponse, CheckDesignResponse, DesignInput, PlanDesignResponse};

use crate::api::error::{ApiError, JsonBody};
use crate::api::request::{AnyEnv, Author};
use crate::app::{Reader, Writer};
use crate::design::apply;
use crate::design::apply::{plan, propose};

/// Checks a design, merged into the existing sources. Changes nothing.
#[utoipa::path(post, path = "/v1/envs/{env}/design/check", params(("env" = String, Path)),
    request_body = DesignInput, responses((status = 200, body = CheckDesignResponse)))]
pub(crate) async fn check_design(
    State(reader): State<Reader>,
    AnyEnv(env): AnyEnv,
    JsonBody(input): JsonBody<DesignInput>,
) -> Result<Json<CheckDesignResponse>, ApiError> {
    let next = propose(&reader, &env, &Arc::new(input)).await?.next;
    Ok(Json(CheckDesignResponse {
        usable: next.is_usable(),
        findings: next.findings.to_vec(),
        documents: next.design.written().count(),
        nodes: next.design.nodes().len(),
    }))
}

/// Plans a design: shows what applying it would do to the nodes. Changes nothing. Without sources, plans the newest revision.
#[utoipa::path(post, path = "/v1/envs/{env}/design/plan", params(("env" = String, Path)),
    request_body = DesignInput, responses((status = 200, body = PlanDesignResponse)))]
pub(crate) async fn plan_design(
    State(reader): State<Reader>,
    AnyEnv(env): AnyEnv,
    JsonBody(input): JsonBody<DesignInput>,
) -> Result<Json<PlanDesignResponse>, ApiError> {
    let laid = propose(&reader, &env, &Arc::new(input)).await?;
    let plan = plan(&reader, &laid).await?;
    let revision = reader.view.revision().unwrap_or_default();
    Ok(Json(PlanDesignResponse { plan, findings: laid.next.findings.to_vec(), revision }))
}

/// Applies a design as a new revision: exactly as planned, if a plan is given. Responds when the nodes are registered.
///
/// Creates the environment if it does not exist. A design without any node is refused, unless `remove_all` is set.
#[utoipa::path(post, path = "/v1/envs/{env}/design/apply", params(("env" = String, Path)),
    request_body = ApplyDesign, responses((status = 200, body = ApplyDesignResponse)))]
pub(crate) async fn apply_design(
    State(writer): State<Writer>,
    AnyEnv(env): AnyEnv,
    author: Author,
    JsonBody(ApplyDesign { design, message, author: named, plan, remove_all }): JsonBody<ApplyDesign>,
) -> Result<Json<ApplyDesignResponse>, ApiError> {
    let by = author.by(named, &message);
    let terms = apply::ApplyOptions { shown: plan.as_ref(), remove_all };
    let done = apply::apply(&writer, &env, &Arc::new(design), terms, &by).await?;
    let apply::AppliedDesign { number, changed, plan, next, followed, revision } = done;
    Ok(Json(ApplyDesignResponse {
        design: number,
        changed,
        plan,
        followed,
        findings: next.findings.to_vec(),
        revision,
    }))
}
