//! HTTP handlers for runs of nodes: the newest of the fleet, failures in groups, one run with its reports, and runs
//! that operators request.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::names::{NodeName, Role, RunId};
use muster_core::node::liveness::Link;
use muster_core::node::record::RunRequest;
use muster_core::node::status::{Activity, Reason};
use muster_core::report::failure_groups::{FailureGroup, GroupMember, GroupedFailure, group};
use muster_core::report::record::PastRun;
use muster_core::report::{Cause, Report, ResourceError, RunOptions};
use muster_core::txn::{Guard, Op, Txn};
use muster_store::CommitOutcome;
use muster_wire::operator::{MAX_WAIT_SECONDS, NodeRow, Page, RunDetail};
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::runs::{RunRequestProgress, RunRequestStatus, RunRow, StartRunRequest, StartRunResponse};
use serde::Deserialize;
use tokio::time::{Instant, sleep};
use utoipa::IntoParams;

use crate::api::agents::ends_run;
use crate::api::error::{ApiError, JsonBody, Path, Query, chain};
use crate::api::nodes::NodePath;
use crate::api::request::{Author, FilterQuery, PageQuery, Scope, page_limit};
use crate::app::{Agents, Reader, Writer};
use crate::run_history::ViewedRuns;
use crate::view::node_rows::{self, FailedNode};

const RUNS: usize = 50;
/// 1,000 runs are half a megabyte.
const MOST_RUNS: usize = 1000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LimitQuery {
    /// Largest number of runs; 50 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next` of the page before.
    after: Option<String>,
}

/// Lists the newest runs of all nodes, or of those that match a filter; newest first.
#[utoipa::path(get, path = "/v1/envs/{env}/runs", params(("env" = String, Path), LimitQuery, FilterQuery),
    responses((status = 200, body = Page<RunRow>)))]
pub(crate) async fn list_runs(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Query(LimitQuery { limit, after }): Query<LimitQuery>,
    Query(filter): Query<FilterQuery>,
) -> Result<Json<Page<RunRow>>, ApiError> {
    let filter = filter.of_nodes(&reader, &scope)?;
    let remote = agents.remote_activities(&reader.view, &scope.env, None).await;
    let limit = page_limit(limit, RUNS, MOST_RUNS)?;
    let (entries, revision) = scope.read(&reader, |fleet| {
        let chosen = node_rows::matching(fleet, agents.activities(&remote), &filter);
        // One more than the page shows that there is a next one. A later page may begin anywhere.
        let needed = if after.is_none() { limit + 1 } else { usize::MAX };
        (newest(fleet, &chosen, needed), fleet.revision)
    })?;
    let page = PageQuery { limit: Some(limit), after };
    let Page { items, next, revision } =
        page.cut(entries, revision, |entry| format!("{}/{}", entry.node, entry.run))?;
    let in_store = items.iter().filter(|entry| entry.past.is_none());
    let keys = in_store.map(|entry| (entry.node.clone(), entry.run.clone())).collect();
    let mut values = reader.history.values(&scope.env, keys).await?.into_iter();
    let row = |RunEntry { node, role, past, .. }: RunEntry| {
        let run = past.or_else(|| values.next().flatten())?;
        Some(RunRow { node, role, run })
    };
    Ok(Json(Page { items: items.into_iter().filter_map(row).collect(), next, revision }))
}

/// A run in a list.
struct RunEntry {
    ended: Timestamp,
    node: NodeName,
    role: Role,
    run: RunId,
    /// None if only the store has it.
    past: Option<PastRun>,
}

/// Newest runs. Only their keys are compared: of a large fleet with full histories, a page needs a few of 200,000 values.
fn newest(fleet: &Fleet, chosen: &[NodeRow], limit: usize) -> Vec<RunEntry> {
    let mut entries = Vec::new();
    for row in chosen {
        let Some(node) = fleet.get(&row.node) else { continue };
        let entry = |ended: Timestamp, run: &RunId, past: Option<PastRun>| RunEntry {
            ended,
            node: row.node.clone(),
            role: row.role.clone(),
            run: run.clone(),
            past,
        };
        entries.extend(node.history.keys().iter().map(|key| entry(key.ended, &key.run, None)));
        let viewed = node.open_run().into_iter().chain(node.history.listed().0);
        let viewed = viewed.filter(|past| !node.history.contains(&past.run));
        entries.extend(viewed.map(|past| entry(past.ended, &past.run.clone(), Some(past))));
    }
    let order = |a: &RunEntry, b: &RunEntry| {
        let by_node = || a.node.natural().cmp(&b.node.natural()).then_with(|| b.run.cmp(&a.run));
        b.ended.cmp(&a.ended).then_with(by_node)
    };
    if limit < entries.len() {
        entries.select_nth_unstable_by(limit, order);
        entries.truncate(limit);
    }
    entries.sort_by(order);
    entries
}

