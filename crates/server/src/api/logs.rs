//! HTTP handlers for the log of a run: received from its agent while the run is in progress, read by operators
//! then and later.
//!
//! The log of a run in progress is in the memory of the replica that its agent is connected to. Other replicas forward a
//! request to that one.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use muster_core::names::{NodeName, RunId};
use muster_core::node::status::Activity;
use muster_core::report::record::PastRun;
use muster_wire::client::Download;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::runs::{LogEnd, LogEvent, LogPiece, LogQuery, PIECE, RunLog};
use muster_wire::sse;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;

use crate::agents::Hub;
use crate::agents::live_logs::LiveRunLog;
use crate::agents::stream::PING;
use crate::api::agents::ends_run;
use crate::api::error::{ApiError, JsonBody, Path, Query};
use crate::api::nodes::NodePath;
use crate::api::request::Scope;
use crate::api::runs::{RunPath, find_run};
use crate::app::{Agents, Reader};

/// A character takes up to six bytes in JSON.
pub(crate) const BODY_LIMIT: usize = 6 * PIECE + 4096;

/// Receives a piece of the log of a run in progress. It is kept in memory for a short time; duplicates are ignored.
#[utoipa::path(post, path = "/v1/envs/{env}/nodes/{node}/runs/{run}/log",
    params(("env" = String, Path), ("node" = String, Path), ("run" = String, Path)),
    request_body = LogPiece, responses((status = 204)))]
pub(crate) async fn receive_log_piece(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(node): Path<NodePath>,
    Path(path): Path<RunPath>,
    JsonBody(piece): JsonBody<LogPiece>,
) -> Result<StatusCode, ApiError> {
    let node = node.designed(&reader, &scope)?;
    let run = RunId::new(path.run).map_err(|error| ApiError::invalid(error.to_string()))?;
    if piece.text.len() > PIECE {
        let detail = format!("a piece of a log has at most {} KiB", PIECE / 1024);
        return Err(ApiError(Problem::new(ProblemCode::TooLarge, detail)));
    }
    if agents.hub.session(&scope.env, &node).is_none() {
        // Readers would not look for it here, and its end would not be noticed.
        let problem = Problem::new(ProblemCode::Conflict, format!("{node} has no stream here"));
        return Err(ApiError(problem.hint("open the stream of the node first")));
    }
    let appended = agents.hub.live_logs.append(&scope.env, &node, &run, piece);
    appended.map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows the log of a run: all of a finished run, the part so far of a run in progress.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes/{node}/runs/{run}/log",
    params(("env" = String, Path), ("node" = String, Path), ("run" = String, Path), LogQuery),
    responses((status = 200, content((RunLog = "application/json"), (LogEvent = "text/event-stream")))))]
pub(crate) async fn show_log(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(node): Path<NodePath>,
    Path(path): Path<RunPath>,
    Query(query): Query<LogQuery>,
) -> Result<Response, ApiError> {
    let node = node.designed(&reader, &scope)?;
    let run = RunId::new(path.run).map_err(|error| ApiError::invalid(error.to_string()))?;
    let past = find_run(&reader, &scope, &node, &run).await?;
    let is_over = past.as_ref().is_some_and(|past| ends_run(past.outcome));
    if !is_over && let Some(live) = live_run(&agents, &scope, &node, &run) {
        return answer_live(&agents, live, query);
    }
    if !is_over && !query.here {
        match agents.remote_log(&reader.view, &scope.env, &node, &run, query).await {
            Some(Ok(download)) => return Ok(forward(download, query.follow)),
            // It may not have the log either.
            Some(Err(error)) => tracing::debug!(%node, %run, %error, "another replica did not return the log"),
            None => {}
        }
    }
    match past {
        Some(past) => {
            let log = read_stored_log(&reader, past).await;
            Ok(if query.follow { stored_as_events(log, query.from) } else { Json(log).into_response() })
        }
        None => Err(unknown_run(&node, &run)),
    }
}

/// The run in progress at this replica. A run without output counts if the agent reports it as its activity.
fn live_run(agents: &Agents, scope: &Scope, node: &NodeName, run: &RunId) -> Option<Arc<LiveRunLog>> {
    let logs = &agents.hub.live_logs;
    if let Some(live) = logs.get(&scope.env, node, run) {
        return Some(live);
    }
    let makes_it = match agents.hub.session(&scope.env, node)?.activity() {
        Activity::Applying { run: now, .. } | Activity::Validating { run: now, .. } => now == *run,
        Activity::Idle | Activity::Retrying { .. } | Activity::Blocked { .. } => false,
    };
    makes_it.then(|| logs.get_or_create(&scope.env, node, run))
}

