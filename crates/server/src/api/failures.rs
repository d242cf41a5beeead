//! The nodes that need a person.

use axum::Json;
use axum::extract::{Query, State};
use muster_core::standing::Word;
use muster_wire::operator::{NodeRow, Page};

use crate::App;
use crate::view::node_rows;

use super::answer::Refusal;
use super::page::PageQuery;
use super::scope::Scope;

/// The nodes that failed. A pending node waits, and is not one of them.
#[utoipa::path(get, path = "/v1/envs/{env}/failures", params(("env" = String, Path), PageQuery),
    responses((status = 200, body = Page<NodeRow>)))]
pub(crate) async fn list(
    State(app): State<App>,
    scope: Scope,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<NodeRow>>, Refusal> {
    let elsewhere = app.activities_elsewhere(&scope.env, None).await;
    let (mut rows, revision) =
        scope.ask(&app, |fleet| (node_rows::all(fleet, app.agents(&elsewhere)), fleet.revision))?;
    rows.retain(|row| is_failure(row.standing));
    Ok(Json(page.cut(rows, revision, |row| row.node.to_string())?))
}

pub(super) fn is_failure(word: Word) -> bool {
    match word {
        Word::Failed | Word::Invalid | Word::Unprovisioned | Word::Blocked => true,
        Word::Leaving
        | Word::Provisioning
        | Word::Silent
        | Word::Applying
        | Word::Validating
        | Word::Pending
        | Word::Outdated
        | Word::Configured
        | Word::Validated => false,
    }
}
