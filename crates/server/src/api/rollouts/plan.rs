//! What would happen.

use axum::Json;
use axum::extract::State;
use muster_wire::rollout::{PlanAnswer, PlanRequest};

use crate::App;
use crate::api::answer::{JsonBody, Refusal};
use crate::api::scope::Scope;
use crate::rollouts::asked::plan_for;

/// Plans a rollout, and changes nothing. The plan can be started as it is, for as long as the world stays as it is.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/plan", params(("env" = String, Path)),
    request_body = PlanRequest, responses((status = 200, body = PlanAnswer)))]
pub(crate) async fn plan(
    State(app): State<App>,
    scope: Scope,
    JsonBody(request): JsonBody<PlanRequest>,
) -> Result<Json<PlanAnswer>, Refusal> {
    Ok(Json(plan_for(&app, &scope.env, request).await?))
}
