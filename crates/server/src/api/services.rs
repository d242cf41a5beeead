//! HTTP handler for services that active nodes offer.

use axum::Json;
use axum::extract::State;
use muster_core::names::ServiceName;
use muster_wire::operator::{Page, ServiceRow};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::error::{ApiError, Query};
use crate::api::request::{PageQuery, Scope};
use crate::app::Reader;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ServiceQuery {
    /// Only this service.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    service: Option<ServiceName>,
}

/// Lists the services of active nodes: those of the last passed validation of each node in `active_roles`.
#[utoipa::path(get, path = "/v1/envs/{env}/services", params(("env" = String, Path), PageQuery, ServiceQuery),
    responses((status = 200, body = Page<ServiceRow>)))]
pub(crate) async fn list_services(
    State(reader): State<Reader>,
    scope: Scope,
    Query(page): Query<PageQuery>,
    Query(ServiceQuery { service: wanted }): Query<ServiceQuery>,
) -> Result<Json<Page<ServiceRow>>, ApiError> {
    let (rows, revision) = scope.read(&reader, |fleet| {
        let names = fleet.services().iter().map(|(name, _)| name);
        let names = names.filter(|name| wanted.as_ref().is_none_or(|wanted| wanted == *name));
        let rows = names.flat_map(|name| {
            fleet.offers(name.as_str()).into_iter().map(|offer| ServiceRow { service: name.clone(), offer })
        });
        (rows.collect(), fleet.revision)
    })?;
    Ok(Json(page.cut(rows, revision, |row: &ServiceRow| format!("{}/{}", row.service, row.offer.node))?))
}
