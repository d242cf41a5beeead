//! Whether the server is there, and whether it can answer.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use muster_wire::problem::{Code, Problem};

use crate::App;

use super::answer::Refusal;

/// The process is there.
#[utoipa::path(get, path = "/healthz", responses((status = 204)))]
pub(crate) async fn live() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// The view is complete: questions are answered.
#[utoipa::path(get, path = "/readyz", responses((status = 204), (status = 503, body = Problem)))]
pub(crate) async fn ready(State(app): State<App>) -> Result<StatusCode, Refusal> {
    match app.view.revision() {
        Some(_) => Ok(StatusCode::NO_CONTENT),
        None => Err(Refusal(Problem::new(Code::CannotTell, "the view is being built"))),
    }
}

/// This API, described.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, description = "An OpenAPI document")))]
pub(crate) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(super::router::openapi())
}
