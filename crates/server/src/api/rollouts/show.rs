//! One rollout, now or as soon as something of it has changed.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use muster_core::fleet::{Fleet, Node};
use muster_core::rollout::RolloutId;
use muster_core::txn::Revision;
use muster_wire::operator::LONGEST_WAIT;
use muster_wire::rollout::RolloutStatus;
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout_at};
use utoipa::IntoParams;

use super::{RolloutPath, unknown};
use crate::App;
use crate::api::answer::Refusal;
use crate::api::scope::Scope;
use crate::rollouts::{outcome, shown};

/// What happens together is shown together.
const PACE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShowQuery {
    /// Answer when something of it is newer than this revision, or when the time is over.
    after: Option<u64>,
    /// How long to wait for that; at most 60 s.
    #[serde(default)]
    wait_seconds: u64,
    /// Numbers alone, without the nodes of each wave.
    #[serde(default)]
    numbers: bool,
}

/// How a rollout stands: the waves with their nodes, what holds it up, who has failed and why.
#[utoipa::path(get, path = "/v1/envs/{env}/rollouts/{id}",
    params(("env" = String, Path), ("id" = String, Path, description = "Its number, or `active`."), ShowQuery),
    responses((status = 200, body = RolloutStatus)))]
pub(crate) async fn show(
    State(app): State<App>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    query: Result<Query<ShowQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<RolloutStatus>, Refusal> {
    let Query(ShowQuery { after, wait_seconds, numbers }) =
        query.map_err(|error| Refusal::invalid(error.body_text()))?;
    let deadline = Instant::now() + Duration::from_secs(wait_seconds.min(LONGEST_WAIT));
    let mut steps = app.view.subscribe();
    // The same one to the end, also when another one becomes the active one meanwhile.
    let id = path.id(&app, &scope)?;
    loop {
        steps.mark_unchanged();
        let changed = scope.ask(&app, |fleet| after.is_none_or(|after| changed_at(fleet, id) > Revision(after)))?;
        if changed || Instant::now() >= deadline {
            return Ok(Json(status(&app, &scope, id, numbers).await?));
        }
        tokio::select! {
            _ = timeout_at(deadline, steps.changed()) => {}
            () = app.hub.stopping() => return Err(Refusal::stopping()),
        }
        sleep(PACE).await;
    }
}

async fn status(app: &App, scope: &Scope, id: RolloutId, numbers: bool) -> Result<RolloutStatus, Refusal> {
    let digests = scope.ask(app, |fleet| {
        let (record, _) = fleet.rollouts().get(&id)?;
        // While it decides what nodes run, what they say now is newer.
        let governs = fleet.active_rollout().is_some_and(|(active, _)| active.id == id);
        Some((record.plan.clone(), record.outcome.clone().filter(|_| !governs)))
    })?;
    let (plan, outcome) = digests.ok_or_else(|| unknown(id))?;
    let plan = app.plans.get(&plan).await;
    let outcome = match outcome {
        Some(digest) => outcome::read(app, digest).await,
        None => None,
    };
    let status = scope.ask(app, |fleet| {
        let (record, at) = fleet.rollouts().get(&id)?;
        Some(shown::status(app, fleet, (record, *at), &plan, outcome, numbers))
    })?;
    status.ok_or_else(|| unknown(id))
}

/// When something that a rollout is shown by was last written.
fn changed_at(fleet: &Fleet, id: RolloutId) -> Revision {
    let own = fleet.rollouts().get(&id).map(|(_, at)| *at);
    let active = fleet.active_rollout().map(|(_, at)| at);
    let nodes = fleet.designed().filter_map(|(_, node, _)| node_changed_at(node)).max();
    own.into_iter().chain(active).chain(nodes).max().unwrap_or_default()
}

fn node_changed_at(node: &Node) -> Option<Revision> {
    let observed = node.observed.as_ref().map(|(_, at)| *at);
    let desired = node.desired.as_ref().map(|(_, at)| *at);
    let presence = node.presence.as_ref().map(|(_, at)| *at);
    [observed, desired, presence, node.record_at].into_iter().flatten().max()
}
