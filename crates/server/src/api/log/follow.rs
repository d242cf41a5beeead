//! Logs as streams of events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use muster_wire::client::Download;
use muster_wire::problem::{Code, Problem};
use muster_wire::run_log::{LogEnd, LogEvent, RunLog};
use muster_wire::sse;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;

use crate::App;
use crate::agents::Hub;
use crate::agents::live_logs::LiveRun;
use crate::agents::stream::PING;

use super::super::answer::Refusal;

/// So many events wait for a reader; each has at most 64 KiB.
const EVENTS: usize = 4;
/// A reader who takes nothing for this long is cut off. It may come back and go on where it was.
const PATIENCE: Duration = Duration::from_secs(30);
/// How soon somebody should try again who found too many readers here.
const COME_BACK: u16 = 5;

/// Follows a run that goes on.
pub(super) fn follow(app: &App, live: Arc<LiveRun>, from: u64) -> Result<Response, Refusal> {
    let Ok(permit) = app.log_readers.clone().try_acquire_owned() else {
        let problem = Problem::new(Code::Busy, "too many follow logs at this server");
        return Err(Refusal(problem.retry_after(COME_BACK).hint("end some of them, or read without following")));
    };
    let (events, reader) = mpsc::channel(EVENTS);
    // Ends with the body: nobody writes for a reader who has gone.
    let mut writer = JoinSet::new();
    writer.spawn(write(app.hub.clone(), live, from, events, permit));
    let body = stream::unfold((reader, writer), |(mut reader, writer)| async {
        reader.recv().await.map(|event| (event, (reader, writer)))
    });
    Ok(as_events(Body::from_stream(body)))
}

/// Writes what comes until the log or its reader ends.
async fn write(
    hub: Arc<Hub>,
    live: Arc<LiveRun>,
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
            if !say(&events, event).await {
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
                    say(&events, LogEvent::End { end: LogEnd::ServerStops }).await;
                    return;
                }
                () = tokio::time::sleep(PING) => {
                    if !say(&events, LogEvent::Alive).await {
                        return;
                    }
                }
            }
        }
    }
}

/// False if the reader is gone, or too slow.
async fn say(events: &mpsc::Sender<Result<Bytes, Infallible>>, event: LogEvent) -> bool {
    match sse::encode(&event) {
        Ok(text) => events.send_timeout(Ok(text.into()), PATIENCE).await.is_ok(),
        Err(error) => {
            tracing::error!(%error, "an event of a log cannot be written");
            false
        }
    }
}

/// A log that is whole, for somebody who came to follow it.
pub(super) fn whole(log: RunLog, from: u64) -> Response {
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

/// What another replica says, as it says it.
pub(super) fn pass_on(answer: Download, follow: bool) -> Response {
    let body = stream::unfold(Some(answer), |answer| async {
        let mut answer = answer?;
        match answer.next().await {
            Ok(Some(piece)) => Some((Ok(Bytes::copy_from_slice(piece.as_ref())), Some(answer))),
            Ok(None) => None,
            // The reader sees a connection that was cut, which is what happened.
            Err(error) => Some((Err(error), None)),
        }
    });
    let body = Body::from_stream(body);
    if follow { as_events(body) } else { ([(header::CONTENT_TYPE, "application/json")], body).into_response() }
}

fn as_events(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")], body).into_response()
}
