//! HTTP handlers for versions: the current version of an environment, the versions that nodes validated, and
//! verification of hosts.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use muster_core::fleet::Fleet;
use muster_core::names::{NodeName, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::RolloutPhase;
use muster_rollout::executor::{AlreadyAtVersion, StartOutcome, StartedRollout};
use muster_rollout::start::StartOptions;
use muster_wire::operator::{
    CurrentVersion, MAX_WAIT_SECONDS, MissingHost, Page, RunningVersionRow, TriggerUpdate, UpdateResponse,
    VerifyHostsRequest, VerifyHostsResponse,
};
use muster_wire::rollout::{PlanRequest, StartTarget};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use crate::api::error::{ApiError, JsonBody, chain};
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
    State(writer): State<Writer>,
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
    Ok(Json(match begin_downloadable(&writer, &agents, &scope, StartTarget::Now(request), starting).await? {
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

/// Lists the versions that nodes have validated.
#[utoipa::path(get, path = "/v1/envs/{env}/running-versions", params(("env" = String, Path)),
    responses((status = 200, body = Page<RunningVersionRow>)))]
pub(crate) async fn list_running_versions(
    State(reader): State<Reader>,
    scope: Scope,
) -> Result<Json<Page<RunningVersionRow>>, ApiError> {
    let page = scope.read(&reader, |fleet| {
        let rows = fleet.running().iter();
        let items = rows.map(|(version, nodes)| RunningVersionRow { version: version.clone(), nodes: nodes.len() });
        Page { items: items.collect(), next: None, revision: fleet.revision }
    })?;
    Ok(Json(page))
}

/// Lists the nodes that have validated a version.
#[utoipa::path(get, path = "/v1/envs/{env}/running-versions/{version}/hosts",
    params(("env" = String, Path), ("version" = String, Path), PageQuery),
    responses((status = 200, body = Page<String>)))]
pub(crate) async fn list_version_hosts(
    State(reader): State<Reader>,
    scope: Scope,
    path: Result<Path<RunningVersionPath>, axum::extract::rejection::PathRejection>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<String>>, ApiError> {
    let Path(RunningVersionPath { version }) = path.map_err(|error| ApiError::invalid(error.body_text()))?;
    let (mut nodes, revision) = scope.read(&reader, |fleet| {
        let nodes: Vec<NodeName> = fleet.running().get(&version).into_iter().flatten().cloned().collect();
        (nodes, fleet.revision)
    })?;
    nodes.sort_by(|a, b| a.natural().cmp(&b.natural()));
    Ok(Json(page.cut(nodes.into_iter().map(String::from).collect(), revision, String::clone)?))
}

/// Verifies that hosts run a version, and lists those that do not with the reason. Never answered from a stale view.
#[utoipa::path(post, path = "/v1/envs/{env}/verify-hosts", params(("env" = String, Path)),
    request_body = VerifyHostsRequest, responses((status = 200, body = VerifyHostsResponse)))]
pub(crate) async fn verify_hosts(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    body: Bytes,
) -> Result<Json<VerifyHostsResponse>, ApiError> {
    let begin = Instant::now();
    let question: VerifyHostsRequest =
        serde_json::from_slice(&body).map_err(|error| ApiError::invalid(chain(&error)))?;
    if question.hosts.is_empty() {
        return Err(ApiError::invalid("no hosts were given, so there is nothing to verify"));
    }
    let parsing = begin.elapsed();
    let deadline = begin + Duration::from_secs(question.wait_seconds.min(MAX_WAIT_SECONDS));
    let mut steps = reader.view.subscribe();
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
        let deciding = Instant::now();
        let mut answer = scope.read(&reader, |fleet| verify_once(&agents, fleet, &question))?;
        answer.micros = u64::try_from((parsing + deciding.elapsed()).as_micros()).unwrap_or(u64::MAX);
        if answer.verified || Instant::now() >= deadline {
            return Ok(Json(answer));
        }
        tokio::select! {
            // At the deadline the hosts are checked once more, and the result is returned.
            _ = timeout_at(deadline, steps.changed()) => {}
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
    let proven = |host: &str| runs_version(fleet, at_version, host) && !is_late(host);
    let missing: Vec<&String> = question.hosts.iter().filter(|host| !proven(host)).collect();
    let missing = missing.into_iter().map(|host| {
        let found = fleet.find(host).filter(|(_, node)| node.record.is_some());
        let status =
            found.map(|(name, node)| node_rows::status(fleet, agents.activities(&RemoteActivities::new()), name, node));
        MissingHost {
            host: host.clone(),
            running: found.and_then(|(_, node)| node.running.first().cloned()),
            state: status.as_ref().map(|status| status.state),
            reason: status.and_then(|status| status.reason),
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

fn runs_version(fleet: &Fleet, at_version: Option<&HashSet<NodeName>>, host: &str) -> bool {
    let Some(nodes) = at_version else { return false };
    nodes.contains(host) || (host.contains('-') && fleet.find(host).is_some_and(|(name, _)| nodes.contains(name)))
}