/// Run of a node: the open one, or one in its history.
pub(super) async fn find_run(
    reader: &Reader,
    scope: &Scope,
    node: &NodeName,
    run: &RunId,
) -> Result<Option<PastRun>, ApiError> {
    let viewed = scope.read(reader, |fleet| ViewedRuns::of(fleet, node))?;
    Ok(reader.history.run(&scope.env, node, run, viewed).await?)
}

/// Number of groups whose reports are read. Each report is a file.
const GROUPS_WITH_REPORTS: usize = 50;

/// A group, and the blob with the last report of the failed run of its first node.
pub(super) type GroupWithReport = (FailureGroup, Option<String>);

/// Groups failed nodes by their error.
pub(super) fn failure_groups(fleet: &Fleet, failed: &[FailedNode]) -> Vec<GroupWithReport> {
    let groups = group(failed.iter().map(|failed| grouped(fleet, failed)));
    let with_run = |(index, mut group): (usize, FailureGroup)| {
        let first = group.nodes.first().filter(|_| index < GROUPS_WITH_REPORTS);
        let failed = first.and_then(|member| fleet.get(&member.node)).and_then(failed_run);
        let (run, blob) = failed.unzip();
        group.run = run;
        (group, blob.flatten())
    };
    groups.into_iter().enumerate().map(with_run).collect()
}

/// The last failed run of a node, and the blob with its last report.
fn failed_run(node: &Node) -> Option<(RunId, Option<String>)> {
    let observed = node.observed.as_ref().map(|(observed, _)| observed);
    let last = observed.and_then(|observed| observed.last.as_ref()).filter(|last| last.outcome.is_failure());
    let last = last.map(|last| (last.run.clone(), last.log.clone()));
    let earlier = || observed?.failure.as_ref().map(|failure| (failure.run.clone(), failure.log.clone()));
    // Earlier versions have written it to the history alone.
    let listed = || {
        let failed = node.history.listed().0.into_iter().find(|past| past.outcome.is_failure())?;
        Some((failed.run, failed.logs.into_iter().next_back()))
    };
    last.or_else(earlier).or_else(listed)
}

/// Adds all errors of the run of each group's first node, from its report.
pub(super) async fn add_run_errors(reader: &Reader, groups: &mut [GroupWithReport]) {
    for (group, blob) in groups {
        let reports = reader.blobs.reports(blob.take().into_iter().collect()).await;
        group.errors = reports.first().map(Report::all_errors).unwrap_or_default();
    }
}

fn grouped(fleet: &Fleet, FailedNode { row, current }: &FailedNode) -> GroupedFailure {
    let observed = fleet.get(&row.node).and_then(|node| node.observed.as_ref());
    let interfaces = observed.map(|(observed, _)| observed.interfaces.clone()).unwrap_or_default();
    let message = |message: String| ResourceError { message, ..ResourceError::default() };
    let (error, attempt, retry) = match &row.reason {
        Some(Reason::Failed { reason: cause, errors, attempt, retry }) => {
            let from_cause =
                || message(cause.as_ref().map_or_else(|| "no reason was reported".to_owned(), ToString::to_string));
            (errors.first().cloned().unwrap_or_else(from_cause), *attempt, *retry)
        }
        Some(reason @ Reason::Machine { attempt, .. }) => (message(reason.to_string()), *attempt, None),
        Some(
            reason @ (Reason::Leaving { .. }
            | Reason::Silent
            | Reason::Running { .. }
            | Reason::NoVersion
            | Reason::Behind { .. }
            | Reason::NotDue { .. }
            | Reason::Incompatible { .. }
            | Reason::Paused { .. }
            | Reason::Waiting { .. }
            | Reason::Blocked { .. }
            | Reason::NotValidated
            | Reason::Restarted
            | Reason::Renewed),
        ) => (message(reason.to_string()), 0, None),
        None => (message("no reason was reported".to_owned()), 0, None),
    };
    let current = Some(*current).filter(|current| *current != row.state);
    let member = GroupMember { node: row.node.clone(), since: row.since, attempt, current, retry };
    GroupedFailure { member, host: row.host.clone(), interfaces, error }
}

#[derive(Debug, Deserialize)]
pub(crate) struct RunPath {
    pub(super) run: String,
}

/// Shows the reports of one run.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes/{node}/runs/{run}",
    params(("env" = String, Path), ("node" = String, Path), ("run" = String, Path)),
    responses((status = 200, body = RunDetail)))]
