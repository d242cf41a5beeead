//! The rollouts that are remembered.

use axum::Json;
use axum::extract::{Query, State};
use muster_wire::operator::Page;
use muster_wire::rollout::RolloutRow;

use crate::App;
use crate::api::answer::Refusal;
use crate::api::page::PageQuery;
use crate::api::scope::Scope;
use crate::rollouts::shown;

/// Lists the rollouts that are remembered, the newest first.
#[utoipa::path(get, path = "/v1/envs/{env}/rollouts", params(("env" = String, Path), PageQuery),
    responses((status = 200, body = Page<RolloutRow>)))]
pub(crate) async fn list(
    State(app): State<App>,
    scope: Scope,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<RolloutRow>>, Refusal> {
    let (rows, revision) = scope.ask(&app, |fleet| {
        let newest_first = fleet.rollouts().values().rev();
        let rows: Vec<RolloutRow> = newest_first.map(|(record, _)| shown::row(fleet, record)).collect();
        (rows, fleet.revision)
    })?;
    Ok(Json(page.cut(rows, revision, |row: &RolloutRow| row.id.to_string())?))
}
