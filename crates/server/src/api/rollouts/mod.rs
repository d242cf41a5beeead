//! HTTP handlers for rollouts: list, status, plan, start and rollback.

pub(crate) mod commands;
mod errors;

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use muster_core::fleet::{Fleet, Node};
use muster_core::names::Version;
use muster_core::report::summary::clip;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{PauseReason, RolloutRecord};
use muster_core::txn::Revision;
use muster_rollout::executor::{self, RollBackRollout, StartOutcome, StartedRollout};
use muster_rollout::start::StartOptions;
use muster_wire::operator::{MAX_WAIT_SECONDS, Page};
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::rollout::{
    AlreadyAtVersionResponse, OperateRequest, PlanRequest, PlanResponse, RolloutRow, RolloutStarted, RolloutStatus,
    StartRequest, StartResponse, StartTarget,
};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout_at};
use utoipa::IntoParams;

use crate::api::error::{ApiError, JsonBody, Path, Query};
use crate::api::request::{Author, PageQuery, Scope};
use crate::app::{Agents, Reader, Writer};

use self::commands::one_line;
use crate::api::releases::bundles::open_bundle;
use crate::releases::check_roles;
use crate::rollouts::host::{begin, plan_for, roll_back};
use crate::rollouts::{plans, status_response};

/// Largest body. The plan of 50,000 nodes is below this.
pub(crate) const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// Rollout by its number, or `active`: the rollout that decides what nodes run.
#[derive(Debug, Deserialize)]
pub(crate) struct RolloutPath {
    id: String,
}

impl RolloutPath {
    pub(crate) fn id(&self, reader: &Reader, scope: &Scope) -> Result<RolloutId, ApiError> {
        if self.id == "active" {
            return active_rollout(reader, scope);
        }
        let id = RolloutId::parse(&self.id);
        id.ok_or_else(|| {
            ApiError::invalid(format!("{:?} is no rollout: expected a number from 1, or `active`", self.id))
        })
    }
}

/// Rollout that decides what nodes run.
pub(crate) fn active_rollout(reader: &Reader, scope: &Scope) -> Result<RolloutId, ApiError> {
    let active = scope.read(reader, |fleet| fleet.active_rollout_pointer().map(|(active, _)| active.id))?;
    active.ok_or_else(|| {
        let problem = Problem::new(ProblemCode::UnknownRollout, format!("{} has never had a rollout", scope.env));
        ApiError(problem.hint("start one with `muster rollout start VERSION`, or review its plan first"))
    })
}

/// Error for a rollout that is not in the history.
pub(crate) fn unknown_rollout(id: RolloutId) -> ApiError {
    let problem = Problem::new(ProblemCode::UnknownRollout, format!("there is no rollout {id}"));
    ApiError(problem.hint("`muster rollout history` lists the known rollouts"))
}

/// Lists the rollouts in the history, newest first.
#[utoipa::path(get, path = "/v1/envs/{env}/rollouts", params(("env" = String, Path), PageQuery),
    responses((status = 200, body = Page<RolloutRow>)))]
pub(crate) async fn list_rollouts(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<RolloutRow>>, ApiError> {
    let plan = status_response::deciding_plan(&reader, &scope.env).await;
    let (rows, revision) = scope.read(&reader, |fleet| {
        let active = status_response::brief(&reader, &agents, fleet, plan.as_deref());
        let newest_first = fleet.rollouts().values().rev();
        let row = |(record, _): &(RolloutRecord, Revision)| status_response::row(fleet, record, active.as_ref());
        let rows: Vec<RolloutRow> = newest_first.map(row).collect();
        (rows, fleet.revision)
    })?;
    Ok(Json(page.cut(rows, revision, |row: &RolloutRow| row.id.to_string())?))
}

/// Changes within this time are shown together.
const PACE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShowQuery {
    /// Respond when a change is newer than this revision, or after `wait_seconds`.
    after: Option<u64>,
    /// Longest wait for a change, in seconds; at most 60.
    #[serde(default)]
    wait_seconds: u64,
    /// Counts only, without the nodes of each wave.
    #[serde(default)]
    numbers: bool,
}

/// Shows the status of a rollout: waves with their nodes, failures, and what it waits for.
#[utoipa::path(get, path = "/v1/envs/{env}/rollouts/{id}",
    params(("env" = String, Path), ("id" = String, Path, description = "Its number, or `active`."), ShowQuery),
    responses((status = 200, body = RolloutStatus)))]