pub(crate) async fn show_run(
    State(reader): State<Reader>,
    scope: Scope,
    Path(node): Path<NodePath>,
    Path(RunPath { run }): Path<RunPath>,
) -> Result<Json<RunDetail>, ApiError> {
    let node = node.designed(&reader, &scope)?;
    let past = match RunId::new(&*run) {
        Ok(run) => find_run(&reader, &scope, &node, &run).await?,
        Err(_) => None,
    };
    let Some(past) = past else {
        let problem = Problem::new(ProblemCode::UnknownRun, format!("{node} has no run {run} in its history"));
        return Err(ApiError(problem.hint("`muster node show` lists the runs that are kept")));
    };
    let kept = past.logs.len();
    let reports = reader.blobs.reports(past.logs).await;
    let missing = kept - reports.len();
    Ok(Json(RunDetail { node, run: past.run, reports, missing }))
}

/// Poll interval while a client waits for a run to start. Only the replica that the agent is connected to knows; it does
/// not notify the others.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Requests a run of a node. The replica that its agent is connected to delivers the request, also later.
#[utoipa::path(post, path = "/v1/envs/{env}/nodes/{node}/runs",
    params(("env" = String, Path), ("node" = String, Path)),
    request_body = StartRunRequest, responses((status = 200, body = StartRunResponse)))]
pub(crate) async fn request_run(
    writer: Writer,
    State(agents): State<Agents>,
    scope: Scope,
    Path(path): Path<NodePath>,
    author: Author,
    JsonBody(StartRunRequest { noop, options }): JsonBody<StartRunRequest>,
) -> Result<Json<StartRunResponse>, ApiError> {
    // A pause that was set just before must count.
    writer.view.reach(writer.latest_revision.read().await?).await?;
    let node = path.designed(&writer, &scope)?;
    let now = writer.clock.now();
    let (pause, link, designed_at) = scope.read(&writer, |fleet| {
        let found = fleet.get(&node);
        let role = found.and_then(|node| node.record.as_ref()).map(|record| &record.role);
        let pause = role.and_then(|role| fleet.pause_of(&node, role, now));
        (pause, agents.links.agent(fleet, &node).link, found.and_then(|node| node.record_at))
    })?;
    if let Some(pause) = pause.filter(|_| !noop) {
        let problem = Problem::new(ProblemCode::Conflict, pause.to_string());
        return Err(ApiError(problem.hint("`muster resume` ends the pause; --noop shows what a run would change")));
    }
    scope.read(&writer, |fleet| check_options(fleet, &node, noop, &options))??;
    let by = author.by(None, "").author;
    let id = run_request_id(now, &node, &by);
    let keys = Keys::new(&scope.env);
    let request = RunRequest { id: id.clone(), noop, options, by: by.clone(), at: now };
    let put = Op::put_json(keys.requested_run(&node), &request);
    let put = put.map_err(|error| ApiError(Problem::new(ProblemCode::Internal, chain(&error))))?;
    // A node that has left the design meanwhile must not get a key.
    let txn = Txn::new().guard(Guard::observed(keys.node(&node), designed_at)).op(put);
    let revision = match writer.store.commit(txn).await? {
        CommitOutcome::Committed { revision } => revision,
        CommitOutcome::Conflict { .. } => {
            let problem = Problem::new(ProblemCode::Conflict, format!("the design of {node} has just changed"));
            return Err(ApiError(problem.hint("retry")));
        }
    };
    tracing::info!(env = %scope.env, %node, id, by, noop, "run requested");
    writer.view.reach(revision).await?;
    Ok(Json(StartRunResponse { node, id, silent_since: silent(link), revision }))
}

fn check_options(fleet: &Fleet, node: &NodeName, noop: bool, options: &RunOptions) -> Result<(), ApiError> {
    options.check().map_err(ApiError::invalid)?;
    if let Some(version) = &options.version {
        if !noop {
            let problem =
                Problem::new(ProblemCode::InvalidRequest, "a single run of another version can only be a preview");
            return Err(ApiError(problem.hint("add --noop; `muster rollout start` moves nodes to a version")));
        }
        if !fleet.releases().contains_key(version) {
            let known: Vec<String> = fleet.releases().keys().map(ToString::to_string).collect();
            return Err(ApiError::unknown_version(version, &known));
        }
    }
    let desired = fleet.desired_of(node).map(|desired| desired.version);
    let state = fleet.get(node).and_then(|node| node.state()).map(|(state, _)| state);
    let is_complete = state.is_some_and(|state| state.is_validated() && Some(state.version()) == desired.as_ref());
    if !options.tags.is_empty() && !noop && !is_complete {
        let detail =
            format!("{node} has not validated its desired version: a run with tags would apply only a part of it");
        return Err(ApiError(
            Problem::new(ProblemCode::Conflict, detail).hint("run it without --tags, or with --noop"),
        ));
    }
    Ok(())
}

