//! Rollouts are undone.

use axum::Json;
use axum::extract::{Path, State};
use muster_core::rollout::record::Halt;
use muster_rollout::executor::RollBack;
use muster_rollout::start::Starting;
use muster_wire::rollout::{Operate, Started};

use super::RolloutPath;
use super::operate::one_line;
use super::start::{by_whom, request_id, started};
use crate::App;
use crate::api::answer::{JsonBody, Refusal};
use crate::api::design::Author;
use crate::api::scope::Scope;
use crate::rollouts::asked::roll_back;

/// Goes back to the last version that a whole rollout has validated, through the same engine and budgets.
///
/// A rollout that is itself the way back from another one is refused with 409, unless `undo_rollback` says that it is meant:
/// who asks twice must not be taken to what was left.
#[utoipa::path(post, path = "/v1/envs/{env}/rollouts/{id}/rollback",
    params(("env" = String, Path), ("id" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = Operate, responses((status = 200, body = Started)))]
pub(crate) async fn begin(
    State(app): State<App>,
    scope: Scope,
    Path(path): Path<RolloutPath>,
    author: Author,
    JsonBody(operate): JsonBody<Operate>,
) -> Result<Json<Started>, Refusal> {
    let id = path.id(&app, &scope)?;
    let (by, reason) = (by_whom(author, operate.by), one_line(&operate.reason));
    let why = Halt::by_operator(by.clone(), reason);
    let starting = Starting { request: request_id(&operate.request)?, by, supersede: false };
    let wish = RollBack::new(id, starting, why).undoing(operate.undo_rollback);
    Ok(Json(started(roll_back(&app, &scope.env, wish).await?)))
}
