//! HTTP handlers for the design of an environment: its summary, its revisions and the difference between two of them.

pub(super) mod apply;
pub(super) mod documents;
mod errors;
pub(super) mod nodes;

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use muster_core::design::{DesignRevision, DesignRevisionRecord, DesignState};
use muster_design::Design;
use muster_design::diff::{DocumentChange, diff};
use muster_wire::design::{DesignDiff, DesignSummary, DiffKind, DocumentDiffRow, RevisionRow, SourceRow, ValueChange};
use muster_wire::operator::Page;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::error::{ApiError, Path, Query};
use crate::api::request::{PageQuery, Scope};
use crate::app::Reader;
use crate::design::compiled::ReadDesignError;
use crate::design::compiled::{CompiledDesign, DesignRef};
use crate::design::node_records::compare;

/// Largest body. Designs of many megabytes are sent whole; larger ones must be split into sources.
pub(super) const BODY_LIMIT: usize = 64 * 1024 * 1024;

/// Revision of the design that a request is about.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RevisionQuery {
    /// Number of a revision; by default the newest.
    #[param(value_type = Option<u64>)]
    revision: Option<DesignRevision>,
}

impl RevisionQuery {
    /// Reference to the revision, and the compiled design.
    pub(super) async fn design(
        &self,
        reader: &Reader,
        scope: &Scope,
    ) -> Result<(DesignRef, std::sync::Arc<CompiledDesign>), ApiError> {
        let design_ref = scope.read(reader, |fleet| DesignRef::find(fleet, self.revision))??;
        let design = reader.designs.get(&scope.env, &design_ref).await?;
        Ok((design_ref, design))
    }
}

/// Shows the newest revision, the applied revision, and the sources.
#[utoipa::path(get, path = "/v1/envs/{env}/design", params(("env" = String, Path)),
    responses((status = 200, body = DesignSummary)))]
pub(crate) async fn show_design(State(reader): State<Reader>, scope: Scope) -> Result<Json<DesignSummary>, ApiError> {
    let (head, applied, design_ref, applied_ref) = scope.read(&reader, |fleet| {
        let design = fleet.design();
        let applied = design.applied.as_ref().map(|(applied, _)| applied.clone());
        let followed = applied.as_ref().and_then(|applied| DesignRef::find(fleet, Some(applied.revision)).ok());
        (design.head(), applied, design.head().and_then(|_| DesignRef::find(fleet, None).ok()), followed)
    })?;
    let newest = match &design_ref {
        Some(design_ref) => Some(reader.designs.get(&scope.env, design_ref).await?),
        None => None,
    };
    let followed = match &applied_ref {
        Some(design_ref) => Some(reader.designs.get(&scope.env, design_ref).await?.records()),
        None => None,
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for document in newest.iter().flat_map(|newest| newest.design.written()) {
        *counts.entry(document.source).or_default() += 1;
    }
    let mut generated: BTreeMap<&str, usize> = BTreeMap::new();
    for source in newest.iter().flat_map(|newest| newest.design.generated_nodes()) {
        *generated.entry(source).or_default() += 1;
    }
    let sources = newest.iter().flat_map(|newest| &newest.tree.sources).map(|source| SourceRow {
        name: source.name.clone(),
        files: source.len(),
        documents: counts.get(source.name.as_str()).copied().unwrap_or_default(),
        generated_nodes: generated.get(source.name.as_str()).copied().unwrap_or_default(),
    });
    let sources: Vec<SourceRow> = sources.collect();
    let nodes = newest.as_ref().map_or(0, |newest| newest.design.nodes().len());
    let summary = scope.read(&reader, |fleet| DesignSummary {
        env: fleet.env.clone(),
        head,
        applied,
        followed: followed.is_some_and(|records| compare(fleet, &records).is_nothing()),
        documents: sources.iter().map(|source| source.documents).sum(),
        sources,
        nodes,
        revision: fleet.revision,
    })?;
    Ok(Json(summary))
}

#[derive(Deserialize)]
pub(crate) struct NumberPath {
    number: u64,
}

/// Lists all revisions, newest first.
#[utoipa::path(get, path = "/v1/envs/{env}/design/revisions", params(("env" = String, Path), PageQuery),
    responses((status = 200, body = Page<RevisionRow>)))]
