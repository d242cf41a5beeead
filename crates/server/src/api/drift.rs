//! HTTP handlers for drift: nodes that differ from their release.

use axum::Json;
use axum::extract::State;
use muster_core::fleet::Fleet;
use muster_core::names::{NodeName, RunId};
use muster_core::report::drift::{self, DriftRecord, drift_state};
use muster_core::report::{Report, ResourceChange};
use muster_wire::drift::{Difference, NodeDrift};
use muster_wire::operator::{NodeRow, Page};

use crate::api::error::{ApiError, Query};
use crate::api::request::{FilterQuery, PageQuery, Scope};
use crate::api::runs::find_run;
use crate::app::{Agents, Reader};
use crate::view::node_rows;

/// Number of nodes whose differences are read. Each report is a file.
const NODES_WITH_REPORTS: usize = 50;

/// Lists the drift of all nodes, or of those that match a filter, in the order of the design.
#[utoipa::path(get, path = "/v1/envs/{env}/drift", params(("env" = String, Path), PageQuery, FilterQuery),
    responses((status = 200, body = Page<NodeDrift>)))]
pub(crate) async fn list_drift(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Query(page): Query<PageQuery>,
    Query(filter): Query<FilterQuery>,
) -> Result<Json<Page<NodeDrift>>, ApiError> {
    let filter = filter.of_nodes(&reader, &scope)?;
    let remote = agents.remote_activities(&reader.view, &scope.env, None).await;
    let (found, revision) = scope.read(&reader, |fleet| {
        let chosen = node_rows::matching(fleet, agents.activities(&remote), &filter);
        (chosen.into_iter().map(|row| node_drift(fleet, row)).collect::<Vec<_>>(), fleet.revision)
    })?;
    let found = page.cut(found, revision, |(node, _)| node.node.to_string())?;
    let (mut items, mut left) = (Vec::with_capacity(found.items.len()), NODES_WITH_REPORTS);
    for (mut node, run) in found.items {
        if let Some(run) = run
            && left > 0
        {
            left -= 1;
            node.differences = read_differences(&reader, &scope, &node.node, &run).await?;
        }
        items.push(node);
    }
    Ok(Json(Page { items, next: found.next, revision }))
}

/// Drift of a node, and the run whose report has its differences.
pub(super) fn node_drift(fleet: &Fleet, row: NodeRow) -> (NodeDrift, Option<RunId>) {
    let node = fleet.get(&row.node);
    let record = node.and_then(|node| node.observed.as_ref()).and_then(|(observed, _)| observed.drift.as_ref());
    let release = row.desired.as_ref().and_then(|version| fleet.releases().get(version));
    let timed_runs = release.and_then(|release| release.checks.as_ref()).and_then(|checks| checks.timed_runs);
    let (drift, reason) = drift_state(row.state, row.paused.is_some(), record, timed_runs);
    let differs = |record: &&DriftRecord| record.failed.is_none();
    let run = record.filter(differs).map(|record| record.run.clone());
    let node = NodeDrift {
        node: row.node,
        role: row.role,
        drift,
        reason,
        since: record.map(|record| record.since),
        run: record.map(|record| record.run.clone()),
        count: record.map_or(0, |record| record.count),
        differences: Vec::new(),
    };
    (node, run)
}

pub(super) async fn read_differences(
    reader: &Reader,
    scope: &Scope,
    node: &NodeName,
    run: &RunId,
) -> Result<Vec<Difference>, ApiError> {
    let past = find_run(reader, scope, node, run).await?;
    let reports = reader.blobs.reports(past.map(|past| past.logs).unwrap_or_default()).await;
    let of_report = |report: &Report| {
        let differences = drift::differences(&report.changes);
        let with_diff =
            |change: &ResourceChange| Difference { diff: drift::diff_of(&report.log, change), change: change.clone() };
        differences.into_iter().map(with_diff).collect::<Vec<_>>()
    };
    Ok(reports.iter().flat_map(of_report).collect())
}