pub(crate) async fn show_rollout(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    Query(ShowQuery { after, wait_seconds, numbers }): Query<ShowQuery>,
) -> Result<Json<RolloutStatus>, ApiError> {
    let deadline = Instant::now() + Duration::from_secs(wait_seconds.min(MAX_WAIT_SECONDS));
    let mut steps = reader.view.subscribe();
    // The same rollout until the response, also if another one becomes active.
    let id = path.id(&reader, &scope)?;
    loop {
        steps.mark_unchanged();
        let changed = scope.read(&reader, |fleet| after.is_none_or(|after| changed_at(fleet, id) > Revision(after)))?;
        if changed || Instant::now() >= deadline {
            return Ok(Json(status(&reader, &agents, &scope, id, numbers).await?));
        }
        tokio::select! {
            _ = timeout_at(deadline, steps.changed()) => {}
            () = reader.stopping() => return Err(ApiError::stopping()),
        }
        sleep(PACE).await;
    }
}

async fn status(
    reader: &Reader,
    agents: &Agents,
    scope: &Scope,
    id: RolloutId,
    numbers: bool,
) -> Result<RolloutStatus, ApiError> {
    let digests = scope.read(reader, |fleet| {
        let (record, _) = fleet.rollouts().get(&id)?;
        // While the rollout is active, the state of its nodes is newer than a stored outcome.
        let governs = fleet.active_rollout_pointer().is_some_and(|(active, _)| active.id == id);
        Some((record.plan.clone(), record.outcome.clone().filter(|_| !governs)))
    })?;
    let (plan, outcome) = digests.ok_or_else(|| unknown_rollout(id))?;
    let plan = reader.plans.get(&plan).await;
    let outcome = match outcome {
        Some(digest) => plans::read_outcome(reader, digest).await,
        None => None,
    };
    let status = scope.read(reader, |fleet| {
        let (record, at) = fleet.rollouts().get(&id)?;
        Some(status_response::status(reader, agents, fleet, (record, *at), &plan, outcome, numbers))
    })?;
    status.ok_or_else(|| unknown_rollout(id))
}

/// Revision of the last change that the status shows.
fn changed_at(fleet: &Fleet, id: RolloutId) -> Revision {
    let own = fleet.rollouts().get(&id).map(|(_, at)| *at);
    let active = fleet.active_rollout_pointer().map(|(_, at)| at);
    let nodes = fleet.designed().filter_map(|(_, node, _)| node_changed_at(node)).max();
    own.into_iter().chain(active).chain(nodes).max().unwrap_or_default()
}

fn node_changed_at(node: &Node) -> Option<Revision> {
    let observed = node.observed.as_ref().map(|(_, at)| *at);
    let desired = node.desired.as_ref().map(|(_, at)| *at);
    let presence = node.presence.as_ref().map(|(_, at)| *at);
    [observed, desired, presence, node.record_at].into_iter().flatten().max()
}

/// Plans a rollout. Changes nothing. The plan can be started until it is out of date.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/plan", params(("env" = String, Path)),
    request_body = PlanRequest, responses((status = 200, body = PlanResponse)))]
pub(crate) async fn plan_rollout(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    JsonBody(request): JsonBody<PlanRequest>,
) -> Result<Json<PlanResponse>, ApiError> {
    check_roles_of(&reader, &scope, &request.to)?;
    Ok(Json(plan_for(&reader, &agents, &scope.env, request).await?))
}

/// Refuses a release with checks for roles that the environment does not have.
fn check_roles_of(reader: &Reader, scope: &Scope, to: &Version) -> Result<(), ApiError> {
    let checked = scope.read(reader, |fleet| {
        let checks = fleet.releases().get(to).and_then(|release| release.checks.as_ref());
        checks.map_or(Ok(()), |checks| check_roles(fleet, to, checks))
    })?;
    Ok(checked?)
}

/// Longest request id, in characters.
const LONGEST_REQUEST: usize = 200;

