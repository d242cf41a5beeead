//! HTTP handlers for the server itself: health, metrics, diagnosis and the OpenAPI document.

use std::sync::LazyLock;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use muster_wire::doctor::{DoctorReport, ReplicaReport};
use muster_wire::problem::{Problem, ProblemCode};

use crate::api::error::ApiError;
use crate::app::{App, Reader, ReplicaState};
use crate::{doctor, metrics};

/// Responds while the process is alive.
#[utoipa::path(get, path = "/healthz", responses((status = 204)))]
pub(crate) async fn healthz() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// Responds with success once the view is complete.
#[utoipa::path(get, path = "/readyz", responses((status = 204), (status = 503, body = Problem)))]
pub(crate) async fn readyz(State(reader): State<Reader>) -> Result<StatusCode, ApiError> {
    match reader.view.revision() {
        Some(_) => Ok(StatusCode::NO_CONTENT),
        None => Err(ApiError(Problem::new(ProblemCode::CannotTell, "the view is being built"))),
    }
}

/// Serves this document.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, description = "An OpenAPI document", content_type = "application/json", body = serde_json::Value)))]
pub(crate) async fn openapi_document() -> impl IntoResponse {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| super::router::openapi().to_string().into());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.clone())
}

/// Serves the metrics in OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn show_metrics(State(replica): State<ReplicaState>) -> Result<Response, ApiError> {
    // Collecting over 10,000 nodes takes milliseconds: not on a thread that serves streams.
    let text = tokio::task::spawn_blocking(move || metrics::text(&replica.metrics)).await;
    match text {
        Ok(Ok(text)) => Ok(([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], text).into_response()),
        Ok(Err(_)) | Err(_) => Err(ApiError(Problem::new(ProblemCode::Internal, "the metrics cannot be encoded"))),
    }
}

/// Examines the store and all replicas. Takes some seconds if one does not respond. Needs no view.
#[utoipa::path(get, path = "/v1/doctor", responses((status = 200, body = DoctorReport)))]
pub(crate) async fn run_doctor(State(app): State<App>) -> Json<DoctorReport> {
    let facts = doctor::collect_facts(&app).await;
    Json(DoctorReport { findings: doctor::findings(&facts), now: app.clock.now() })
}

/// Examines this replica, for the replica that runs the doctor.
#[utoipa::path(get, path = "/v1/doctor/self", responses((status = 200, body = ReplicaReport)))]
pub(crate) async fn run_doctor_on_self(State(app): State<App>) -> Json<ReplicaReport> {
    Json(doctor::examine_self(&app).await)
}
