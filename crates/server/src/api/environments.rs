//! HTTP handlers for environments: list, details, status and removal.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::request::Parts;
use axum::{Extension, Json};
use muster_core::fleet::{DestroyRecord, Fleet};
use muster_core::keys::Keys;
use muster_core::names::{Role, Version};
use muster_core::node::pause::NodePause;
use muster_core::node::status::NodeState;
use muster_core::txn::{Guard, Op, Txn};
use muster_store::CommitOutcome;
use muster_wire::operator::{
    DesignRevisions, DestroyResponse, EnvironmentChange, EnvironmentDetail, EnvironmentRow, EnvironmentStatus,
    MAX_BLOCKERS, MAX_WAIT_SECONDS, NodeRow, Page, RoleRow,
};
use muster_wire::problem::{Problem, ProblemCode};
use serde::Deserialize;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use utoipa::IntoParams;

use crate::api::authorization::Client;
use crate::api::error::{ApiError, Query};
use crate::api::request::{Author, FilterQuery, PageQuery, Scope, fresh_enough};
use crate::app::{Agents, Reader, ReplicaState, Writer};
use crate::rollouts::status_response;
use crate::view::node_rows;

/// Longest wait of a request that destroys an environment. Nodes stay until the nodes that depend on them have run again.
const GONE: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ConfirmQuery {
    /// Name of the environment again, as a confirmation.
    confirm: Option<String>,
}

/// Shows one environment: its design, its roles, and the number of nodes in each state.
#[utoipa::path(get, path = "/v1/envs/{env}", params(("env" = String, Path)),
    responses((status = 200, body = EnvironmentDetail)))]
pub(crate) async fn show_environment(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
) -> Result<Json<EnvironmentDetail>, ApiError> {
    let remote = agents.remote_activities(&reader.view, &scope.env, None).await;
    let detail = scope.read(&reader, |fleet| {
        let rows = node_rows::all(fleet, agents.activities(&remote));
        let mut counts: BTreeMap<NodeState, usize> = BTreeMap::new();
        let mut order: Vec<Role> = Vec::new();
        let mut roles: BTreeMap<Role, RoleRow> = BTreeMap::new();
        for row in &rows {
            *counts.entry(row.state).or_default() += 1;
            let role = roles.entry(row.role.clone()).or_insert_with(|| {
                order.push(row.role.clone());
                RoleRow { role: row.role.clone(), nodes: 0, counts: BTreeMap::new() }
            });
            role.nodes += 1;
            *role.counts.entry(row.state).or_default() += 1;
        }
        EnvironmentDetail {
            env: fleet.env.clone(),
            nodes: rows.len(),
            current_version: fleet.current_version().map(|(version, _)| version.clone()),
            design: DesignRevisions { head: fleet.design().head(), applied: fleet.design().applied() },
            roles: order.into_iter().filter_map(|role| roles.remove(&role)).collect(),
            counts,
            releases: fleet.releases().len(),
            destroying: fleet.destroying().map(|(destroying, _)| destroying.clone()),
            revision: fleet.revision,
        }
    })?;
    Ok(Json(detail))
}

/// Destroys an environment: its nodes are decommissioned, then all of its keys are removed.
///
/// The work continues if the client disconnects or this replica fails. A repeated request waits again.
#[utoipa::path(delete, path = "/v1/envs/{env}",
    params(("env" = String, Path), ConfirmQuery, ("Muster-Author" = Option<String>, Header)),
    responses((status = 200, body = DestroyResponse)))]
