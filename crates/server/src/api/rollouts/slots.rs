//! The nodes that use the budget of the rollout up.

use axum::Json;
use axum::extract::{Path, State};
use muster_rollout::operate::Command;
use muster_wire::operator::Page;
use muster_wire::problem::{Code, Problem};
use muster_wire::rollout::{Operate, Operated, SlotRow};
use serde::Deserialize;

use super::active;
use super::operate::{Words, named, word_id};
use super::start::by_whom;
use crate::App;
use crate::api::answer::{JsonBody, Refusal, chain};
use crate::api::design::Author;
use crate::api::scope::Scope;
use crate::rollouts::shown;

/// Lists the nodes that were granted something and are not healthy yet: who holds a slot, since when, until when.
#[utoipa::path(get, path = "/v1/envs/{env}/rollouts/slots", params(("env" = String, Path)),
    responses((status = 200, body = Page<SlotRow>)))]
pub(crate) async fn list(State(app): State<App>, scope: Scope) -> Result<Json<Page<SlotRow>>, Refusal> {
    let digest = scope.ask(&app, |fleet| fleet.deciding_rollout().map(|(record, _)| record.plan.clone()))?;
    let plan = match digest {
        None => None,
        Some(digest) => {
            let unreadable = |error| Refusal(Problem::new(Code::DesignUnreadable, chain(&error)));
            Some(app.plans.get(&digest).await.map_err(unreadable)?)
        }
    };
    let page = scope.ask(&app, |fleet| {
        let deciding = fleet.deciding_rollout().zip(plan.as_ref());
        let items = deciding.map(|((record, _), plan)| shown::slots(&app, fleet, record, plan)).unwrap_or_default();
        Page { items, next: None, revision: fleet.revision }
    })?;
    Ok(Json(page))
}

#[derive(Debug, Deserialize)]
pub(crate) struct SlotPath {
    node: String,
}

/// Lets a node no longer count for the budget, though it is not well: somebody knows better.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/slots/{node}/release",
    params(("env" = String, Path), ("node" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = Operate, responses((status = 200, body = Operated)))]
pub(crate) async fn release(
    State(app): State<App>,
    scope: Scope,
    Path(SlotPath { node }): Path<SlotPath>,
    author: Author,
    JsonBody(operate): JsonBody<Operate>,
) -> Result<Json<Operated>, Refusal> {
    let id = active(&app, &scope)?;
    let nodes = vec![named(&app, &scope, &node)?];
    let request = word_id(&operate.request)?;
    let words = Words { by: by_whom(author, operate.by), app, scope, id, nodes, request };
    words.say_of_each(|node| Command::Release { node }).await
}
