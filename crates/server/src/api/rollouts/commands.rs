//! Operator commands to a rollout: pause, resume, abort, promote, skip, retry and release of a slot.

use axum::Json;
use axum::extract::{Path, State};
use muster_core::names::NodeName;
use muster_core::report::summary::clip;
use muster_core::rollout::RolloutId;
use muster_rollout::command::{RetryTarget, RolloutCommand};
use muster_rollout::executor::CommandOutcome;
use muster_wire::operator::Page;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::request::new_request_id;
use muster_wire::rollout::{OperateRequest, OperateResponse, SlotRow};
use serde::Deserialize;

use crate::App;
use crate::api::error::{ApiError, JsonBody, chain};
use crate::api::request::{Author, Scope};
use crate::api::rollouts::{RolloutPath, active_rollout, by_whom, request_id};
use crate::rollouts::operator_requests::send_command;
use crate::rollouts::status_response;

/// A reason is a line, not a story.
const LONGEST_REASON: usize = 300;

/// Stops a rollout: nothing is granted from the moment at which this is answered. What was granted goes on.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/pause",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn pause(
    State(app): State<App>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let command = RolloutCommand::Pause { reason: one_line(&operate.reason) };
    Words::of(app, scope, path, author, operate)?.say(command).await
}

/// Lets a rollout go on that was stopped, by whomever. Failures that led to it are known, and stop it no more.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/resume",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn resume(
    State(app): State<App>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    Words::of(app, scope, path, author, operate)?.say(RolloutCommand::Resume).await
}

/// Ends a rollout. Nodes stay where they are.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/abort",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn abort(
    State(app): State<App>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let command = RolloutCommand::Abort { reason: one_line(&operate.reason) };
    Words::of(app, scope, path, author, operate)?.say(command).await
}

/// Lets the next wave begin, where that is a person's to say; with `full`, all that are to come.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/promote",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn promote(
    State(app): State<App>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let command = RolloutCommand::Promote { full: operate.full };
    Words::of(app, scope, path, author, operate)?.say(command).await
}

/// Sets nodes aside: they stay where they are, and nobody waits for them.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/skip",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn skip(
    State(app): State<App>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let words = Words::of(app, scope, path, author, operate)?;
    if words.nodes.is_empty() {
        return Err(ApiError::invalid("no node was named, so there is nobody to set aside"));
    }
    words.say_of_each(|node| RolloutCommand::Skip { node }).await
}

/// Grants failed nodes once more: those that are named, or all.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/retry",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn retry(
    State(app): State<App>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let words = Words::of(app, scope, path, author, operate)?;
    let which = if words.nodes.is_empty() { RetryTarget::AllFailed } else { RetryTarget::Nodes(words.nodes.clone()) };
    words.say(RolloutCommand::Retry(which)).await
}

/// Something that is said to a rollout.
pub(super) struct Words {
    pub(super) app: App,
    pub(super) scope: Scope,
    pub(super) id: RolloutId,
    pub(super) by: String,
    pub(super) nodes: Vec<NodeName>,
    pub(super) request: String,
}

impl Words {
    fn of(
        app: App,
        scope: Scope,
        path: RolloutPath,
        author: Author,
        operate: OperateRequest,
    ) -> Result<Self, ApiError> {
        let id = path.id(&app, &scope)?;
        let nodes = operate.nodes.iter().map(|name| named(&app, &scope, name)).collect::<Result<_, _>>()?;
        let request = word_id(&operate.request)?;
        Ok(Self { by: by_whom(author, operate.by), app, scope, id, nodes, request })
    }

    async fn say(self, command: RolloutCommand) -> Result<Json<OperateResponse>, ApiError> {
        let (by, request) = (self.by.clone(), self.request.clone());
        let said = send_command(&self.app, &self.scope.env, self.id, command.clone(), by, request).await?;
        Ok(self.operated(said, &command))
    }

    /// Says the same of each node, one after the other.
    pub(super) async fn say_of_each(
        self,
        of: impl Fn(NodeName) -> RolloutCommand,
    ) -> Result<Json<OperateResponse>, ApiError> {
        let mut last: Option<(CommandOutcome, RolloutCommand)> = None;
        for node in &self.nodes {
            let command = of(node.clone());
            // Each is a word of its own.
            let (by, request) = (self.by.clone(), format!("{} {node}", self.request));
            let said = send_command(&self.app, &self.scope.env, self.id, command.clone(), by, request).await?;
            let changed = said.changed || last.is_some_and(|(before, _)| before.changed);
            last = Some((CommandOutcome { changed, ..said }, command));
        }
        match last {
            Some((said, command)) => Ok(self.operated(said, &command)),
            None => Err(ApiError::invalid("no node was named")),
        }
    }

    fn operated(self, said: CommandOutcome, command: &RolloutCommand) -> Json<OperateResponse> {
        let CommandOutcome { phase, changed, revision } = said;
        if changed {
            tracing::info!(env = %self.scope.env, rollout = %self.id, by = self.by, ?command, "an operator's word");
        }
        Json(OperateResponse { id: self.id, phase, changed, nodes: self.nodes, revision })
    }
}

/// What a word is known by. Whoever says it without a name cannot say it again; but this server may have to.
pub(super) fn word_id(request: &str) -> Result<String, ApiError> {
    if request.is_empty() { Ok(new_request_id()) } else { request_id(request) }
}

/// A node by its name or its host name.
pub(super) fn named(app: &App, scope: &Scope, text: &str) -> Result<NodeName, ApiError> {
    let found = scope.ask(app, |fleet| fleet.find(text).map(|(name, _)| name.clone()))?;
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

/// Lists the nodes that were granted something and are not healthy yet: who holds a slot, since when, until when.
#[utoipa::path(get, path = "/v1/envs/{env}/rollouts/slots", params(("env" = String, Path)),
    responses((status = 200, body = Page<SlotRow>)))]
pub(crate) async fn list_slots(State(app): State<App>, scope: Scope) -> Result<Json<Page<SlotRow>>, ApiError> {
    let digest = scope.ask(&app, |fleet| fleet.deciding_rollout().map(|(record, _)| record.plan.clone()))?;
    let plan = match digest {
        None => None,
        Some(digest) => {
            let unreadable = |error| ApiError(Problem::new(ProblemCode::DesignUnreadable, chain(&error)));
            Some(app.plans.get(&digest).await.map_err(unreadable)?)
        }
    };
    let page = scope.ask(&app, |fleet| {
        let deciding = fleet.deciding_rollout().zip(plan.as_ref());
        let items =
            deciding.map(|((record, _), plan)| status_response::slots(&app, fleet, record, plan)).unwrap_or_default();
        Page { items, next: None, revision: fleet.revision }
    })?;
    Ok(Json(page))
}

#[derive(Debug, Deserialize)]
pub(crate) struct SlotPath {
    node: String,
}

/// Lets a node no longer count for the budget, though it is not well: somebody knows better.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/slots/{node}/release",
    params(("env" = String, Path), ("node" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = OperateResponse)))]
pub(crate) async fn release_slot(
    State(app): State<App>,
    scope: Scope,
    Path(SlotPath { node }): Path<SlotPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<OperateResponse>, ApiError> {
    let id = active_rollout(&app, &scope)?;
    let nodes = vec![named(&app, &scope, &node)?];
    let request = word_id(&operate.request)?;
    let words = Words { by: by_whom(author, operate.by), app, scope, id, nodes, request };
    words.say_of_each(|node| RolloutCommand::Release { node }).await
}
