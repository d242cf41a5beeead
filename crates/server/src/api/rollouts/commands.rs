//! HTTP handlers for operator commands to a rollout: pause, resume, abort, promote, skip, retry and release of a slot.

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use muster_core::names::NodeName;
use muster_core::report::summary::clip;
use muster_core::rollout::RolloutId;
use muster_rollout::command::{RetryTarget, RolloutCommand};
use muster_rollout::executor::CommandOutcome;
use muster_wire::client::new_request_id;
use muster_wire::operator::Page;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::rollout::{OperateRequest, OperateResponse, SlotRow};
use serde::Deserialize;

use crate::api::error::{ApiError, JsonBody, Path, Query, chain};
use crate::api::request::{Author, PageQuery, Scope};
use crate::api::rollouts::{RolloutPath, active_rollout, operator_name, request_id};
use crate::app::{Agents, App, AppState, Reader, Writer};
use crate::rollouts::host::send_command;
use crate::rollouts::status_response;

/// Longest reason, in characters.
const LONGEST_REASON: usize = 300;

/// Pauses a rollout: nothing is granted after the response. Granted nodes continue.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/pause",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn pause(request: CommandRequest) -> Result<Json<OperateResponse>, ApiError> {
    let reason = request.reason.clone();
    request.send(RolloutCommand::Pause { reason }).await
}

/// Resumes a paused rollout. Failures that are known do not pause it again.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/resume",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn resume(request: CommandRequest) -> Result<Json<OperateResponse>, ApiError> {
    request.send(RolloutCommand::Resume).await
}

/// Aborts a rollout. Nodes keep their version.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/abort",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn abort(request: CommandRequest) -> Result<Json<OperateResponse>, ApiError> {
    let reason = request.reason.clone();
    request.send(RolloutCommand::Abort { reason }).await
}

/// Promotes a rollout to the next wave where that needs an operator; with `full`, to all further waves.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/promote",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn promote(request: CommandRequest) -> Result<Json<OperateResponse>, ApiError> {
    let full = request.full;
    request.send(RolloutCommand::Promote { full }).await
}

/// Skips nodes: they keep their version, and waves do not wait for them.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/skip",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn skip(request: CommandRequest) -> Result<Json<OperateResponse>, ApiError> {
    if request.nodes.is_empty() {
        return Err(ApiError::invalid("no node was given: there is nothing to skip"));
    }
    request.send_for_each(|node| RolloutCommand::Skip { node }).await
}

/// Grants failed nodes once more: the given ones, or all.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/retry",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn retry(request: CommandRequest) -> Result<Json<OperateResponse>, ApiError> {
    let target =
        if request.nodes.is_empty() { RetryTarget::AllFailed } else { RetryTarget::Nodes(request.nodes.clone()) };
    request.send(RolloutCommand::Retry(target)).await
}

/// A command to a rollout: the parts of the request that all commands share.
pub(crate) struct CommandRequest {
    writer: Writer,
    agents: Agents,
    scope: Scope,
    id: RolloutId,
    by: String,
    nodes: Vec<NodeName>,
    request: String,
    /// In one line.
    reason: String,
    full: bool,
}

impl FromRequest<AppState> for CommandRequest {
    type Rejection = Response;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let scope = Scope::from_request_parts(&mut parts, app).await.map_err(IntoResponse::into_response)?;
        let Path(path) = Path::from_request_parts(&mut parts, app).await.map_err(IntoResponse::into_response)?;
        let writer = Writer::from_request_parts(&mut parts, app).await?;
        let author = Author::from_request_parts(&mut parts, app).await.map_err(IntoResponse::into_response)?;
        let body =
            JsonBody::from_request(Request::from_parts(parts, body), app).await.map_err(IntoResponse::into_response)?;
        Self::read(app, writer, scope, &path, author, body.0).map_err(IntoResponse::into_response)
    }
}

impl CommandRequest {
    fn read(
        app: &App,
        writer: Writer,
        scope: Scope,
        path: &RolloutPath,
        author: Author,
        operate: OperateRequest,
    ) -> Result<Self, ApiError> {
        let id = path.id(app, &scope)?;
        let nodes = operate.nodes.iter().map(|name| find_node(app, &scope, name)).collect::<Result<_, _>>()?;
        Self::new(writer, app.agents.clone(), scope, id, nodes, author, operate)
    }

