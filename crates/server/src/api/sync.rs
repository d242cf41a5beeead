//! The stream that an agent keeps open.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use muster_wire::problem::{Code, Problem};
use muster_wire::sync::{SyncEvent, SyncOpen};

use crate::App;
use crate::agents::JoinRequest;
use crate::agents::epoch;
use crate::agents::incarnation;
use crate::agents::stream::{StreamInit, events};

use super::answer::{JsonBody, Refusal};
use super::nodes::NodePath;
use super::scope::Scope;

/// Epochs are seconds since 1970. This is the year 4147: a later one comes from no store.
const LAST_EPOCH: u64 = 1 << 36;

/// Opens a node's stream of server-sent events; the schema is that of each event's `data`, named by its `event`.
#[utoipa::path(post, path = "/v1/envs/{env}/nodes/{node}/sync", params(("env" = String, Path), ("node" = String, Path)),
    request_body = SyncOpen, responses((status = 200, body = SyncEvent, content_type = "text/event-stream")))]
pub(crate) async fn open(
    State(app): State<App>,
    scope: Scope,
    Path(path): Path<NodePath>,
    JsonBody(open): JsonBody<SyncOpen>,
) -> Result<Response, Refusal> {
    let node = path.designed(&app, &scope)?;
    let permit = app.admission.enter().await.map_err(|retry| {
        let problem = Problem::new(Code::Busy, "more agents come at once than this server lets in");
        Refusal(problem.retry_after(retry.seconds))
    })?;
    if open.generation.is_some_and(|known| known.epoch > LAST_EPOCH) {
        // It would become the environment's own, and there would be none after it.
        return Err(Refusal::invalid("no store has ever given out this generation: its epoch is no time"));
    }
    let role = scope.ask(&app, |fleet| fleet.get(&node).and_then(|node| Some(node.record.as_ref()?.role.clone())))?;
    let role = role.ok_or_else(|| Refusal::unknown_node(&scope.env, &node))?;
    let incarnation = incarnation::assign(&app, &scope.env, &node, open.incarnation, open.boot.as_deref()).await?;
    if let Some(known) = open.generation {
        epoch::keep_up(&app, &scope.env, known).await?;
    }
    let arrival = JoinRequest { lookups: open.lookups, activity: open.activity, away: open.away };
    let connected = app.hub.join(&scope.env, &node, arrival);
    let greeting = StreamInit {
        incarnation,
        role,
        generation: open.generation,
        has_snapshot: open.has_snapshot,
        snapshot: open.snapshot,
        pause: open.pause,
        asked: open.asked,
        trust: open.trust,
        permit,
    };
    let body = Body::from_stream(events(app.view.clone(), connected, greeting, app.clock.clone()));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, body).into_response())
}
