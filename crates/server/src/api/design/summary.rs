//! Where the design of an environment stands.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use muster_wire::design::{DesignSummary, SourceRow};

use crate::App;
use crate::api::answer::Refusal;
use crate::api::scope::Scope;
use crate::design::cache::Meant;
use crate::fleet_change::compare;

/// The newest revision, the one that the nodes follow, and the sources.
#[utoipa::path(get, path = "/v1/envs/{env}/design", params(("env" = String, Path)),
    responses((status = 200, body = DesignSummary)))]
pub(crate) async fn show(State(app): State<App>, scope: Scope) -> Result<Json<DesignSummary>, Refusal> {
    let (head, applied, meant, applied_meant) = scope.ask(&app, |fleet| {
        let design = fleet.design();
        let applied = design.applied.as_ref().map(|(applied, _)| applied.clone());
        let followed = applied.as_ref().and_then(|applied| Meant::of(fleet, Some(applied.revision)).ok());
        (design.head(), applied, design.head().and_then(|_| Meant::of(fleet, None).ok()), followed)
    })?;
    let newest = match &meant {
        Some(meant) => Some(app.designs.get(&scope.env, meant).await?),
        None => None,
    };
    let followed = match &applied_meant {
        Some(meant) => Some(app.designs.get(&scope.env, meant).await?.records()),
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
    let summary = scope.ask(&app, |fleet| DesignSummary {
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
