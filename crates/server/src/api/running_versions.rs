//! What nodes have proved to run.

use axum::Json;
use axum::extract::{Path, Query, State};
use muster_core::names::{NodeName, Version};
use muster_wire::operator::{Page, RunningVersionRow};
use serde::Deserialize;

use crate::App;

use super::answer::Refusal;
use super::page::PageQuery;
use super::scope::Scope;

#[derive(Deserialize)]
pub(crate) struct VersionPath {
    version: Version,
}

/// The versions that nodes have proved to run.
#[utoipa::path(get, path = "/v1/envs/{env}/running-versions", params(("env" = String, Path)),
    responses((status = 200, body = Page<RunningVersionRow>)))]
pub(crate) async fn list(State(app): State<App>, scope: Scope) -> Result<Json<Page<RunningVersionRow>>, Refusal> {
    let page = scope.ask(&app, |fleet| {
        let rows = fleet.running().iter();
        let items = rows.map(|(version, nodes)| RunningVersionRow { version: version.clone(), nodes: nodes.len() });
        Page { items: items.collect(), next: None, revision: fleet.revision }
    })?;
    Ok(Json(page))
}

/// The nodes that have proved to run a version.
#[utoipa::path(get, path = "/v1/envs/{env}/running-versions/{version}/hosts",
    params(("env" = String, Path), ("version" = String, Path), PageQuery),
    responses((status = 200, body = Page<String>)))]
pub(crate) async fn hosts(
    State(app): State<App>,
    scope: Scope,
    path: Result<Path<VersionPath>, axum::extract::rejection::PathRejection>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<String>>, Refusal> {
    let Path(VersionPath { version }) = path.map_err(|error| Refusal::invalid(error.body_text()))?;
    let (mut nodes, revision) = scope.ask(&app, |fleet| {
        let nodes: Vec<NodeName> = fleet.running().get(&version).into_iter().flatten().cloned().collect();
        (nodes, fleet.revision)
    })?;
    nodes.sort_by(|a, b| a.natural().cmp(&b.natural()));
    Ok(Json(page.cut(nodes.into_iter().map(String::from).collect(), revision, String::clone)?))
}
