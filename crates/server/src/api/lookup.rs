//! What a node would see at a key, and where it comes from.

use axum::Json;
use axum::extract::{Path, State};
use muster_core::lookup;
use muster_core::summary::clip;
use muster_wire::data::Lookup;
use serde::Deserialize;

use crate::App;
use crate::agents::AgentLocation;

use super::answer::Refusal;
use super::nodes::NodePath;
use super::scope::Scope;

/// Longer keys are none.
const LONGEST: usize = 400;

#[derive(Deserialize)]
pub(crate) struct KeyPath {
    key: String,
}

/// Looks a key up as a run on the node would: a plain one, or one that begins with `etcdlookup::`.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes/{node}/lookup/{key}",
    params(("env" = String, Path), ("node" = String, Path), ("key" = String, Path)),
    responses((status = 200, body = Lookup)))]
pub(crate) async fn show(
    State(app): State<App>,
    scope: Scope,
    Path(node): Path<NodePath>,
    Path(KeyPath { key }): Path<KeyPath>,
) -> Result<Json<Lookup>, Refusal> {
    let node = node.designed(&app, &scope)?;
    let key = clip(&key, LONGEST).to_owned();
    let elsewhere = app.activities_elsewhere(&scope.env, Some(&node)).await;
    let answer = scope.ask(&app, |fleet| {
        let found = lookup::find(fleet, &node, &key);
        let near = if found.is_none() { lookup::near(fleet, &node, &key) } else { None };
        let recorded = lookup::recorded(&key);
        let looked_up = match app.links.of(fleet, &node).at {
            AgentLocation::Local(session) => Some(session.has_looked_up(&recorded)),
            AgentLocation::Remote(_) => elsewhere.get(&node).map(|told| told.lookups.contains(&recorded)),
            AgentLocation::Disconnected => None,
        };
        Lookup { node: node.clone(), key: key.clone(), found, near, looked_up, revision: fleet.revision }
    })?;
    Ok(Json(answer))
}