    fn new(
        writer: Writer,
        agents: Agents,
        scope: Scope,
        id: RolloutId,
        nodes: Vec<NodeName>,
        author: Author,
        operate: OperateRequest,
    ) -> Result<Self, ApiError> {
        let OperateRequest { request, by, reason, full, .. } = operate;
        let request = if request.is_empty() { new_request_id() } else { request_id(&request)? };
        let (by, reason) = (operator_name(author, by), one_line(&reason));
        Ok(Self { writer, agents, scope, id, by, nodes, request, reason, full })
    }

    async fn send(self, command: RolloutCommand) -> Result<Json<OperateResponse>, ApiError> {
        let outcome = self.commit(command.clone(), self.request.clone()).await?;
        Ok(self.respond(outcome, &command))
    }

    /// Sends one command for each node, in order.
    async fn send_for_each(
        self,
        command_for: impl Fn(NodeName) -> RolloutCommand,
    ) -> Result<Json<OperateResponse>, ApiError> {
        let mut last: Option<(CommandOutcome, RolloutCommand)> = None;
        for node in &self.nodes {
            let command = command_for(node.clone());
            // Each command has its own request id.
            let outcome = self.commit(command.clone(), format!("{} {node}", self.request)).await?;
            let changed = outcome.changed || last.is_some_and(|(before, _)| before.changed);
            last = Some((CommandOutcome { changed, ..outcome }, command));
        }
        match last {
            Some((outcome, command)) => Ok(self.respond(outcome, &command)),
            None => Err(ApiError::invalid("no node was given")),
        }
    }

    async fn commit(&self, command: RolloutCommand, request: String) -> Result<CommandOutcome, ApiError> {
        let Self { writer, agents, scope, id, by, .. } = self;
        Ok(send_command(writer, agents, &scope.env, *id, command, by.clone(), request).await?)
    }

    fn respond(self, outcome: CommandOutcome, command: &RolloutCommand) -> Json<OperateResponse> {
        let CommandOutcome { phase, changed, revision } = outcome;
        if changed {
            tracing::info!(env = %self.scope.env, rollout = %self.id, by = self.by, ?command, "operator command");
        }
        Json(OperateResponse { id: self.id, phase, changed, nodes: self.nodes, revision })
    }
}

/// Node by its name or host name.
pub(super) fn find_node(reader: &Reader, scope: &Scope, text: &str) -> Result<NodeName, ApiError> {
    scope.read(reader, |fleet| {
        fleet.find(text).map(|(name, _)| name.clone()).ok_or_else(|| ApiError::no_such_node(fleet, text))
    })?
}

pub(super) fn one_line(reason: &str) -> String {
    let reason: String = reason.chars().filter(|c| !c.is_control()).collect();
    clip(reason.trim(), LONGEST_REASON)
}

/// Lists the slots of the budget in use: nodes with a grant that are not healthy yet.
#[utoipa::path(get, path = "/v1/envs/{env}/rollouts/slots", params(("env" = String, Path), PageQuery),
    responses((status = 200, body = Page<SlotRow>)))]
pub(crate) async fn list_slots(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<SlotRow>>, ApiError> {
    let digest = scope.read(&reader, |fleet| fleet.active_rollout_record().map(|(record, _)| record.plan.clone()))?;
    let plan = match digest {
        None => None,
        Some(digest) => {
            let unreadable = |error| ApiError(Problem::new(ProblemCode::DesignUnreadable, chain(&error)));
            Some(reader.plans.get(&digest).await.map_err(unreadable)?)
        }
    };
    let (rows, revision) = scope.read(&reader, |fleet| {
        let deciding = fleet.active_rollout_record().zip(plan.as_ref());
        let rows = deciding
            .map(|((record, _), plan)| status_response::slots(&reader, &agents, fleet, record, plan))
            .unwrap_or_default();
        (rows, fleet.revision)
    })?;
    Ok(Json(page.cut(rows, revision, |row: &SlotRow| row.node.to_string())?))
}

#[derive(Debug, Deserialize)]
pub(crate) struct SlotPath {
    node: String,
}

/// Releases the slot of an unhealthy node, so that the budget no longer counts it.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/slots/{node}/release",
    params(("env" = String, Path), ("node" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn release_slot(
    writer: Writer,
    State(agents): State<Agents>,
    scope: Scope,
    Path(SlotPath { node }): Path<SlotPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let id = active_rollout(&writer, &scope)?;
    let nodes = vec![find_node(&writer, &scope, &node)?];
    let request = CommandRequest::new(writer, agents, scope, id, nodes, author, operate)?;
    request.send_for_each(|node| RolloutCommand::Release { node }).await
}
