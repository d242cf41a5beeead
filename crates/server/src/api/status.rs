//! One screen of an environment.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use muster_core::standing::Word;
use muster_wire::operator::{BLOCKERS, EnvironmentStatus, NodeRow};

use crate::App;
use crate::rows;

use super::answer::Refusal;
use super::scope::Scope;

/// What the environment should run, how many nodes stand where, who blocks and why.
#[utoipa::path(get, path = "/v1/envs/{env}/status", params(("env" = String, Path)),
    responses((status = 200, body = EnvironmentStatus)))]
pub(crate) async fn show(State(app): State<App>, scope: Scope) -> Result<Json<EnvironmentStatus>, Refusal> {
    let held_domains = app.liveness.held(&scope.env);
    let elsewhere = app.activities_elsewhere(&scope.env, None).await;
    let store_unreachable_since = app.membership.store_unreachable_since();
    let status = scope.ask(&app, |fleet| {
        let rows = rows::all(fleet, app.agents(&elsewhere));
        let mut counts: BTreeMap<Word, usize> = BTreeMap::new();
        rows.iter().for_each(|row| *counts.entry(row.standing).or_default() += 1);
        let nodes = rows.len();
        let mut blockers: Vec<NodeRow> = rows.into_iter().filter(|row| row.why.is_some()).collect();
        let blocked = blockers.len();
        blockers.sort_by_key(|row| urgency(row.standing));
        blockers.truncate(BLOCKERS);
        let desired = fleet.desired();
        EnvironmentStatus {
            env: fleet.env.clone(),
            revision: fleet.revision,
            generation: desired.as_ref().map(|desired| desired.generation),
            desired: desired.map(|desired| desired.version),
            nodes,
            counts,
            running: fleet.running().iter().map(|(version, nodes)| (version.clone(), nodes.len())).collect(),
            blockers,
            blocked,
            held_domains,
            unreadable: fleet.unreadable().clone(),
            store_unreachable_since,
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
        Word::Provisioning | Word::Applying | Word::Validating | Word::Validated => 4,
    }
}
