//! HTTP handlers for versions: the current version of an environment, the versions that nodes validated, and
//! verification of hosts.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use muster_core::fleet::Fleet;
use muster_core::names::{NodeName, Version};
use muster_core::node::evidence::NotCounted;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::RolloutPhase;
use muster_rollout::executor::{AlreadyAtVersion, StartOutcome, StartedRollout};
use muster_rollout::start::StartOptions;
use muster_wire::operator::{
    CurrentVersion, MAX_WAIT_SECONDS, MissingHost, Page, RunningVersionRow, RunningVersions, TriggerUpdate,
    UncountedNode, UpdateResponse, VerifyHostsRequest, VerifyHostsResponse,
};
use muster_wire::rollout::{PlanRequest, StartTarget};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};
use utoipa::IntoParams;

use crate::api::error::{ApiError, JsonBody, JsonObject, Path, Query, RawBody, chain};
use crate::api::request::{Author, PageQuery, Scope};
use crate::api::rollouts::{begin_downloadable, operator_name};
use crate::app::{Agents, Reader, Writer};
use crate::design::revision::check_writable;
use crate::view::node_rows::{self, RemoteActivities};

/// Shows the version that the environment should run.
#[utoipa::path(get, path = "/v1/envs/{env}/current-version", params(("env" = String, Path)),
    responses((status = 200, body = CurrentVersion)))]
pub(crate) async fn show_current_version(
    State(reader): State<Reader>,
    scope: Scope,
) -> Result<Json<CurrentVersion>, ApiError> {
    let current = scope.read(&reader, |fleet| CurrentVersion {
        version: fleet.current_version().map(|(version, _)| version.clone()),
        generation: fleet.desired().map(|desired| desired.generation),
        revision: fleet.revision,
    })?;
    Ok(Json(current))
}

/// Starts a rollout to a version with the environment's strategy. With `at_once`, all nodes get it in one transaction, and a
/// rollout in progress is superseded. A version that is current or being rolled out is a no-op.
///
/// A release with a lower serial than the current one is refused with 409, unless `allow_older` is set: then nodes may
/// downgrade.
#[utoipa::path(put, path = "/v1/envs/{env}/current-version", params(("env" = String, Path)),
    request_body = TriggerUpdate, responses((status = 200, body = UpdateResponse)))]
pub(crate) async fn change_current_version(
    writer: Writer,
    State(agents): State<Agents>,
    scope: Scope,
    author: Author,
    JsonBody(update): JsonBody<TriggerUpdate>,
) -> Result<Json<UpdateResponse>, ApiError> {
    // Decided on the latest revision: a stale view could show the version before the last change, and the request would be
    // taken for a no-op.
    let newest = writer.latest_revision.read().await?;
    writer.view.reach(newest).await?;
    let (accepted, already, known) = scope.read(&writer, |fleet| {
        let known = (!fleet.releases().contains_key(&update.version))
            .then(|| fleet.releases().keys().map(Version::to_string).collect::<Vec<_>>());
        (check_writable(fleet), existing_update(fleet, &update), known)
    })?;
    accepted?;
    if let Some(known) = known {
        return Err(ApiError::unknown_version(&update.version, &known));
    }
    let TriggerUpdate { version: to, allow_older, at_once, by } = update;
    if let Some(rollout) = already {
        let revision = writer.view.revision().unwrap_or_default();
        return Ok(Json(UpdateResponse { from: Some(to.clone()), to, changed: false, rollout, revision }));
    }
    let by = operator_name(author, by);
    // Random: each request is a new one. After an unknown outcome it identifies the rollout.
    let request = format!("trigger-{}", RandomState::new().hash_one((writer.clock.now().as_nanosecond(), &by)));
    // `at_once` is for emergencies: it supersedes a rollout in progress.
    let starting = StartOptions { request, by, supersede: at_once };
    let request = PlanRequest { allow_older, at_once, ..PlanRequest::to(to) };
    Ok(Json(match begin_downloadable(&writer, &agents, &scope, newest, StartTarget::Now(request), starting).await? {
        StartOutcome::Started(StartedRollout { id, from, to, changed, revision, .. }) => {
            UpdateResponse { from, to, changed, rollout: Some(id), revision }
        }
        StartOutcome::NoOp(AlreadyAtVersion { to, by, revision, .. }) => {
            UpdateResponse { from: Some(to.clone()), to, changed: false, rollout: by, revision }
        }
    }))
}

