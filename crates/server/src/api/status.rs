//! One screen of an environment.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Query, State};
use muster_core::names::Version;
use muster_core::pause::Paused;
use muster_core::standing::Word;
use muster_wire::operator::{BLOCKERS, EnvironmentStatus, NodeRow};

use crate::App;
use crate::rollouts::shown;
use crate::view::{node_fields, node_rows};

use super::answer::Refusal;
use super::filter::FilterQuery;
use super::scope::Scope;

/// What the environment should run, how many nodes stand where, who blocks and why; of all nodes, or of those that a
/// filter chooses.
#[utoipa::path(get, path = "/v1/envs/{env}/status", params(("env" = String, Path), FilterQuery),
    responses((status = 200, body = EnvironmentStatus)))]
pub(crate) async fn show(
    State(app): State<App>,
    scope: Scope,
    Query(filter): Query<FilterQuery>,
) -> Result<Json<EnvironmentStatus>, Refusal> {
    let filter = filter.read(&node_fields::KEYS)?;
    let now = app.clock.now();
    let held_domains = app.liveness.held(&scope.env);
    let elsewhere = app.activities_elsewhere(&scope.env, None).await;
    let plan = shown::deciding_plan(&app, &scope.env).await;
    let store_unreachable_since = app.membership.store_unreachable_since();
    let status = scope.ask(&app, |fleet| {
        let rows = node_rows::chosen(fleet, app.agents(&elsewhere), &filter);
        let mut counts: BTreeMap<Word, usize> = BTreeMap::new();
        rows.iter().for_each(|row| *counts.entry(row.standing).or_default() += 1);
        // What leaves says nothing about the fleet that stays.
        let (mut leaving, rows): (Vec<NodeRow>, Vec<NodeRow>) =
            rows.into_iter().partition(|row| row.standing == Word::Leaving);
        leaving.truncate(BLOCKERS);
        let nodes = rows.len();
        let mut running: BTreeMap<Version, usize> = BTreeMap::new();
        rows.iter().filter_map(|row| row.running.clone()).for_each(|version| *running.entry(version).or_default() += 1);
        let mut blockers: Vec<NodeRow> = rows.into_iter().filter(|row| row.why.is_some()).collect();
        let blocked = blockers.len();
        blockers.sort_by_key(|row| urgency(row.standing));
        blockers.truncate(BLOCKERS);
        let lasting = fleet.pauses().iter().filter(|(_, (pause, _))| !pause.is_over(now));
        let pauses = lasting.map(|(of, (pause, _))| Paused { scope: of.clone(), pause: pause.clone() }).collect();
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
            leaving,
            pauses,
            held_domains,
            unreadable: fleet.unreadable().clone(),
            store_unreachable_since,
            rollout: shown::brief(&app, fleet, plan.as_deref()),
            filter: (!filter.is_empty()).then(|| filter.to_string()),
        }
    })?;
    Ok(Json(status))
}

/// What needs a person comes before what goes on by itself.
fn urgency(word: Word) -> u8 {
    match word {
        Word::Failed | Word::Invalid | Word::Unprovisioned | Word::Blocked => 0,
        Word::Silent => 1,
        Word::Pending => 2,
        Word::Outdated | Word::Configured => 3,
        Word::Provisioning | Word::Applying | Word::Validating | Word::Validated | Word::Leaving => 4,
    }
}
