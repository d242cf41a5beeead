//! One run of a node, with its reports and logs as the agent sent them.

use axum::Json;
use axum::extract::{Path, State};
use muster_wire::operator::RunDetail;
use muster_wire::problem::{Code, Problem};
use serde::Deserialize;

use crate::App;

use super::answer::Refusal;
use super::nodes::NodePath;
use super::scope::Scope;

#[derive(Deserialize)]
pub(crate) struct RunPath {
    run: String,
}

/// The reports of one run.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes/{node}/runs/{run}",
    params(("env" = String, Path), ("node" = String, Path), ("run" = String, Path)),
    responses((status = 200, body = RunDetail)))]
pub(crate) async fn show(
    State(app): State<App>,
    scope: Scope,
    Path(node): Path<NodePath>,
    Path(RunPath { run }): Path<RunPath>,
) -> Result<Json<RunDetail>, Refusal> {
    let node = node.designed(&app, &scope)?;
    let history = scope.ask(&app, |fleet| fleet.get(&node).map(|node| node.history()).unwrap_or_default())?;
    let Some(past) = history.0.into_iter().find(|past| past.run.as_str() == run) else {
        let problem = Problem::new(Code::UnknownRun, format!("{node} has no run {run} among its last ones"));
        return Err(Refusal(problem.hint("`muster node show` lists the runs that are kept")));
    };
    let kept = past.logs.len();
    let reports = app.blobs.reports(past.logs).await;
    let missing = kept - reports.len();
    Ok(Json(RunDetail { node, run: past.run, reports, missing }))
}
