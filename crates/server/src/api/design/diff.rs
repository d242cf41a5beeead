//! What lies between two revisions.

use axum::Json;
use axum::extract::{Query, State};
use muster_core::design_state::DesignRevision;
use muster_wire::design::DesignDiff;
use serde::Deserialize;
use utoipa::IntoParams;

use super::documents::told_diff;
use crate::App;
use crate::api::answer::Refusal;
use crate::api::scope::Scope;
use crate::design::cache::Meant;
use crate::design::compiled::Compiled;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DiffQuery {
    /// By default, the revision that the nodes follow.
    #[param(value_type = Option<u64>)]
    from: Option<DesignRevision>,
    /// By default, the newest revision.
    #[param(value_type = Option<u64>)]
    to: Option<DesignRevision>,
}

/// The documents whose effective values differ between two revisions.
#[utoipa::path(get, path = "/v1/envs/{env}/design/diff", params(("env" = String, Path), DiffQuery),
    responses((status = 200, body = DesignDiff)))]
pub(crate) async fn show(
    State(app): State<App>,
    scope: Scope,
    query: Result<Query<DiffQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<DesignDiff>, Refusal> {
    let Query(query) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    let (from, to, revision) = scope.ask(&app, |fleet| {
        let from = query.from.or_else(|| fleet.design().applied());
        let from = from.map(|from| Meant::of(fleet, Some(from))).transpose();
        (from, Meant::of(fleet, query.to), fleet.revision)
    })?;
    let (from, to) = (from?, to?);
    let after = app.designs.get(&scope.env, &to).await?;
    let before = match &from {
        Some(from) => app.designs.get(&scope.env, from).await?,
        None => std::sync::Arc::new(Compiled::empty(&scope.env)),
    };
    let comparing = tokio::task::spawn_blocking(move || told_diff(&before.design, &after.design));
    let documents = comparing.await.map_err(|_| Refusal::stopping())?;
    Ok(Json(DesignDiff { from: from.map(|from| from.number), to: to.number, documents, revision }))
}
