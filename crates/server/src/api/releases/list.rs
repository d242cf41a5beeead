//! All releases of an environment.

use axum::Json;
use axum::extract::{Query, State};
use muster_core::fleet::Fleet;
use muster_core::names::Version;
use muster_core::records::ReleaseRecord;
use muster_wire::operator::Page;
use muster_wire::release::ReleaseRow;

use crate::App;
use crate::api::answer::Refusal;
use crate::api::page::PageQuery;
use crate::api::scope::Scope;

/// The releases of the environment, the newest first.
#[utoipa::path(get, path = "/v1/envs/{env}/releases", params(("env" = String, Path), PageQuery),
    responses((status = 200, body = Page<ReleaseRow>)))]
pub(crate) async fn list(
    State(app): State<App>,
    scope: Scope,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<ReleaseRow>>, Refusal> {
    let (mut rows, revision) = scope.ask(&app, |fleet| {
        let rows: Vec<ReleaseRow> =
            fleet.releases().iter().map(|(version, record)| row(fleet, version, record)).collect();
        (rows, fleet.revision)
    })?;
    rows.sort_by(|a, b| (b.serial, &b.version).cmp(&(a.serial, &a.version)));
    Ok(Json(page.cut(rows, revision, |row| row.version.to_string())?))
}

pub(super) fn row(fleet: &Fleet, version: &Version, record: &ReleaseRecord) -> ReleaseRow {
    let current = fleet.current_version().is_some_and(|(current, _)| current == version);
    ReleaseRow {
        version: version.clone(),
        serial: record.serial,
        digest: record.digest.clone(),
        size: record.size,
        pushed: record.pushed,
        by: record.by.clone(),
        expires: record.signed.read().ok().and_then(|manifest| manifest.expires),
        signed_by: record.signed.signatures.iter().map(|signature| signature.key.clone()).collect(),
        current,
        wanted: if current { fleet.designed().count() } else { 0 },
        running: fleet.running().get(version).map_or(0, |nodes| nodes.len()),
    }
}