pub(crate) async fn destroy_environment(
    writer: Writer,
    scope: Scope,
    Query(ConfirmQuery { confirm }): Query<ConfirmQuery>,
    author: Author,
) -> Result<Json<DestroyResponse>, ApiError> {
    let env = &scope.env;
    if confirm.as_deref() != Some(env.as_str()) {
        let problem = Problem::new(ProblemCode::InvalidRequest, format!("destroying {env} removes all of its nodes"));
        return Err(ApiError(problem.hint(format!("to confirm, set confirm={env}"))));
    }
    let by = author.by(None, "").author;
    writer.view.reach(writer.latest_revision.read().await?).await?;
    let (nodes, marked, epoch_at) =
        scope.read(&writer, |fleet| (fleet.recorded().count(), fleet.destroying().is_some(), fleet.epoch_at()))?;
    if !marked {
        let keys = Keys::new(env);
        let mark = DestroyRecord { since: writer.clock.now(), by: by.clone() };
        let put = Op::put_json(keys.destroying(), &mark)
            .map_err(|error| ApiError(Problem::new(ProblemCode::Internal, error.to_string())))?;
        let txn = Txn::new()
            .guard(Guard::Absent { key: keys.restoring() })
            .guard(Guard::Absent { key: keys.destroying() })
            // Not an environment of the same name that was created meanwhile.
            .guard(Guard::observed(keys.store_epoch(), epoch_at))
            .op(put);
        match writer.store.commit(txn).await? {
            CommitOutcome::Committed { revision } => {
                tracing::warn!(%env, nodes, by, "the environment is being destroyed");
                writer.view.reach(revision).await?;
            }
            CommitOutcome::Conflict { .. } => {
                let problem = Problem::new(
                    ProblemCode::Conflict,
                    format!("conflict: another client changed {env} during this request"),
                );
                return Err(ApiError(problem.hint("check its state, then decide again")));
            }
        }
    }
    let completed = timeout(GONE, wait_until_destroyed(&writer, &scope)).await.unwrap_or(false);
    Ok(Json(DestroyResponse {
        env: env.clone(),
        nodes,
        completed,
        revision: writer.view.revision().unwrap_or_default(),
    }))
}

/// Waits until the environment is gone. A new environment of the same name counts as gone.
async fn wait_until_destroyed(reader: &Reader, scope: &Scope) -> bool {
    let mut steps = reader.view.subscribe();
    loop {
        steps.mark_unchanged();
        if reader.view.fleets().get(&scope.env).and_then(Fleet::destroying).is_none() {
            return true;
        }
        tokio::select! {
            changed = steps.changed() => if changed.is_err() { return false },
            () = reader.stopping() => return false,
        }
    }
}

/// Lists the environments.
#[utoipa::path(get, path = "/v1/envs", params(PageQuery), responses((status = 200, body = Page<EnvironmentRow>)))]
pub(crate) async fn list_environments(
    State(reader): State<Reader>,
    Extension(client): Extension<Client>,
    Query(page): Query<PageQuery>,
    parts: Parts,
) -> Result<Json<Page<EnvironmentRow>>, ApiError> {
    fresh_enough(&parts, &reader).await?;
    let fleets = reader.view.fleets();
    let row = |fleet: &muster_core::fleet::Fleet| EnvironmentRow {
        env: fleet.env.clone(),
        nodes: fleet.designed().count(),
        current_version: fleet.current_version().map(|(version, _)| version.clone()),
        design: DesignRevisions { head: fleet.design().head(), applied: fleet.design().applied() },
        destroying: fleet.destroying().is_some(),
    };
    // Keys of replicas are left of an environment that was destroyed.
    let shown = fleets.values().filter(|fleet| fleet.is_founded() && client.may_view(&fleet.env));
    let rows = shown.map(row).collect();
    let revision = reader.view.revision().unwrap_or_default();
    Ok(Json(page.cut(rows, revision, |row| row.env.to_string())?))
}

/// Shows the desired version, the number of nodes in each state, and the nodes that block progress; of all nodes, or of those
/// that match a filter.
#[utoipa::path(get, path = "/v1/envs/{env}/status", params(("env" = String, Path), FilterQuery),
    responses((status = 200, body = EnvironmentStatus)))]