/// Returns `Some` if the request is a no-op: the version is current or being rolled out as requested. The inner value is the
/// rollout, if there is one.
fn existing_update(fleet: &Fleet, update: &TriggerUpdate) -> Option<Option<RolloutId>> {
    let desired = fleet.desired().filter(|desired| desired.version == update.version)?;
    // A request with the permission adds it; one without does not revoke it.
    if update.allow_older && !desired.allow_older {
        return None;
    }
    let Some((record, _)) = fleet.active_rollout_record() else { return Some(None) };
    let is_on_its_way = match &record.phase {
        // A request with `at_once` does not wait for waves.
        RolloutPhase::Running | RolloutPhase::Paused { .. } => record.at_once || !update.at_once,
        RolloutPhase::Completed => !update.at_once || record.operator.skipped.is_empty(),
        RolloutPhase::Aborted { .. } | RolloutPhase::RolledBack { .. } | RolloutPhase::Superseded { .. } => false,
    };
    (record.to == update.version && is_on_its_way).then_some(Some(record.id))
}

#[derive(Deserialize)]
pub(crate) struct RunningVersionPath {
    version: Version,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RecordedQuery {
    /// Count the version that each node validated last, although the node may be unreachable or restarted since.
    #[serde(default)]
    recorded: bool,
}

/// Lists the versions that run now, and the nodes whose last validation does not count, with the reason.
///
/// A node counts if its agent is connected, it has validated the version in its present incarnation, and nothing has failed since.
#[utoipa::path(get, path = "/v1/envs/{env}/running-versions", params(("env" = String, Path), PageQuery, RecordedQuery),
    responses((status = 200, body = RunningVersions)))]
pub(crate) async fn list_running_versions(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Query(page): Query<PageQuery>,
    Query(RecordedQuery { recorded }): Query<RecordedQuery>,
) -> Result<Json<RunningVersions>, ApiError> {
    let (rows, not_counted, revision) = scope.read(&reader, |fleet| {
        let mut counts: BTreeMap<&Version, usize> = BTreeMap::new();
        let mut not_counted = Vec::new();
        for (version, node) in
            fleet.running().iter().flat_map(|(version, nodes)| nodes.iter().map(move |n| (version, n)))
        {
            match not_counted_now(&agents, fleet, node).filter(|_| !recorded) {
                None => *counts.entry(version).or_default() += 1,
                Some(reason) => {
                    not_counted.push(UncountedNode { node: node.clone(), version: version.clone(), reason });
                }
            }
        }
        not_counted.sort_by(|a, b| a.node.natural().cmp(&b.node.natural()));
        let rows = counts.into_iter().map(|(version, nodes)| RunningVersionRow { version: version.clone(), nodes });
        (rows.collect(), not_counted, fleet.revision)
    })?;
    let Page { items, next, revision } = page.cut(rows, revision, |row: &RunningVersionRow| row.version.to_string())?;
    Ok(Json(RunningVersions { items, next, not_counted, revision }))
}

/// Lists the nodes that run a version now; with `recorded`, those that validated it last.
#[utoipa::path(get, path = "/v1/envs/{env}/running-versions/{version}/hosts",
    params(("env" = String, Path), ("version" = String, Path), PageQuery, RecordedQuery),
    responses((status = 200, body = Page<String>)))]
pub(crate) async fn list_version_hosts(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(RunningVersionPath { version }): Path<RunningVersionPath>,
    Query(page): Query<PageQuery>,
    Query(RecordedQuery { recorded }): Query<RecordedQuery>,
) -> Result<Json<Page<String>>, ApiError> {
    let (mut nodes, revision) = scope.read(&reader, |fleet| {
        let nodes = fleet.running().get(&version).into_iter().flatten();
        let counted = nodes.filter(|node| recorded || not_counted_now(&agents, fleet, node).is_none());
        (counted.cloned().collect::<Vec<NodeName>>(), fleet.revision)
    })?;
    nodes.sort_by(|a, b| a.natural().cmp(&b.natural()));
    Ok(Json(page.cut(nodes.into_iter().map(String::from).collect(), revision, String::clone)?))
}

/// Reason why the last validation of a node does not count now.
fn not_counted_now(agents: &Agents, fleet: &Fleet, name: &NodeName) -> Option<NotCounted> {
    NotCounted::of_node(fleet.get(name)?, fleet.epoch(), agents.links.link(fleet, name))
}

/// Verifies that hosts run a version, and lists those that do not with the reason. Never answered from a stale view.
///
/// A host counts if its agent is connected, it has validated the version in its present incarnation, and nothing has failed since.
/// With `recorded`, its last validation counts.
#[utoipa::path(post, path = "/v1/envs/{env}/verify-hosts", params(("env" = String, Path)),
    request_body = VerifyHostsRequest, responses((status = 200, body = VerifyHostsResponse)))]
