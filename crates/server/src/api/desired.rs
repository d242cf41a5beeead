//! What a node should run, and whether it may: for an agent that asks without a stream.

use axum::Json;
use axum::extract::{Path, State};
use muster_wire::sync::{DesiredState, Told};

use crate::App;

use super::answer::Refusal;
use super::nodes::NodePath;
use super::scope::Scope;

/// What a node should run, and whether it is paused.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes/{node}/desired",
    params(("env" = String, Path), ("node" = String, Path)), responses((status = 200, body = Told)))]
pub(crate) async fn show(
    State(app): State<App>,
    scope: Scope,
    Path(path): Path<NodePath>,
) -> Result<Json<Told>, Refusal> {
    let node = path.designed(&app, &scope)?;
    let now = app.clock.now();
    let told = scope.ask(&app, |fleet| {
        let desired = DesiredState::of(fleet, &node);
        let role = fleet.get(&node).and_then(|node| node.record.as_ref()).map(|record| record.role.clone());
        let pause = role.and_then(|role| fleet.pause_of(&node, &role, now));
        Told { desired, pause, now }
    })?;
    Ok(Json(told))
}
