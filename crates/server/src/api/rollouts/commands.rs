//! Operator commands to a rollout: pause, resume, abort, promote, skip, retry and release of a slot.

use axum::Json;
use axum::extract::{Path, State};
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

use crate::api::error::{ApiError, JsonBody, chain};
use crate::api::request::{Author, Scope};
use crate::api::rollouts::{RolloutPath, active_rollout, by_whom, request_id};
use crate::app::{Agents, Reader, Writer};
use crate::rollouts::host::send_command;
use crate::rollouts::status_response;

/// Longest reason, in characters.
const LONGEST_REASON: usize = 300;

/// Pauses a rollout: nothing is granted after the response. Granted nodes continue.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/pause",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn pause(
    State(writer): State<Writer>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let command = RolloutCommand::Pause { reason: one_line(&operate.reason) };
    CommandRequest::read(writer, agents, scope, path, author, operate)?.send(command).await
}

/// Resumes a paused rollout. Failures that are known do not pause it again.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/resume",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn resume(
    State(writer): State<Writer>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    CommandRequest::read(writer, agents, scope, path, author, operate)?.send(RolloutCommand::Resume).await
}

/// Aborts a rollout. Nodes keep their version.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/abort",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn abort(
    State(writer): State<Writer>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let command = RolloutCommand::Abort { reason: one_line(&operate.reason) };
    CommandRequest::read(writer, agents, scope, path, author, operate)?.send(command).await
}

/// Promotes a rollout to the next wave where that needs an operator; with `full`, to all further waves.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/promote",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn promote(
    State(writer): State<Writer>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let command = RolloutCommand::Promote { full: operate.full };
    CommandRequest::read(writer, agents, scope, path, author, operate)?.send(command).await
}

/// Skips nodes: they keep their version, and waves do not wait for them.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/skip",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn skip(
    State(writer): State<Writer>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let request = CommandRequest::read(writer, agents, scope, path, author, operate)?;
    if request.nodes.is_empty() {
        return Err(ApiError::invalid("no node was given: there is nothing to skip"));
    }
    request.send_for_each(|node| RolloutCommand::Skip { node }).await
}

/// Grants failed nodes once more: the given ones, or all.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/retry",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn retry(
    State(writer): State<Writer>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let request = CommandRequest::read(writer, agents, scope, path, author, operate)?;
    let which =
        if request.nodes.is_empty() { RetryTarget::AllFailed } else { RetryTarget::Nodes(request.nodes.clone()) };
    request.send(RolloutCommand::Retry(which)).await
}

/// A command to a rollout.
pub(super) struct CommandRequest {
    pub(super) writer: Writer,
    pub(super) agents: Agents,
    pub(super) scope: Scope,
    pub(super) id: RolloutId,
    pub(super) by: String,
    pub(super) nodes: Vec<NodeName>,
    pub(super) request: String,
}

impl CommandRequest {
    fn read(
        writer: Writer,
        agents: Agents,
        scope: Scope,
        path: RolloutPath,
        author: Author,
        operate: OperateRequest,
    ) -> Result<Self, ApiError> {
        let id = path.id(&writer, &scope)?;
        let nodes = operate.nodes.iter().map(|name| find_node(&writer, &scope, name)).collect::<Result<_, _>>()?;
        let request = request_id_or_random(&operate.request)?;
        Ok(Self { by: by_whom(author, operate.by), writer, agents, scope, id, nodes, request })
    }

    async fn send(self, command: RolloutCommand) -> Result<Json<OperateResponse>, ApiError> {
        let (by, request) = (self.by.clone(), self.request.clone());
        let said =
            send_command(&self.writer, &self.agents, &self.scope.env, self.id, command.clone(), by, request).await?;
        Ok(self.operated(said, &command))
    }

    /// Sends one command for each node, in order.
    pub(super) async fn send_for_each(
        self,
        of: impl Fn(NodeName) -> RolloutCommand,
    ) -> Result<Json<OperateResponse>, ApiError> {
        let mut last: Option<(CommandOutcome, RolloutCommand)> = None;
        for node in &self.nodes {
            let command = of(node.clone());
            // Each command has its own request id.
            let (by, request) = (self.by.clone(), format!("{} {node}", self.request));
            let said = send_command(&self.writer, &self.agents, &self.scope.env, self.id, command.clone(), by, request)
                .await?;
            let changed = said.changed || last.is_some_and(|(before, _)| before.changed);
            last = Some((CommandOutcome { changed, ..said }, command));
        }
        match last {
            Some((said, command)) => Ok(self.operated(said, &command)),
            None => Err(ApiError::invalid("no node was given")),
        }
    }

    fn operated(self, said: CommandOutcome, command: &RolloutCommand) -> Json<OperateResponse> {
        let CommandOutcome { phase, changed, revision } = said;
        if changed {
            tracing::info!(env = %self.scope.env, rollout = %self.id, by = self.by, ?command, "operator command");
        }
        Json(OperateResponse { id: self.id, phase, changed, nodes: self.nodes, revision })
    }
}

/// Request id of a command. Without one from the client, this server makes one for its own retries.
pub(super) fn request_id_or_random(request: &str) -> Result<String, ApiError> {
    if request.is_empty() { Ok(new_request_id()) } else { request_id(request) }
}

/// Node by its name or host name.
pub(super) fn find_node(reader: &Reader, scope: &Scope, text: &str) -> Result<NodeName, ApiError> {
    let found = scope.ask(reader, |fleet| fleet.find(text).map(|(name, _)| name.clone()))?;
    match found {
        Some(name) => Ok(name),
        None => match NodeName::new(text) {
            Ok(name) => Err(ApiError::unknown_node(&scope.env, &name)),
            Err(error) => Err(ApiError::invalid(error.to_string())),
        },
    }
}

pub(super) fn one_line(reason: &str) -> String {
    let reason: String = reason.chars().filter(|c| !c.is_control()).collect();
    clip(reason.trim(), LONGEST_REASON)
}

/// Lists the slots of the budget in use: nodes with a grant that are not healthy yet.
#[utoipa::path(get, path = "/v1/envs/{env}/rollouts/slots", params(("env" = String, Path)),
    responses((status = 200, body = Page<SlotRow>)))]
pub(crate) async fn list_slots(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
) -> Result<Json<Page<SlotRow>>, ApiError> {
    let digest = scope.ask(&reader, |fleet| fleet.deciding_rollout().map(|(record, _)| record.plan.clone()))?;
    let plan = match digest {
        None => None,
        Some(digest) => {
            let unreadable = |error| ApiError(Problem::new(ProblemCode::DesignUnreadable, chain(&error)));
            Some(reader.plans.get(&digest).await.map_err(unreadable)?)
        }
    };
    let page = scope.ask(&reader, |fleet| {
        let deciding = fleet.deciding_rollout().zip(plan.as_ref());
        let items = deciding
            .map(|((record, _), plan)| status_response::slots(&reader, &agents, fleet, record, plan))
            .unwrap_or_default();
        Page { items, next: None, revision: fleet.revision }
    })?;
    Ok(Json(page))
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
    State(writer): State<Writer>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(SlotPath { node }): Path<SlotPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let id = active_rollout(&writer, &scope)?;
    let nodes = vec![find_node(&writer, &scope, &node)?];
    let id_of_request = request_id_or_random(&operate.request)?;
    let request =
        CommandRequest { by: by_whom(author, operate.by), writer, agents, scope, id, nodes, request: id_of_request };
    request.send_for_each(|node| RolloutCommand::Release { node }).await
}
