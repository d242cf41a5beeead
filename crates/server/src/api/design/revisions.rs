//! The revisions of a design.

use axum::Json;
use axum::extract::{Path, Query, State};
use muster_core::design_state::{DesignRevision, DesignState, RevisionRecord};
use muster_wire::design::RevisionRow;
use muster_wire::operator::Page;
use serde::Deserialize;

use crate::App;
use crate::api::answer::Refusal;
use crate::api::page::PageQuery;
use crate::api::scope::Scope;
use crate::design::error::ReadDesignError;

#[derive(Deserialize)]
pub(crate) struct NumberPath {
    number: u64,
}

/// All revisions, the newest first.
#[utoipa::path(get, path = "/v1/envs/{env}/design/revisions", params(("env" = String, Path), PageQuery),
    responses((status = 200, body = Page<RevisionRow>)))]
pub(crate) async fn list(
    State(app): State<App>,
    scope: Scope,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<RevisionRow>>, Refusal> {
    let (rows, revision) = scope.ask(&app, |fleet| {
        let design = fleet.design();
        let rows = design.revisions.iter().rev().map(|(number, record)| row(design, *number, record));
        (rows.collect(), fleet.revision)
    })?;
    Ok(Json(page.cut(rows, revision, |row: &RevisionRow| row.design.to_string())?))
}

/// One revision.
#[utoipa::path(get, path = "/v1/envs/{env}/design/revisions/{number}",
    params(("env" = String, Path), ("number" = u64, Path)), responses((status = 200, body = RevisionRow)))]
pub(crate) async fn show(
    State(app): State<App>,
    scope: Scope,
    path: Result<Path<NumberPath>, axum::extract::rejection::PathRejection>,
) -> Result<Json<RevisionRow>, Refusal> {
    let Path(NumberPath { number }) = path.map_err(|error| Refusal::invalid(error.body_text()))?;
    let number = DesignRevision(number);
    let found = scope.ask(&app, |fleet| {
        let design = fleet.design();
        let unknown = || ReadDesignError::Unknown { env: fleet.env.clone(), number, newest: design.head() };
        design.revisions.get(&number).map(|record| row(design, number, record)).ok_or_else(unknown)
    })?;
    Ok(Json(found?))
}

fn row(design: &DesignState, number: DesignRevision, record: &RevisionRecord) -> RevisionRow {
    let RevisionRecord { author, message, at, manifest, parent } = record.clone();
    RevisionRow { design: number, author, message, at, parent, manifest, applied: design.applied() == Some(number) }
}
