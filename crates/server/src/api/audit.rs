//! HTTP handlers for the audit: records, and their verification.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use muster_core::audit::{AuditProblem, AuditRecord, ChainCheck};
use muster_core::names::EnvName;
use muster_wire::audit::{AuditPage, AuditQuery, AuditVerification, VerifyAuditQuery};
use tokio::time::timeout;

use crate::api::error::{ApiError, Query, chain};
use crate::api::request::{Scope, page_limit};
use crate::app::Reader;
use crate::audit::segments::{AuditSelection, AuditSnapshot};

/// Records of a page, unless the client wants fewer.
const LIMIT: usize = 1_000;
/// Longest time to wait for a record, in seconds.
const LONGEST_WAIT: u16 = 60;

/// Lists records of the whole server.
#[utoipa::path(get, path = "/v1/audit", params(AuditQuery), responses((status = 200, body = AuditPage)))]
pub(crate) async fn list_audit(
    State(reader): State<Reader>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<AuditPage>, ApiError> {
    list(&reader, None, query).await
}

/// Lists records of an environment.
#[utoipa::path(get, path = "/v1/envs/{env}/audit", params(("env" = String, Path), AuditQuery),
    responses((status = 200, body = AuditPage)))]
pub(crate) async fn list_environment_audit(
    State(reader): State<Reader>,
    scope: Scope,
    Query(query): Query<AuditQuery>,
) -> Result<Json<AuditPage>, ApiError> {
    list(&reader, Some(scope.env), query).await
}

async fn list(reader: &Reader, env: Option<EnvName>, query: AuditQuery) -> Result<Json<AuditPage>, ApiError> {
    reader.view.reach(reader.latest_revision.read().await?).await?;
    let wait = Duration::from_secs(query.wait.unwrap_or(0).min(LONGEST_WAIT).into());
    if let Some(after) = query.after {
        // Without a new record the page is empty, and the client asks again.
        let _ = timeout(wait, wait_for_record(reader, after)).await;
    }
    let node = query.node.clone();
    let node = node.map(muster_core::names::NodeName::new).transpose();
    let node = node.map_err(|error| ApiError::invalid(error.to_string()))?;
    let limit = page_limit(query.limit, LIMIT, LIMIT)?;
    let selection = AuditSelection { after: query.after.unwrap_or(0), since: query.since, limit };
    let (snapshot, last) = snapshot(reader);
    let revision = reader.view.revision().unwrap_or_default();
    let by = query.by;
    let is_wanted = move |record: &AuditRecord| {
        env.as_ref().is_none_or(|env| record.env.as_ref() == Some(env))
            && node.as_ref().is_none_or(|node| record.concerns(node))
            && by.as_ref().is_none_or(|by| record.actor.name() == *by)
    };
    let blobs = reader.blobs.clone();
    let select = move || snapshot.select(&blobs, &selection, is_wanted);
    let (items, damaged) = tokio::task::spawn_blocking(select).await.map_err(failed)?;
    // A full page may have left out later ones.
    let next = items.last().filter(|_| query.after.is_some() && items.len() == limit).map_or(last, |record| record.seq);
    Ok(Json(AuditPage { items, next, revision, damaged }))
}

/// Waits until the audit has a record after a number, or the server stops.
async fn wait_for_record(reader: &Reader, after: u64) {
    let mut steps = reader.view.subscribe();
    loop {
        steps.mark_unchanged();
        if reader.view.server_records().audit_tail().0 > after {
            return;
        }
        tokio::select! {
            changed = steps.changed() => if changed.is_err() { return },
            () = reader.stopping() => return,
        }
    }
}

/// Checks all records of the audit: finds those that were changed, removed, replaced or moved.
#[utoipa::path(get, path = "/v1/audit/verify", params(VerifyAuditQuery), responses((status = 200, body = AuditVerification)))]
pub(crate) async fn verify_audit(
    State(reader): State<Reader>,
    Query(query): Query<VerifyAuditQuery>,
) -> Result<Json<AuditVerification>, ApiError> {
    reader.view.reach(reader.latest_revision.read().await?).await?;
    let (snapshot, _) = snapshot(&reader);
    let revision = reader.view.revision().unwrap_or_default();
    let blobs = reader.blobs.clone();
    let verify = move || snapshot.verify(&blobs, query.hash.as_deref());
    let (check, found) = tokio::task::spawn_blocking(verify).await.map_err(failed)?;
    let (last, hash) = check.last();
    let hash = hash.map(str::to_owned);
    let ChainCheck { records, mut problems, .. } = check;
    if !found {
        problems.push(AuditProblem::UnknownHash);
    }
    Ok(Json(AuditVerification { records, last, hash, problems, revision }))
}

fn snapshot(reader: &Reader) -> (AuditSnapshot, u64) {
    let records = reader.view.server_records();
    let segments = records.segments().values().cloned().collect();
    let open = records.open_audit().map(|(seq, line)| (seq, Arc::clone(line))).collect();
    (AuditSnapshot { segments, open }, records.audit_tail().0)
}

fn failed(error: tokio::task::JoinError) -> ApiError {
    ApiError::internal(chain(&error))
}