pub(crate) async fn list_revisions(
    State(reader): State<Reader>,
    scope: Scope,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<RevisionRow>>, ApiError> {
    let (rows, revision) = scope.read(&reader, |fleet| {
        let design = fleet.design();
        let rows = design.revisions.iter().rev().map(|(number, record)| revision_row(design, *number, record));
        (rows.collect(), fleet.revision)
    })?;
    Ok(Json(page.cut(rows, revision, |row: &RevisionRow| row.design.to_string())?))
}

/// Shows one revision.
#[utoipa::path(get, path = "/v1/envs/{env}/design/revisions/{number}",
    params(("env" = String, Path), ("number" = u64, Path)), responses((status = 200, body = RevisionRow)))]
pub(crate) async fn show_revision(
    State(reader): State<Reader>,
    scope: Scope,
    Path(NumberPath { number }): Path<NumberPath>,
) -> Result<Json<RevisionRow>, ApiError> {
    let number = DesignRevision(number);
    let found = scope.read(&reader, |fleet| {
        let design = fleet.design();
        let unknown = || ReadDesignError::Unknown { env: fleet.env.clone(), number, newest: design.head() };
        design.revisions.get(&number).map(|record| revision_row(design, number, record)).ok_or_else(unknown)
    })?;
    Ok(Json(found?))
}

fn revision_row(design: &DesignState, number: DesignRevision, record: &DesignRevisionRecord) -> RevisionRow {
    let DesignRevisionRecord { author, message, at, manifest, parent } = record.clone();
    RevisionRow { design: number, author, message, at, parent, manifest, applied: design.applied() == Some(number) }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DiffQuery {
    /// By default, the applied revision.
    #[param(value_type = Option<u64>)]
    from: Option<DesignRevision>,
    /// By default, the newest revision.
    #[param(value_type = Option<u64>)]
    to: Option<DesignRevision>,
}

/// Lists the documents whose effective values differ between two revisions.
#[utoipa::path(get, path = "/v1/envs/{env}/design/diff", params(("env" = String, Path), DiffQuery),
    responses((status = 200, body = DesignDiff)))]
pub(crate) async fn diff_revisions(
    State(reader): State<Reader>,
    scope: Scope,
    Query(query): Query<DiffQuery>,
) -> Result<Json<DesignDiff>, ApiError> {
    let (from, to, revision) = scope.read(&reader, |fleet| {
        let from = query.from.or_else(|| fleet.design().applied());
        let from = from.map(|from| DesignRef::find(fleet, Some(from))).transpose();
        (from, DesignRef::find(fleet, query.to), fleet.revision)
    })?;
    let (from, to) = (from?, to?);
    let after = reader.designs.get(&scope.env, &to).await?;
    let before = match &from {
        Some(from) => reader.designs.get(&scope.env, from).await?,
        None => std::sync::Arc::new(CompiledDesign::empty(&scope.env)),
    };
    let comparing = tokio::task::spawn_blocking(move || document_diffs(&before.design, &after.design));
    let documents = comparing.await.map_err(|_| ApiError::stopping())?;
    Ok(Json(DesignDiff { from: from.map(|from| from.number), to: to.number, documents, revision }))
}

/// Documents that differ between two designs.
fn document_diffs(before: &Design, after: &Design) -> Vec<DocumentDiffRow> {
    let to_wire = |found: muster_design::diff::ChangedDocument| {
        let (sort, changes) = match found.what {
            DocumentChange::Added => (DiffKind::Added, Vec::new()),
            DocumentChange::Removed => (DiffKind::Removed, Vec::new()),
            DocumentChange::Changed { values } => (DiffKind::Changed, values.iter().map(ValueChange::from).collect()),
        };
        DocumentDiffRow { kind: found.kind, name: found.name, sort, changes }
    };
    diff(before, after).into_iter().map(to_wire).collect()
}
