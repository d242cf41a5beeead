//! What agents do right now.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use muster_core::standing::Activity;

use crate::App;

use super::answer::{JsonBody, Refusal};
use super::nodes::NodePath;
use super::scope::Scope;

/// Says what a node's agent does. Kept in memory only, as long as its stream is open.
#[utoipa::path(put, path = "/v1/envs/{env}/nodes/{node}/activity",
    params(("env" = String, Path), ("node" = String, Path)), request_body = Activity, responses((status = 204)))]
pub(crate) async fn say(
    State(app): State<App>,
    scope: Scope,
    Path(path): Path<NodePath>,
    JsonBody(activity): JsonBody<Activity>,
) -> Result<StatusCode, Refusal> {
    let node = path.designed(&app, &scope)?;
    app.hub.acts(&scope.env, &node, activity);
    Ok(StatusCode::NO_CONTENT)
}
