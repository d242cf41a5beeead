//! What applying a design would do.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use muster_wire::design::{DesignInput, Planned};

use super::AnyEnv;
use super::findings::told;
use crate::App;
use crate::api::answer::{JsonBody, Refusal};
use crate::design::work::{lay_over, plan};

/// Says what applying a design would do to the nodes. Changes nothing. Without sources: what is there already, newest.
#[utoipa::path(post, path = "/v1/envs/{env}/design/plan", params(("env" = String, Path)),
    request_body = DesignInput, responses((status = 200, body = Planned)))]
pub(crate) async fn show(
    State(app): State<App>,
    AnyEnv(env): AnyEnv,
    JsonBody(input): JsonBody<DesignInput>,
) -> Result<Json<Planned>, Refusal> {
    let laid = lay_over(&app, &env, &Arc::new(input)).await?;
    let plan = plan(&app, &laid).await?;
    let revision = app.view.revision().unwrap_or_default();
    Ok(Json(Planned { plan, findings: told(&laid.next.findings), revision }))
}
