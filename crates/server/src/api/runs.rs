//! Runs of nodes: the newest of the fleet, failures in groups, and one run with its reports.

use axum::Json;
use axum::extract::{Path, Query, State};
use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::node::status::{NodeState, Reason};
use muster_core::report::failure_groups::{FailureGroup, GroupMember, NodeFailure, group};
use muster_core::report::record::LastRun;
use muster_core::report::{Outcome, ResourceError, RunResult, Verdict};
use muster_wire::operator::{NodeRow, Page, RunDetail};
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::runs::RunRow;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::error::ApiError;
use crate::api::nodes::{NodePath, is_failure};
use crate::api::request::{FilterQuery, Scope};
use crate::app::{Agents, Reader};
use crate::view::{node_fields, node_rows};

const RUNS: usize = 50;
/// 1,000 runs are half a megabyte.
const MOST_RUNS: usize = 1000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LimitQuery {
    /// Largest number of runs; 50 by default, at most 1000.
    limit: Option<usize>,
}

/// Lists the newest runs of all nodes, or of those that match a filter; newest first.
#[utoipa::path(get, path = "/v1/envs/{env}/runs", params(("env" = String, Path), LimitQuery, FilterQuery),
    responses((status = 200, body = Page<RunRow>)))]
pub(crate) async fn list_runs(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    limit: Result<Query<LimitQuery>, axum::extract::rejection::QueryRejection>,
    Query(filter): Query<FilterQuery>,
) -> Result<Json<Page<RunRow>>, ApiError> {
    let Query(LimitQuery { limit }) = limit.map_err(|error| ApiError::invalid(error.body_text()))?;
    let filter = filter.read(&node_fields::KEYS)?;
    let elsewhere = agents.remote_activities(&reader.view, &scope.env, None).await;
    let (items, revision) = scope.ask(&reader, |fleet| {
        let chosen = node_rows::matching(fleet, agents.activities(&elsewhere), &filter);
        (newest(fleet, &chosen, limit.unwrap_or(RUNS).clamp(1, MOST_RUNS)), fleet.revision)
    })?;
    Ok(Json(Page { items, next: None, revision }))
}

/// Newest runs. Histories are stored as text: they are parsed in the order of the nodes' last reports, and only while one
/// could still hold a newer run.
fn newest(fleet: &Fleet, chosen: &[NodeRow], limit: usize) -> Vec<RunRow> {
    let mut nodes: Vec<(Timestamp, &NodeRow)> =
        chosen.iter().filter_map(|row| Some((heard(fleet, row)?, row))).collect();
    nodes.sort_by_key(|(heard, _)| std::cmp::Reverse(*heard));
    let mut runs: Vec<RunRow> = Vec::new();
    for (heard, row) in nodes {
        if runs.len() >= limit && runs.get(limit - 1).is_some_and(|oldest| oldest.run.ended >= heard) {
            break;
        }
        let history = fleet.get(&row.node).map(|node| node.history()).unwrap_or_default();
        let own = history.0.into_iter().map(|run| RunRow { node: row.node.clone(), role: row.role.clone(), run });
        runs.extend(own);
        runs.sort_by(|a, b| b.run.ended.cmp(&a.run.ended).then_with(|| a.node.natural().cmp(&b.node.natural())));
        runs.truncate(limit);
    }
    runs
}

/// Time of the node's last reported run.
fn heard(fleet: &Fleet, row: &NodeRow) -> Option<Timestamp> {
    fleet.get(&row.node)?.observed.as_ref()?.0.last.as_ref().map(|last| last.ended)
}

/// Lists failed nodes in groups with the same cause; largest group first.
#[utoipa::path(get, path = "/v1/envs/{env}/failure-groups", params(("env" = String, Path), FilterQuery),
    responses((status = 200, body = Page<FailureGroup>)))]
pub(crate) async fn list_failure_groups(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Query(filter): Query<FilterQuery>,
) -> Result<Json<Page<FailureGroup>>, ApiError> {
    let filter = filter.read(&node_fields::KEYS)?;
    let elsewhere = agents.remote_activities(&reader.view, &scope.env, None).await;
    let (failed, revision) = scope.ask(&reader, |fleet| {
        let chosen = node_rows::matching(fleet, agents.activities(&elsewhere), &filter).into_iter();
        let failed: Vec<NodeFailure> = chosen.filter_map(|row| failed(fleet, row)).collect();
        (failed, fleet.revision)
    })?;
    Ok(Json(Page { items: group(failed), next: None, revision }))
}

/// Failure of a node, if it has failed. A node that retries counts as failed.
fn failed(fleet: &Fleet, row: NodeRow) -> Option<NodeFailure> {
    let observed = fleet.get(&row.node)?.observed.as_ref().map(|(observed, _)| observed);
    let interfaces = observed.map(|observed| observed.interfaces.clone()).unwrap_or_default();
    let busy = matches!(row.state, NodeState::Applying | NodeState::Validating);
    let why =
        if busy { tries_again(observed?.last.as_ref()?)? } else { row.reason.filter(|_| is_failure(row.state))? };
    let (error, attempt, retry) = match &why {
        Reason::Failed { reason, errors, attempt, retry } => {
            let of_reason = || {
                let message = reason.as_ref().map_or_else(|| "no reason was reported".to_owned(), ToString::to_string);
                ResourceError { message, ..ResourceError::default() }
            };
            (errors.first().cloned().unwrap_or_else(of_reason), *attempt, *retry)
        }
        Reason::Machine { attempt, .. } => {
            (ResourceError { message: why.to_string(), ..ResourceError::default() }, *attempt, None)
        }
        Reason::Leaving { .. }
        | Reason::Silent
        | Reason::Running { .. }
        | Reason::NoVersion
        | Reason::Behind { .. }
        | Reason::Paused { .. }
        | Reason::Waiting { .. }
        | Reason::Blocked { .. }
        | Reason::NotValidated
        | Reason::Restarted => (ResourceError { message: why.to_string(), ..ResourceError::default() }, 0, None),
    };
    let member = GroupMember { node: row.node, since: row.since, attempt, retry };
    Some(NodeFailure { member, interfaces, error })
}

/// Failure of the last run of a node that is running again.
fn tries_again(last: &LastRun) -> Option<Reason> {
    match last.outcome {
        Outcome::Configured(RunResult::Failed) | Outcome::Validated(Verdict::Failed) => {
            let (reason, errors, attempt) = (last.reason.clone(), last.errors.clone(), last.attempt);
            Some(Reason::Failed { reason, errors, attempt, retry: None })
        }
        Outcome::Configured(_) | Outcome::Validated(Verdict::Passed) | Outcome::Previewed(_) => None,
    }
}

#[derive(Deserialize)]
pub(crate) struct RunPath {
    run: String,
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
    let history = scope.ask(&reader, |fleet| fleet.get(&node).map(|node| node.history()).unwrap_or_default())?;
    let Some(past) = history.0.into_iter().find(|past| past.run.as_str() == run) else {
        let problem = Problem::new(ProblemCode::UnknownRun, format!("{node} has no run {run} in its history"));
        return Err(ApiError(problem.hint("`muster node show` lists the runs that are kept")));
    };
    let kept = past.logs.len();
    let reports = reader.blobs.reports(past.logs).await;
    let missing = kept - reports.len();
    Ok(Json(RunDetail { node, run: past.run, reports, missing }))
}
