//! HTTP handlers for agents: event stream, reports, activity and desired state; and for the activities that replicas
//! exchange.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use hyper::upgrade::OnUpgrade;
use muster_core::fleet::Fleet;
use muster_core::lookup::published::{self, PUBLISHED_LIMIT};
use muster_core::names::NodeName;
use muster_core::node::agent::{FIRST_PROTOCOL, PROTOCOL};
use muster_core::node::status::Activity;
use muster_core::report::{Outcome, Report, RunResult};
use muster_wire::operator::Page;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::sync::{
    AgentActivity, DesiredResponse, DesiredState, ReportAck, ReportResult, SyncEvent, SyncOpen, UPGRADE,
};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::agents::stream::{IdentityNews, StreamInit, SyncEvents};
use crate::agents::{AgentSession, JoinRequest, compatibility, duplicates, incarnation};
use crate::api::authorization::Client;
use crate::api::error::{ApiError, JsonBody, Path, Query, chain};
use crate::api::nodes::NodePath;
use crate::api::request::{PageQuery, Scope};
use crate::app::{Agents, App, AppState, Reader, ReplicaState, Writer};
use crate::epochs;
use crate::server::{Takeover, TakeoverSlot};

/// Opens a node's stream of server-sent events. The schema is that of each event's `data`, named by its `event`.
///
/// With `Upgrade: muster-sync` the server sends the events on the connection itself, after status 101, and reads the agent's activity
/// from it: as events of the name `activity`.
#[utoipa::path(post, path = "/v1/envs/{env}/nodes/{node}/sync", params(("env" = String, Path), ("node" = String, Path)),
    request_body = SyncOpen, responses((status = 200, body = SyncEvent, content_type = "text/event-stream"),
    (status = 101, description = "The connection is the stream from now on")))]
pub(crate) async fn open_stream(
    State(App { writer, agents, replica, identities }): State<App>,
    Extension(client): Extension<Client>,
    scope: Scope,
    Path(path): Path<NodePath>,
    upgrade: SyncUpgrade,
    JsonBody(open): JsonBody<SyncOpen>,
) -> Result<Response, ApiError> {
    let node = path.designed(&writer, &scope)?;
    if let Err(problem) = compatibility::check(open.protocol.unwrap_or(FIRST_PROTOCOL)) {
        compatibility::record(&writer, &scope.env, &node, &open).await;
        return Err(ApiError(problem));
    }
    let permit = agents.admission.enter().await.map_err(|retry| {
        let problem = Problem::new(ProblemCode::Busy, "too many agents connect at the same time");
        ApiError(problem.retry_after(retry.seconds))
    })?;
    let record = scope.read(&writer, |fleet| fleet.get(&node).and_then(|node| node.record.clone()))?;
    let record = record.ok_or_else(|| ApiError::unknown_node(&scope.env, &node))?;
    let (me, holder) = (replica.membership.id(), open.holder.as_deref());
    if let Err(problem) = duplicates::check(&writer, &agents.hub, me, &scope.env, &node, holder) {
        duplicates::record(&writer, &scope.env, &node, &open).await;
        return Err(ApiError(problem));
    }
    if let Some(known) = open.generation {
        epochs::ensure_newer(&writer, &scope.env, known).await?;
    }
    let incarnation = incarnation::assign(&writer, &scope.env, &node, open.incarnation, open.boot.as_deref()).await?;
    let agent = open.agent();
    let request = JoinRequest {
        lookups: open.lookups,
        activity: open.activity,
        prefers_other_server: open.away,
        holder: open.holder,
        trusted: open.trusted,
        agent,
    };
    let joined = agents.hub.join(&scope.env, &node, request);
    let connected = joined.ok_or_else(|| ApiError(duplicates::problem(&node)))?;
    let init = StreamInit {
        incarnation,
        role: record.role,
        host_name: record.host_name,
        generation: open.generation,
        has_snapshot: open.has_snapshot,
        snapshot: open.snapshot,
        pause: open.pause,
        asked: open.asked,
        trust: open.trust,
        identity: match (client, identities.tls) {
            (Client::Node { .. }, Some(tls)) => Some(IdentityNews::new(tls, replica.membership.record().url.clone())),
            (_, _) => None,
        },
        permit,
    };
    let events = SyncEvents::new(writer.view.clone(), connected, init, writer.clock.clone());
    if let SyncUpgrade(Some((slot, connection))) = upgrade {
        slot.set(Takeover { connection, events });
        let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, UPGRADE)];
        return Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response());
    }
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(events.into_body())).into_response())
}

/// The connection of a request that asks for its upgrade to a stream.
pub(crate) struct SyncUpgrade(Option<(TakeoverSlot, OnUpgrade)>);

impl<S: Sync> FromRequestParts<S> for SyncUpgrade {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let requested = parts.headers.get(header::UPGRADE);
        if !requested.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(UPGRADE.as_bytes())) {
            return Ok(Self(None));
        }
        let slot = parts.extensions.get::<TakeoverSlot>().cloned();
        Ok(Self(slot.zip(parts.extensions.remove::<OnUpgrade>())))
    }
}

/// Accepts a report. Its effect is durable when this responds. Duplicates are ignored.
//
// The most frequent request: it takes the shared state, not copies of its parts.
#[utoipa::path(post, path = "/v1/envs/{env}/nodes/{node}/reports",
    params(("env" = String, Path), ("node" = String, Path)),
    request_body = Report, responses((status = 200, body = ReportAck)))]
