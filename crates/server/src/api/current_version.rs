//! What the environment should run.

use axum::Json;
use axum::extract::State;
use muster_core::keys::Keys;
use muster_core::names::Version;
use muster_core::records::AllowOlder;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::{Outcome, StoreError};
use muster_wire::operator::{CurrentVersion, TriggerUpdate, UpdateTriggered};
use muster_wire::problem::{Code, Problem};

use crate::App;
use crate::design::revise::accepts;

use super::answer::{JsonBody, Refusal};
use super::releases;
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

/// Moves the whole fleet to a version. Asking for the version that it should run already changes nothing.
///
/// A release with a lower serial than that of the current one is refused with 409, unless `allow_older` says that it is
/// meant: then the nodes are told that they may go back.
#[utoipa::path(put, path = "/v1/envs/{env}/current-version", params(("env" = String, Path)),
    request_body = TriggerUpdate, responses((status = 200, body = UpdateTriggered)))]
pub(crate) async fn change(
    State(app): State<App>,
    scope: Scope,
    JsonBody(TriggerUpdate { version: to, allow_older, at_once: _, by }): JsonBody<TriggerUpdate>,
) -> Result<Json<UpdateTriggered>, Refusal> {
    // Decided on what the store has acknowledged: a view that lags by a moment would take the version before the last
    // change for the current one, and answer that there is nothing to do.
    let newest = app.newest.revision().await?;
    app.view.reach(newest).await?;
    let (accepted, current, release, known) = scope.ask(&app, |fleet| {
        let current = fleet.current_version().map(|(version, at)| (version.clone(), at));
        let known: Vec<String> = fleet.releases().keys().map(Version::to_string).collect();
        let state = Choice {
            serial: fleet.current_version().and_then(|(version, _)| Some(fleet.releases().get(version)?.serial)),
            allowed: fleet.desired().is_some_and(|desired| desired.allow_older),
        };
        (accepts(fleet), current.map(|current| (current, state)), fleet.releases().get(&to).cloned(), known)
    })?;
    accepted?;
    let Some(release) = release else { return Err(Refusal::unknown_version(&to, &known)) };
    // A fleet that is sent to what nobody can download would fail, node by node.
    let digest = releases::download::digest_in(&release, &to)?;
    releases::download::open(&app, &to, &digest).await?;
    let (current, choice) = current.unzip();
    let (from, at) = current.unzip();
    let Choice { serial, allowed } = choice.unwrap_or_default();
    match (&from, serial) {
        (Some(from), Some(serial)) if release.serial < serial && !allow_older => {
            return Err(older(from, serial, &to, release.serial));
        }
        (_, _) => {}
    }
    // Who asks again with the permission adds it; who asks again without does not take it away.
    if from.as_ref() == Some(&to) && (allowed || !allow_older) {
        let revision = app.view.revision().unwrap_or_default();
        return Ok(Json(UpdateTriggered { from, to, changed: false, rollout: None, revision }));
    }
    let key = Keys::of(&scope.env).current_version();
    let going = Guard::Absent { key: Keys::of(&scope.env).destroying() };
    // With the version, in one transaction: the permission is for this choice, and for no later one.
    let permission = Keys::of(&scope.env).allow_older();
    let permission = if allow_older {
        let allowed = Op::put_json(permission, &AllowOlder { version: to.clone(), by });
        allowed.map_err(|error| Refusal(Problem::new(Code::Internal, error.to_string())))?
    } else {
        Op::delete(permission)
    };
    let txn = Txn::new().guard(going).guard(Guard::seen(key.clone(), at)).op(Op::put(key, to.as_str())).op(permission);
    let revision = match app.store.commit(txn).await {
        Ok(Outcome::Committed { revision }) => revision,
        Ok(Outcome::Refused { .. }) => {
            let problem = Problem::new(Code::Conflict, "someone else changed the version at the same moment");
            return Err(Refusal(problem.hint("look at `muster current-version`, then decide again")));
        }
        Err(error @ StoreError::Unknown { .. }) => read_back(&app, &scope, &to, at).await?.ok_or(error)?,
        Err(error) => return Err(error.into()),
    };
    tracing::info!(env = %scope.env, from = from.as_ref().map(Version::as_str), to = %to, "version triggered");
    // Whoever asks this server next sees it.
    app.view.reach(revision).await?;
    Ok(Json(UpdateTriggered { from, to, changed: true, rollout: None, revision }))
}

/// What is known of the version that the environment should run.
#[derive(Clone, Copy, Default)]
struct Choice {
    serial: Option<u64>,
    /// Whether nodes may go back to it.
    allowed: bool,
}

fn older(from: &Version, newer: u64, to: &Version, serial: u64) -> Refusal {
    let text = format!("{to} has serial {serial}, and {from}, which the environment should run, has {newer}");
    let hint = "nodes do not go back by themselves; if it is meant, say so with --allow-older";
    Refusal(Problem::new(Code::OlderRelease, text).hint(hint))
}

/// The revision at which the version became what was asked for, after the store did not say whether it did. None if it
/// is as it was before: the change may still be on its way, and nobody can say more.
async fn read_back(
    app: &App,
    scope: &Scope,
    to: &Version,
    before: Option<Revision>,
) -> Result<Option<Revision>, Refusal> {
    app.view.reach(app.newest.revision().await?).await?;
    scope.ask(app, |fleet| {
        let (version, at) = fleet.current_version()?;
        (version == to && Some(at) > before).then_some(at)
    })
}
