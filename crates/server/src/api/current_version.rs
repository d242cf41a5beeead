//! What the environment should run.

use std::hash::{BuildHasher, RandomState};

use axum::Json;
use axum::extract::State;
use muster_core::fleet::Fleet;
use muster_core::names::Version;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::Phase;
use muster_rollout::executor::{AlreadyThere, Begun, Outset};
use muster_rollout::start::Starting;
use muster_wire::operator::{CurrentVersion, TriggerUpdate, UpdateTriggered};
use muster_wire::rollout::{PlanRequest, Start};

use crate::App;
use crate::design::revise::accepts;

use super::answer::{JsonBody, Refusal};
use super::design::Author;
use super::rollouts::start::{begin_downloadable, by_whom};
use super::scope::Scope;

/// The version that the environment should run.
#[utoipa::path(get, path = "/v1/envs/{env}/current-version", params(("env" = String, Path)),
    responses((status = 200, body = CurrentVersion)))]
pub(crate) async fn show(State(app): State<App>, scope: Scope) -> Result<Json<CurrentVersion>, Refusal> {
    let current = scope.ask(&app, |fleet| CurrentVersion {
        version: fleet.current_version().map(|(version, _)| version.clone()),
        generation: fleet.desired().map(|desired| desired.generation),
        revision: fleet.revision,
    })?;
    Ok(Json(current))
}

/// Starts a rollout to a version, in the environment's own way; with `at_once`, everybody moves in one transaction, in place
/// of whatever is under way. Asking for the version that is under way, or that it should run already, changes nothing.
///
/// A release with a lower serial than that of the current one is refused with 409, unless `allow_older` says that it is
/// meant: then the nodes are told that they may go back.
#[utoipa::path(put, path = "/v1/envs/{env}/current-version", params(("env" = String, Path)),
    request_body = TriggerUpdate, responses((status = 200, body = UpdateTriggered)))]
pub(crate) async fn change(
    State(app): State<App>,
    scope: Scope,
    author: Author,
    JsonBody(update): JsonBody<TriggerUpdate>,
) -> Result<Json<UpdateTriggered>, Refusal> {
    // Decided on what the store has acknowledged: a view that lags by a moment would take the version before the last
    // change for the current one, and answer that there is nothing to do.
    let newest = app.latest_revision.read().await?;
    app.view.reach(newest).await?;
    let (accepted, already, known) = scope.ask(&app, |fleet| {
        let known = (!fleet.releases().contains_key(&update.version))
            .then(|| fleet.releases().keys().map(Version::to_string).collect::<Vec<_>>());
        (accepts(fleet), is_so_already(fleet, &update), known)
    })?;
    accepted?;
    if let Some(known) = known {
        return Err(Refusal::unknown_version(&update.version, &known));
    }
    let TriggerUpdate { version: to, allow_older, at_once, by } = update;
    if let Some(rollout) = already {
        let revision = app.view.revision().unwrap_or_default();
        return Ok(Json(UpdateTriggered { from: Some(to.clone()), to, changed: false, rollout, revision }));
    }
    let by = by_whom(author, by);
    // Made up here: each time that somebody asks is another one. It is found again after an unknown outcome.
    let request = format!("trigger-{}", RandomState::new().hash_one((app.clock.now().as_nanosecond(), &by)));
    // At once is for emergencies: it takes the place of whatever is under way.
    let starting = Starting { request, by, supersede: at_once };
    let asked = PlanRequest { allow_older, at_once, ..PlanRequest::to(to) };
    Ok(Json(match begin_downloadable(&app, &scope, Start::Now(asked), starting).await? {
        Outset::Begun(Begun { id, from, to, changed, revision, .. }) => {
            UpdateTriggered { from, to, changed, rollout: Some(id), revision }
        }
        Outset::Nothing(AlreadyThere { to, by, revision, .. }) => {
            UpdateTriggered { from: Some(to.clone()), to, changed: false, rollout: by, revision }
        }
    }))
}

/// Whether the environment is where it should be, or on its way there as it is asked for; by which rollout, if there was one.
fn is_so_already(fleet: &Fleet, update: &TriggerUpdate) -> Option<Option<RolloutId>> {
    let desired = fleet.desired().filter(|desired| desired.version == update.version)?;
    // Who asks again with the permission adds it; who asks again without does not take it away.
    if update.allow_older && !desired.allow_older {
        return None;
    }
    let Some((record, _)) = fleet.deciding_rollout() else { return Some(None) };
    let is_on_its_way = match &record.phase {
        // Somebody who wants it at once does not want to wait for the waves.
        Phase::Running | Phase::Paused { .. } => record.at_once || !update.at_once,
        Phase::Completed => !update.at_once || record.skipped.is_empty(),
        Phase::Aborted { .. } | Phase::RolledBack { .. } | Phase::Superseded { .. } => false,
    };
    (record.to == update.version && is_on_its_way).then_some(Some(record.id))
}