/// Unique id: two requests at the same time are two runs.
fn run_request_id(now: jiff::Timestamp, node: &NodeName, by: &str) -> String {
    let digest = crate::blobs::Blobs::digest(format!("{}\n{node}\n{by}", now.as_nanosecond()).as_bytes());
    format!("{}-{}", now.strftime("%Y%m%dt%H%M%S"), &digest[..8])
}

#[derive(Debug, Deserialize)]
pub(crate) struct RunRequestPath {
    id: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WaitQuery {
    /// Longest wait for the run to start, in seconds; the response is sent as soon as it has started.
    #[serde(default)]
    wait_seconds: u64,
}

/// Shows the progress of a requested run. Only the last request of each node is kept.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes/{node}/asked/{id}",
    params(("env" = String, Path), ("node" = String, Path), ("id" = String, Path), WaitQuery),
    responses((status = 200, body = RunRequestStatus)))]
pub(crate) async fn show_run_request(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(path): Path<NodePath>,
    Path(RunRequestPath { id }): Path<RunRequestPath>,
    Query(WaitQuery { wait_seconds }): Query<WaitQuery>,
) -> Result<Json<RunRequestStatus>, ApiError> {
    let node = path.designed(&reader, &scope)?;
    let deadline = Instant::now() + Duration::from_secs(wait_seconds.min(MAX_WAIT_SECONDS));
    loop {
        let run = progress(&reader, &agents, &scope, &node, &id).await?;
        let waits = matches!(run.progress, RunRequestProgress::Waiting { .. });
        if !waits || Instant::now() >= deadline {
            return Ok(Json(run));
        }
        tokio::select! {
            () = sleep(POLL_INTERVAL) => {}
            () = reader.stopping() => return Err(ApiError::stopping()),
        }
    }
}

async fn progress(
    reader: &Reader,
    agents: &Agents,
    scope: &Scope,
    node: &NodeName,
    id: &str,
) -> Result<RunRequestStatus, ApiError> {
    let running = running_request(reader, agents, scope, node, id).await;
    let viewed = scope.read(reader, |fleet| ViewedRuns::of(fleet, node))?;
    let runs = reader.history.runs(&scope.env, node, viewed).await?;
    let past = runs.into_iter().find(|past| serves_request(past, id));
    scope.read(reader, |fleet| {
        let found = fleet.get(node);
        let request = found
            .and_then(|node| node.run_request.as_ref())
            .map(|(request, _)| request)
            .filter(|request| request.id == *id);
        let Some(request) = request else {
            // A later request has replaced it.
            let problem =
                Problem::new(ProblemCode::UnknownRun, format!("run request {id} of {node} does not exist any more"));
            return Err(ApiError(problem.hint("a later request may have replaced it")));
        };
        let progress = match (past, running) {
            (Some(past), _) if ends_run(past.outcome) => RunRequestProgress::Done { run: past.run },
            (_, Some(run)) => RunRequestProgress::Running { run },
            (Some(past), None) => RunRequestProgress::Running { run: past.run },
            (None, None) => match request.options.version.as_ref() {
                // The stream of the agent sends no request without its release.
                Some(version) if !fleet.releases().contains_key(version) => {
                    RunRequestProgress::ReleaseRemoved { version: version.clone() }
                }
                Some(_) | None => {
                    RunRequestProgress::Waiting { silent_since: silent(agents.links.agent(fleet, node).link) }
                }
            },
        };
        Ok(RunRequestStatus { asked: request.clone(), progress, revision: fleet.revision })
    })?
}

/// The run in progress, if it is the requested one.
async fn running_request(reader: &Reader, agents: &Agents, scope: &Scope, node: &NodeName, id: &str) -> Option<RunId> {
    if agents.hub.session(&scope.env, node).is_some() {
        return agents.hub.live_logs.run_for_request(&scope.env, node, id);
    }
    let agent = agents.remote_activities(&reader.view, &scope.env, Some(node)).await.remove(node)?;
    match agent.doing {
        Activity::Applying { run, .. } | Activity::Validating { run, .. } => {
            agent.asked.iter().any(|served| served == id).then_some(run)
        }
        Activity::Idle | Activity::Retrying { .. } | Activity::Blocked { .. } => None,
    }
}

fn serves_request(past: &PastRun, id: &str) -> bool {
    past.causes.iter().filter_map(Cause::request).any(|(served, _)| served == id)
}

fn silent(link: Link) -> Option<jiff::Timestamp> {
    link.silent_since()
}
