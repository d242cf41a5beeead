//! The environments that there are.

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use muster_wire::design::DesignNumbers;
use muster_wire::operator::{EnvironmentRow, Page};

use crate::App;

use super::answer::Refusal;
use super::scope::fresh_enough;

/// Lists the environments.
#[utoipa::path(get, path = "/v1/envs", responses((status = 200, body = Page<EnvironmentRow>)))]
pub(crate) async fn list(State(app): State<App>, parts: Parts) -> Result<Json<Page<EnvironmentRow>>, Refusal> {
    fresh_enough(&parts, &app).await?;
    let fleets = app.view.fleets();
    let row = |fleet: &muster_core::fleet::Fleet| EnvironmentRow {
        env: fleet.env.clone(),
        nodes: fleet.designed().count(),
        current_version: fleet.current_version().map(|(version, _)| version.clone()),
        design: DesignNumbers { head: fleet.design().head(), applied: fleet.design().applied() },
        destroying: fleet.destroying().is_some(),
    };
    // What only servers say of themselves is left of one that was destroyed.
    let items = fleets.values().filter(|fleet| fleet.is_founded()).map(row).collect();
    Ok(Json(Page { items, next: None, revision: app.view.revision().unwrap_or_default() }))
}
