//! The nodes that a design makes.

use axum::Json;
use axum::extract::{Query, State};
use muster_wire::design::DesignNodeRow;
use muster_wire::operator::Page;

use super::RevisionQuery;
use crate::App;
use crate::api::answer::Refusal;
use crate::api::page::PageQuery;
use crate::api::scope::Scope;

/// Lists the nodes that a revision of the design makes, in its order.
#[utoipa::path(get, path = "/v1/envs/{env}/design/nodes", params(("env" = String, Path), RevisionQuery, PageQuery),
    responses((status = 200, body = Page<DesignNodeRow>)))]
pub(crate) async fn list(
    State(app): State<App>,
    scope: Scope,
    revision: Result<Query<RevisionQuery>, axum::extract::rejection::QueryRejection>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<DesignNodeRow>>, Refusal> {
    let Query(revision) = revision.map_err(|error| Refusal::invalid(error.body_text()))?;
    let (_, design) = revision.design(&app, &scope).await?;
    let row = |node: &muster_design::PlannedNode| DesignNodeRow {
        node: node.name.clone(),
        role: node.record.role.clone(),
        flavor: node.record.flavor.clone(),
        profile: node.record.profile.clone(),
        failure_domain: node.record.failure_domain.clone(),
        labels: node.record.labels.clone(),
    };
    let rows = design.design.nodes().iter().map(|node| row(node)).collect();
    let revision = app.view.revision().unwrap_or_default();
    Ok(Json(page.cut(rows, revision, |row| row.node.to_string())?))
}