pub(crate) async fn receive_report(
    State(app): State<AppState>,
    scope: Scope,
    Path(path): Path<NodePath>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<ReportAck>, ApiError> {
    let App { writer: Writer { reader, .. }, agents, replica, .. } = &*app;
    let node = path.designed(reader, &scope)?;
    let (me, holder) = (replica.membership.id(), duplicates::holder(&headers));
    duplicates::check(reader, &agents.hub, me, &scope.env, &node, holder).map_err(ApiError)?;
    compatibility::check_header(&headers).map_err(ApiError)?;
    let report: Report = serde_json::from_slice(&body).map_err(|error| ApiError::invalid(chain(&error)))?;
    if report.node != node {
        return Err(ApiError::invalid(format!("{node} cannot report for {}", report.node)));
    }
    if report.incarnation == 0 || report.seq == 0 {
        return Err(ApiError::invalid("incarnation and seq count from 1"));
    }
    let (epoch, now) = (scope.read(reader, Fleet::epoch)?, reader.clock.now());
    if !epochs::is_plausible(report.generation.epoch, epoch, now) {
        return Err(ApiError::invalid("invalid generation: its epoch is later than the clock of this server"));
    }
    if let Some(size) = report.published.as_ref().map(published::size).filter(|size| *size > PUBLISHED_LIMIT) {
        // Its run should have failed. The report counts, and the values published before stay.
        tracing::warn!(env = %scope.env, %node, size, limit = PUBLISHED_LIMIT, "published values exceed the limit and are ignored");
    }
    let lookups = report.lookups.clone();
    let over = ends_run(report.outcome).then(|| report.run.clone());
    let ack = agents.reports.submit(scope.env.clone(), report, body).await?;
    // Lookups of an outdated report must not wake the node.
    if ack.taken != ReportResult::Outdated {
        agents.hub.set_lookups(&scope.env, &node, lookups);
    }
    if let Some(run) = over {
        agents.hub.live_logs.reported(&scope.env, &node, &run);
    }
    Ok(Json(ack))
}

/// Returns true if this report is the last one of its run.
pub(super) fn ends_run(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => false,
        Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Previewed(_) | Outcome::Validated(_) => {
            true
        }
    }
}

/// Publishes the activity of a node's agent. It is kept in memory while the stream is open.
#[utoipa::path(put, path = "/v1/envs/{env}/nodes/{node}/activity",
    params(("env" = String, Path), ("node" = String, Path)), request_body = Activity, responses((status = 204)))]
pub(crate) async fn publish_activity(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    State(replica): State<ReplicaState>,
    scope: Scope,
    Path(path): Path<NodePath>,
    headers: HeaderMap,
    JsonBody(activity): JsonBody<Activity>,
) -> Result<StatusCode, ApiError> {
    let node = path.designed(&reader, &scope)?;
    let (me, holder) = (replica.membership.id(), duplicates::holder(&headers));
    duplicates::check(&reader, &agents.hub, me, &scope.env, &node, holder).map_err(ApiError)?;
    agents.hub.set_activity(&scope.env, &node, activity);
    Ok(StatusCode::NO_CONTENT)
}

/// Shows the desired state of a node, and whether it is paused.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes/{node}/desired",
    params(("env" = String, Path), ("node" = String, Path)), responses((status = 200, body = DesiredResponse)))]
pub(crate) async fn desired_state(
    State(reader): State<Reader>,
    scope: Scope,
    Path(path): Path<NodePath>,
    headers: HeaderMap,
) -> Result<Json<DesiredResponse>, ApiError> {
    let node = path.designed(&reader, &scope)?;
    compatibility::check_header(&headers).map_err(ApiError)?;
    let now = reader.clock.now();
    let response = scope.read(&reader, |fleet| {
        let desired = DesiredState::for_node(fleet, &node);
        let role = fleet.get(&node).and_then(|node| node.record.as_ref()).map(|record| record.role.clone());
        let pause = role.and_then(|role| fleet.pause_of(&node, &role, now));
        DesiredResponse { desired, pause, now, protocol: Some(PROTOCOL) }
    })?;
    Ok(Json(response))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct NodeQuery {
    /// Only this node, with the lookups of its last run.
    #[param(value_type = Option<String>)]
    node: Option<NodeName>,
}

/// Lists the activities of the agents connected to this replica that are not idle. Agents of other replicas are not included.
#[utoipa::path(get, path = "/v1/envs/{env}/activities", params(("env" = String, Path), PageQuery, NodeQuery),
    responses((status = 200, body = Page<AgentActivity>)))]
pub(crate) async fn list_activities(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Query(page): Query<PageQuery>,
    Query(NodeQuery { node }): Query<NodeQuery>,
) -> Result<Json<Page<AgentActivity>>, ApiError> {
    let mut rows: Vec<AgentActivity> = match node {
        Some(node) => {
            agents.hub.session(&scope.env, &node).iter().map(|session| activity_of(&agents, session, true)).collect()
        }
        None => {
            let all = agents.hub.sessions(&scope.env);
            let activities = all.iter().map(|session| activity_of(&agents, session, false));
            activities.filter(|agent| agent.doing != Activity::Idle).collect()
        }
    };
    rows.sort_by(|a, b| a.node.cmp(&b.node));
    let revision = reader.view.revision().unwrap_or_default();
    Ok(Json(page.cut(rows, revision, |row| row.node.to_string())?))
}

fn activity_of(agents: &Agents, session: &AgentSession, with_lookups: bool) -> AgentActivity {
    let doing = session.activity();
    let (lookups, asked) = if with_lookups {
        let asked = agents.hub.live_logs.requests(&session.env, &session.node);
        (session.looked_up(), asked)
    } else {
        (Vec::new(), Vec::new())
    };
    AgentActivity { node: session.node.clone(), doing, lookups, asked }
}
