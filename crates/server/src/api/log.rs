//! The log of a run: sent by its agent while it goes on, read by people then and later.
//!
//! While a run goes on, its log is in the memory of the replica that its agent is connected to. Any other one passes the
//! question on to that.

mod follow;
mod stored;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use muster_core::names::{NodeName, RunId};
use muster_core::standing::Activity;
use muster_wire::problem::{Code, Problem};
use muster_wire::run_log::{LogEnd, LogEvent, LogPiece, LogQuery, PIECE, RunLog};
use serde::Deserialize;

use crate::App;
use crate::agents::live_logs::LiveRun;

use super::answer::{JsonBody, Refusal};
use super::nodes::NodePath;
use super::scope::Scope;

/// A character can become six in JSON.
pub(crate) const BODY_LIMIT: usize = 6 * PIECE + 4096;

#[derive(Debug, Deserialize)]
pub(crate) struct RunPath {
    run: String,
}

/// Takes a piece of the log of a run that goes on. Kept in memory only, and not for long; what is sent again is taken
/// once.
#[utoipa::path(post, path = "/v1/envs/{env}/nodes/{node}/runs/{run}/log",
    params(("env" = String, Path), ("node" = String, Path), ("run" = String, Path)),
    request_body = LogPiece, responses((status = 204)))]
pub(crate) async fn take(
    State(app): State<App>,
    scope: Scope,
    Path(node): Path<NodePath>,
    Path(path): Path<RunPath>,
    JsonBody(piece): JsonBody<LogPiece>,
) -> Result<StatusCode, Refusal> {
    let node = node.designed(&app, &scope)?;
    let run = RunId::new(path.run).map_err(|error| Refusal::invalid(error.to_string()))?;
    if piece.text.len() > PIECE {
        let detail = format!("a piece of a log has at most {} KiB", PIECE / 1024);
        return Err(Refusal(Problem::new(Code::TooLarge, detail)));
    }
    if app.hub.session(&scope.env, &node).is_none() {
        // Nobody would look for it here, and nobody would know when it ends.
        let problem = Problem::new(Code::Conflict, format!("{node} has no stream here"));
        return Err(Refusal(problem.hint("open the stream of the node first")));
    }
    let taken = app.hub.live_logs.take(&scope.env, &node, &run, piece);
    taken.map_err(|error| Refusal::invalid(error.to_string()))?;
    Ok(StatusCode::NO_CONTENT)
}

/// The log of a run: what there is so far of one that goes on, all of one that is over.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes/{node}/runs/{run}/log",
    params(("env" = String, Path), ("node" = String, Path), ("run" = String, Path), LogQuery),
    responses((status = 200, content((RunLog = "application/json"), (LogEvent = "text/event-stream")))))]
pub(crate) async fn show(
    State(app): State<App>,
    scope: Scope,
    Path(node): Path<NodePath>,
    Path(path): Path<RunPath>,
    query: Result<Query<LogQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(query) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    let node = node.designed(&app, &scope)?;
    let run = RunId::new(path.run).map_err(|error| Refusal::invalid(error.to_string()))?;
    let past = stored::find(&app, &scope, &node, &run)?;
    let is_over = past.as_ref().is_some_and(|past| super::reports::is_last(past.outcome));
    if !is_over && let Some(live) = live(&app, &scope, &node, &run) {
        return answer_live(&app, live, query);
    }
    if !is_over && !query.here {
        match app.log_elsewhere(&scope.env, &node, &run, query).await {
            Some(Ok(passed_on)) => return Ok(follow::pass_on(passed_on, query.follow)),
            // It may know no more of it than this one does.
            Some(Err(error)) => tracing::debug!(%node, %run, %error, "another replica does not say what the run says"),
            None => {}
        }
    }
    match past {
        Some(past) => {
            let log = stored::read(&app, past).await;
            Ok(if query.follow { follow::whole(log, query.from) } else { Json(log).into_response() })
        }
        None => Err(unknown(&node, &run)),
    }
}

/// The log of a run that goes on here. One of which nothing has come yet counts, if the agent says that it makes it.
fn live(app: &App, scope: &Scope, node: &NodeName, run: &RunId) -> Option<Arc<LiveRun>> {
    let logs = &app.hub.live_logs;
    if let Some(live) = logs.get(&scope.env, node, run) {
        return Some(live);
    }
    let makes_it = match app.hub.session(&scope.env, node)?.activity() {
        Activity::Applying { run: now, .. } | Activity::Validating { run: now, .. } => now == *run,
        Activity::Idle | Activity::Retrying { .. } | Activity::Blocked { .. } => false,
    };
    makes_it.then(|| logs.expect(&scope.env, node, run))
}

fn answer_live(app: &App, live: Arc<LiveRun>, query: LogQuery) -> Result<Response, Refusal> {
    if query.follow {
        return follow::follow(app, live, query.from);
    }
    let mut log = RunLog { offset: 0, text: String::new(), end: LogEnd::SoFar };
    let mut at = query.from;
    loop {
        let read = live.read(at);
        if log.text.is_empty() {
            log.offset = read.offset;
        }
        at = read.offset + read.text.len() as u64;
        log.text.push_str(&read.text);
        match read.end {
            Some(end) => log.end = end,
            None if !read.text.is_empty() => continue,
            None => {}
        }
        return Ok(Json(log).into_response());
    }
}

fn unknown(node: &NodeName, run: &RunId) -> Refusal {
    let problem =
        Problem::new(Code::UnknownRun, format!("{node} makes no run {run}, and has none among its last ones"));
    Refusal(problem.hint(format!("`muster node show {node}` lists the runs that are kept")))
}