pub(crate) async fn verify_hosts(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    RawBody(body): RawBody,
) -> Result<Json<VerifyHostsResponse>, ApiError> {
    let begin = Instant::now();
    let JsonObject(question): JsonObject<VerifyHostsRequest> =
        serde_json::from_slice(&body).map_err(|error| ApiError::invalid(chain(&error)))?;
    if question.hosts.is_empty() {
        return Err(ApiError::invalid("no hosts were given, so there is nothing to verify"));
    }
    let parsing = begin.elapsed();
    let deadline = begin + Duration::from_secs(question.wait_seconds.min(MAX_WAIT_SECONDS));
    let mut steps = reader.view.subscribe();
    let mut connections = agents.hub.subscribe();
    let mut fresh = None;
    loop {
        // Everything that the store acknowledged before the request must count. Later steps of the view are newer anyway; only
        // a final "no" is checked against the latest revision again.
        if fresh.is_none() || Instant::now() >= deadline {
            let newest = reader.latest_revision.read().await?;
            reader.view.reach(newest).await?;
            fresh = Some(newest);
        }
        steps.mark_unchanged();
        connections.mark_unchanged();
        let deciding = Instant::now();
        let mut answer = scope.read(&reader, |fleet| verify_once(&agents, fleet, &question))?;
        answer.micros = u64::try_from((parsing + deciding.elapsed()).as_micros()).unwrap_or(u64::MAX);
        if answer.verified || Instant::now() >= deadline {
            return Ok(Json(answer));
        }
        tokio::select! {
            // At the deadline the hosts are checked once more, and the result is returned.
            () = sleep_until(deadline) => {}
            _ = steps.changed() => {}
            // An agent of this replica has connected. Those of other replicas change the view.
            _ = connections.changed() => {}
            // A server that stops waits for open requests. This one must not delay it.
            () = reader.stopping() => return Err(ApiError::stopping()),
        }
    }
}

fn verify_once(agents: &Agents, fleet: &Fleet, question: &VerifyHostsRequest) -> VerifyHostsResponse {
    let at_version = fleet.running().get(&question.version);
    // These nodes validated the version before they were sent to another one and back.
    let late = Some(fleet.late()).filter(|late| !late.is_empty());
    let is_called = |name: &NodeName| fleet.desired_of(name).is_some_and(|desired| desired.version == question.version);
    let is_late = |host: &str| {
        let found = late.and_then(|late| fleet.find(host).filter(|(name, _)| late.contains(*name)));
        found.is_some_and(|(name, _)| is_called(name))
    };
    let node_at_version = |host: &String| node_at_version(fleet, at_version, host).filter(|_| !is_late(host));
    let nodes: Vec<Option<&NodeName>> = question.hosts.iter().map(node_at_version).collect();
    let silent = match question.recorded {
        true => HashSet::new(),
        false => agents.links.silent(fleet, nodes.iter().copied().flatten()),
    };
    let counts = |name: &NodeName| question.recorded || !(silent.contains(name) || fleet.unproven().contains(name));
    let missing = question.hosts.iter().zip(nodes).filter(|(_, name)| !name.is_some_and(counts));
    let missing = missing.map(|(host, _)| {
        let found = fleet.find(host).filter(|(_, node)| node.record.is_some());
        let status =
            found.map(|(name, node)| node_rows::status(fleet, agents.activities(&RemoteActivities::new()), name, node));
        MissingHost {
            host: host.clone(),
            running: found.and_then(|(_, node)| node.running.first().cloned()),
            state: status.as_ref().map(|status| status.state),
            reason: status.and_then(|status| status.reason),
            not_counted: found
                .filter(|(_, node)| !question.recorded && !node.running.is_empty())
                .and_then(|(name, _)| not_counted_now(agents, fleet, name)),
        }
    });
    let missing: Vec<MissingHost> = missing.collect();
    VerifyHostsResponse {
        verified: missing.is_empty(),
        hosts: question.hosts.len(),
        missing,
        revision: fleet.revision,
        micros: 0,
    }
}

/// The node with this name or host name, if the version is the last that it validated.
fn node_at_version<'a>(
    fleet: &'a Fleet,
    at_version: Option<&'a HashSet<NodeName>>,
    host: &str,
) -> Option<&'a NodeName> {
    let nodes = at_version?;
    nodes.get(host).or_else(|| fleet.find(host).and_then(|(name, _)| nodes.get(name)))
}
