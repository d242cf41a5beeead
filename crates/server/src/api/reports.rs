//! What agents say of their runs.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use muster_core::published::{self, PUBLISHED_LIMIT};
use muster_core::report::{Outcome, Report, RunResult};
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
    if let Some(size) = report.published.as_ref().map(published::size).filter(|size| *size > PUBLISHED_LIMIT) {
        // Its run should have failed for it. The report counts, and what the node published before stays.
        tracing::warn!(env = %scope.env, %node, size, limit = PUBLISHED_LIMIT, "publishes too much: that is not taken");
    }
    let lookups = report.lookups.clone();
    let over = is_last(report.outcome).then(|| report.run.clone());
    let taken = app.reports.take(scope.env.clone(), report, body).await?;
    // What an older run saw is not what the node is to be woken for.
    if taken.taken != Taken::Outdated {
        app.hub.looked_up(&scope.env, &node, lookups);
    }
    if let Some(run) = over {
        app.hub.live_logs.reported(&scope.env, &node, &run);
    }
    Ok(Json(taken))
}

/// Whether a run says nothing more after this report.
pub(super) fn is_last(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => false,
        Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Previewed(_) | Outcome::Validated(_) => {
            true
        }
    }
}
