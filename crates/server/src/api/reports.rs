//! What agents say of their runs.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use muster_core::report::Report;
use muster_wire::problem::{Code, Problem};
use muster_wire::sync::{ReportTaken, Taken};

use crate::App;

use super::answer::{Refusal, chain};
use super::nodes::NodePath;
use super::scope::Scope;

/// Takes a report. When this answers, its effect is durable; sending it again does no harm.
#[utoipa::path(post, path = "/v1/envs/{env}/nodes/{node}/reports",
    params(("env" = String, Path), ("node" = String, Path)),
    request_body = Report, responses((status = 200, body = ReportTaken)))]
pub(crate) async fn take(
    State(app): State<App>,
    scope: Scope,
    Path(path): Path<NodePath>,
    body: Bytes,
) -> Result<Json<ReportTaken>, Refusal> {
    let node = path.designed(&app, &scope)?;
    let report: Report = serde_json::from_slice(&body).map_err(|error| Refusal::invalid(chain(&error)))?;
    if report.node != node {
        return Err(Refusal::invalid(format!("{node} cannot report for {}", report.node)));
    }
    if report.incarnation == 0 || report.seq == 0 {
        return Err(Refusal::invalid("incarnation and seq count from 1"));
    }
    let log = keep(&app, body).await?;
    let lookups = report.lookups.clone();
    let taken = app.reports.take(scope.env.clone(), report, Some(log)).await?;
    // What an older run saw is not what the node is to be woken for.
    if taken.taken != Taken::Outdated {
        app.hub.looked_up(&scope.env, &node, lookups);
    }
    Ok(Json(taken))
}

async fn keep(app: &App, body: Bytes) -> Result<String, Refusal> {
    let blobs = Arc::clone(&app.blobs);
    match tokio::task::spawn_blocking(move || blobs.put(&body)).await {
        Ok(Ok(digest)) => Ok(digest),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::StorageFull => {
            let problem = Problem::new(Code::StoreFull, format!("the report's log cannot be kept: {error}"));
            Err(Refusal(problem.hint("free some space on the server's disk")))
        }
        Ok(Err(error)) => {
            Err(Refusal(Problem::new(Code::StoreUnavailable, format!("the report's log cannot be kept: {error}"))))
        }
        Err(error) => Err(Refusal(Problem::new(Code::Internal, error.to_string()))),
    }
}