pub(crate) async fn environment_status(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    State(replica): State<ReplicaState>,
    scope: Scope,
    Query(filter): Query<FilterQuery>,
) -> Result<Json<EnvironmentStatus>, ApiError> {
    let filter = filter.of_nodes(&reader, &scope)?;
    let now = reader.clock.now();
    let held_domains = replica.liveness.held(&scope.env);
    let remote = agents.remote_activities(&reader.view, &scope.env, None).await;
    let plan = status_response::deciding_plan(&reader, &scope.env).await;
    let store_unreachable_since = replica.membership.store_unreachable_since();
    let status = scope.read(&reader, |fleet| {
        let rows = node_rows::matching(fleet, agents.activities(&remote), &filter);
        let mut counts: BTreeMap<NodeState, usize> = BTreeMap::new();
        rows.iter().for_each(|row| *counts.entry(row.state).or_default() += 1);
        // Nodes that leave say nothing about the fleet that stays.
        let (mut leaving, rows): (Vec<NodeRow>, Vec<NodeRow>) =
            rows.into_iter().partition(|row| row.state == NodeState::Leaving);
        leaving.truncate(MAX_BLOCKERS);
        let nodes = rows.len();
        let mut running: BTreeMap<Version, usize> = BTreeMap::new();
        rows.iter().filter_map(|row| row.running.clone()).for_each(|version| *running.entry(version).or_default() += 1);
        let unchecked = rows.iter().filter(|row| row.checks == Some(0)).count();
        let mut blockers: Vec<NodeRow> = rows.into_iter().filter(|row| row.reason.is_some()).collect();
        let blocked = blockers.len();
        blockers.sort_by_key(|row| urgency(row.state));
        blockers.truncate(MAX_BLOCKERS);
        let lasting = fleet.pauses().iter().filter(|(_, (pause, _))| !pause.is_over(now));
        let pauses = lasting.map(|(of, (pause, _))| NodePause { scope: of.clone(), pause: pause.clone() }).collect();
        let desired = fleet.desired();
        EnvironmentStatus {
            env: fleet.env.clone(),
            revision: fleet.revision,
            generation: desired.as_ref().map(|desired| desired.generation),
            desired: desired.map(|desired| desired.version),
            nodes,
            counts,
            running,
            blockers,
            blocked,
            unchecked,
            leaving,
            pauses,
            policies: fleet.policies().collect(),
            held_domains,
            unreadable: fleet.unreadable().clone(),
            store_unreachable_since,
            rollout: status_response::brief(&reader, &agents, fleet, plan.as_deref()),
            filter: (!filter.is_empty()).then(|| filter.to_string()),
        }
    })?;
    Ok(Json(status))
}

/// Changes within this time are one change.
const PACE: Duration = Duration::from_millis(100);

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChangesQuery {
    /// Cursor of the last response. Without it the response is sent at once.
    after: Option<String>,
    /// Longest wait for a change, in seconds; at most 60.
    #[serde(default)]
    wait_seconds: u64,
}

/// Waits until the environment has changed: its keys, or the connections and activities of the agents of this server.
///
/// A change is a hint to read again. Activities of agents of other servers are no changes.
#[utoipa::path(get, path = "/v1/envs/{env}/changes", params(("env" = String, Path), ChangesQuery),
    responses((status = 200, body = EnvironmentChange)))]
pub(crate) async fn wait_for_change(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Query(ChangesQuery { after, wait_seconds }): Query<ChangesQuery>,
) -> Result<Json<EnvironmentChange>, ApiError> {
    let deadline = Instant::now() + Duration::from_secs(wait_seconds.min(MAX_WAIT_SECONDS));
    let (mut steps, mut activities) = (reader.view.subscribe(), agents.hub.subscribe());
    loop {
        let activity = *activities.borrow_and_update();
        steps.mark_unchanged();
        let revision = scope.read(&reader, |fleet| fleet.revision)?;
        let cursor = format!("{revision}.{activity}");
        if after.as_ref() != Some(&cursor) || Instant::now() >= deadline {
            return Ok(Json(EnvironmentChange { cursor, revision }));
        }
        tokio::select! {
            _ = steps.changed() => sleep(PACE).await,
            _ = activities.changed() => sleep(PACE).await,
            () = sleep_until(deadline) => {}
            () = reader.stopping() => return Err(ApiError::stopping()),
        }
    }
}

/// Sort key: nodes that need an operator first.
fn urgency(word: NodeState) -> u8 {
    match word {
        NodeState::Failed | NodeState::Invalid | NodeState::Unprovisioned | NodeState::Blocked => 0,
        NodeState::Silent => 1,
        NodeState::Pending => 2,
        NodeState::Outdated | NodeState::Configured => 3,
        NodeState::Provisioning
        | NodeState::Applying
        | NodeState::Validating
        | NodeState::Validated
        | NodeState::Leaving => 4,
    }
}