/// Starts a rollout: from a plan, or planned now. Refused with 409 while another rollout is in progress, unless `supersede`
/// is set.
///
/// A repeated `request` id returns the same rollout. If every node runs the version already, nothing is started: the
/// response has no `id`, and `changed` is false.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts",
    params(("env" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = StartRequest, responses((status = 200, body = StartResponse)))]
pub(crate) async fn start_rollout(
    writer: Writer,
    State(agents): State<Agents>,
    scope: Scope,
    author: Author,
    JsonBody(StartRequest { what, request, supersede, by }): JsonBody<StartRequest>,
) -> Result<Json<StartResponse>, ApiError> {
    let options = StartOptions { request: request_id(&request)?, by: operator_name(author, by), supersede };
    let newest = writer.latest_revision.read().await?;
    Ok(Json(match begin_downloadable(&writer, &agents, &scope, newest, what, options).await? {
        StartOutcome::Started(rollout) => StartResponse::Started(started(rollout)),
        StartOutcome::NoOp(already) => StartResponse::AlreadyThere(already_there(already)),
    }))
}

/// Starts a rollout to a release whose bundle can be downloaded. Without its bundle every node would fail. `newest`: the store's
/// revision, read since the request arrived.
pub(crate) async fn begin_downloadable(
    writer: &Writer,
    agents: &Agents,
    scope: &Scope,
    newest: Revision,
    what: StartTarget,
    options: StartOptions,
) -> Result<StartOutcome, ApiError> {
    let to = what.version();
    writer.view.reach(newest).await?;
    let at_once = match &what {
        StartTarget::Plan(plan) => plan.at_once,
        StartTarget::Now(request) => request.at_once,
    };
    // `at_once` is for emergencies.
    if !at_once {
        check_roles_of(writer, scope, to)?;
    }
    if let Some(release) = scope.read(writer, |fleet| fleet.releases().get(to).cloned())? {
        open_bundle(writer, to, &release).await?;
    }
    Ok(begin(writer, agents, &scope.env, newest, what, options).await?)
}

fn already_there(already: executor::AlreadyAtVersion) -> AlreadyAtVersionResponse {
    let executor::AlreadyAtVersion { to, nodes, by, revision } = already;
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    AlreadyAtVersionResponse { to, changed: false, nodes, rollout: by, revision }
}

pub(super) fn started(rollout: StartedRollout) -> RolloutStarted {
    let StartedRollout { id, from, to, at_once: _, changed, superseded, revision } = rollout;
    RolloutStarted { id, from, to, changed, superseded, revision }
}

/// Operator of a request: a name in the body takes precedence over the header.
pub(crate) fn operator_name(author: Author, named: String) -> String {
    author.by(Some(named).filter(|name| !name.is_empty()), "").author
}

/// Checks the request id of a client. A retry is recognised by it.
pub(super) fn request_id(request: &str) -> Result<String, ApiError> {
    let is_plain = !request.is_empty() && request.chars().all(|c| !c.is_control());
    if !is_plain || clip(request, LONGEST_REQUEST) != request {
        let text = format!("`request` must be an id of 1 to {LONGEST_REQUEST} characters that the client chooses");
        return Err(ApiError::invalid(text));
    }
    Ok(request.to_owned())
}

/// Rolls back to the last version that the whole fleet has validated, with the same engine and budgets.
///
/// Refused with 409 if the rollout is itself a rollback, unless `undo_rollback` is set: a repeated request must not return to
/// the version that was left.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/rollback",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = OperateRequest, responses((status = 200, body = RolloutStarted)))]
pub(crate) async fn roll_back_rollout(
    writer: Writer,
    State(agents): State<Agents>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<OperateRequest>,
) -> Result<Json<RolloutStarted>, ApiError> {
    let id = path.id(&writer, &scope)?;
    let (by, reason) = (operator_name(author, operate.by), one_line(&operate.reason));
    let why = PauseReason::by_operator(by.clone(), reason);
    let options = StartOptions { request: request_id(&operate.request)?, by, supersede: false };
    let request = RollBackRollout::new(id, options, why).undoing(operate.undo_rollback);
    Ok(Json(started(roll_back(&writer, &agents, &scope.env, request).await?)))
}