fn answer_live(agents: &Agents, live: Arc<LiveRunLog>, query: LogQuery) -> Result<Response, ApiError> {
    if query.follow {
        return follow_log(agents, live, query.from);
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

fn unknown_run(node: &NodeName, run: &RunId) -> ApiError {
    let problem = Problem::new(
        ProblemCode::UnknownRun,
        format!("{node} has no run {run}, neither in progress nor in its history"),
    );
    ApiError(problem.hint(format!("`muster node show {node}` lists the runs that are kept")))
}

/// Log of a finished run. Says how many reports are missing, since the rest would look complete.
pub(super) async fn read_stored_log(reader: &Reader, past: PastRun) -> RunLog {
    let kept = past.logs.len();
    let mut reports = reader.blobs.reports(past.logs).await;
    reports.sort_by_key(|report| (report.incarnation, report.seq));
    let mut text: String = reports.iter().map(|report| report.log.as_str()).collect();
    match kept - reports.len() {
        0 => {}
        1 => text.push_str("… the log of one report of this run is missing …\n"),
        missing => text.push_str(&format!("… the logs of {missing} reports of this run are missing …\n")),
    }
    RunLog { offset: 0, text, end: LogEnd::Finished }
}

/// Events that wait for a client; each has at most 64 KiB.
const EVENTS: usize = 4;
/// A client that reads nothing for this long is disconnected. It can continue at its last offset.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// `Retry-After` of clients that exceed the limit of readers, in seconds.
const COME_BACK: u16 = 5;

/// Follows a run in progress.
pub(super) fn follow_log(agents: &Agents, live: Arc<LiveRunLog>, from: u64) -> Result<Response, ApiError> {
    let Ok(permit) = agents.log_readers.clone().try_acquire_owned() else {
        let problem = Problem::new(ProblemCode::Busy, "too many clients follow logs at this server");
        return Err(ApiError(problem.retry_after(COME_BACK).hint("close some of them, or read without following")));
    };
    let (events, reader) = mpsc::channel(EVENTS);
    // Ends with the body, also if the client disconnects.
    let mut writer = JoinSet::new();
    writer.spawn(write_events(agents.hub.clone(), live, from, events, permit));
    let body = stream::unfold((reader, writer), |(mut reader, writer)| async {
        reader.recv().await.map(|event| (event, (reader, writer)))
    });
    Ok(as_events(Body::from_stream(body)))
}

/// Writes events until the log or its reader ends.
async fn write_events(
    hub: Arc<Hub>,
    live: Arc<LiveRunLog>,
    mut at: u64,
    events: mpsc::Sender<Result<Bytes, Infallible>>,
    _permit: OwnedSemaphorePermit,
) {
    loop {
        let read = live.read(at);
        at = read.offset + read.text.len() as u64;
        let mut news = Vec::new();
        if read.cut > 0 {
            news.push(LogEvent::Cut { bytes: read.cut });
        }
        if !read.text.is_empty() {
            news.push(LogEvent::Text { offset: read.offset, text: read.text });
        }
        if let Some(end) = read.end {
            news.push(LogEvent::End { end });
        }
        let waits = news.is_empty();
        for event in news {
            if !send_event(&events, event).await {
                return;
            }
        }
        if read.end.is_some() {
            return;
        }
        if waits {
            tokio::select! {
                () = live.more(at) => {}
                () = hub.stopping() => {
                    send_event(&events, LogEvent::End { end: LogEnd::ServerStops }).await;
                    return;
                }
                () = tokio::time::sleep(PING) => {
                    if !send_event(&events, LogEvent::Alive).await {
                        return;
                    }
                }
            }
        }
    }
}

/// False if the reader is gone or too slow.
async fn send_event(events: &mpsc::Sender<Result<Bytes, Infallible>>, event: LogEvent) -> bool {
    match sse::encode(&event) {
        Ok(text) => events.send_timeout(Ok(text.into()), SEND_TIMEOUT).await.is_ok(),
        Err(error) => {
            tracing::error!(%error, "a log event cannot be encoded");
            false
        }
    }
}

/// A finished log as events, for a client that follows it.
pub(super) fn stored_as_events(log: RunLog, from: u64) -> Response {
    let skip = usize::try_from(from.saturating_sub(log.offset)).unwrap_or(usize::MAX);
    let rest = log.text.get(skip..).unwrap_or_default().to_owned();
    let mut events = Vec::new();
    if !rest.is_empty() {
        events.push(LogEvent::Text { offset: log.offset + skip as u64, text: rest });
    }
    events.push(LogEvent::End { end: log.end });
    let text: Result<String, _> = events.iter().map(sse::encode).collect();
    as_events(Body::from(text.unwrap_or_default()))
}

/// Forwards the response of another replica.
pub(super) fn forward(answer: Download, follow: bool) -> Response {
    let body = stream::unfold(Some(answer), |answer| async {
        let mut answer = answer?;
        match answer.next().await {
            Ok(Some(piece)) => Some((Ok(Bytes::copy_from_slice(piece.as_ref())), Some(answer))),
            Ok(None) => None,
            // The client sees a broken connection, as this server did.
            Err(error) => Some((Err(error), None)),
        }
    });
    let body = Body::from_stream(body);
    if follow { as_events(body) } else { ([(header::CONTENT_TYPE, "application/json")], body).into_response() }
}

fn as_events(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")], body).into_response()
}
