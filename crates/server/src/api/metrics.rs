//! What monitoring reads.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use muster_wire::problem::{Code, Problem};

use crate::App;
use crate::metrics;

use super::answer::Refusal;

/// The server in numbers, as OpenMetrics text for Prometheus and its kin.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn show(State(app): State<App>) -> Result<Response, Refusal> {
    // Going through 10,000 nodes takes milliseconds: not on a thread that has streams to serve.
    let text = tokio::task::spawn_blocking(move || metrics::text(&app.metrics)).await;
    match text {
        Ok(Ok(text)) => Ok(([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], text).into_response()),
        Ok(Err(_)) | Err(_) => Err(Refusal(Problem::new(Code::Internal, "the metrics cannot be written"))),
    }
}
