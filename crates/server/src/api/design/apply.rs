//! Applying a design.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use muster_wire::design::{Applied, ApplyDesign};

use super::findings::told;
use super::{AnyEnv, Author};
use crate::App;
use crate::api::answer::{JsonBody, Refusal};
use crate::design::work;

/// Makes a new revision of what is sent, and has the nodes follow it: exactly as planned, if a plan is given. Answers when
/// the nodes have been told. An environment that is not there yet begins.
/// That no node would be left is refused, unless the request says that it is meant.
#[utoipa::path(post, path = "/v1/envs/{env}/design/apply", params(("env" = String, Path)),
    request_body = ApplyDesign, responses((status = 200, body = Applied)))]
pub(crate) async fn apply(
    State(app): State<App>,
    AnyEnv(env): AnyEnv,
    author: Author,
    JsonBody(ApplyDesign { design, message, author: named, plan, remove_all }): JsonBody<ApplyDesign>,
) -> Result<Json<Applied>, Refusal> {
    let by = author.by(named, &message);
    let terms = work::Terms { shown: plan.as_ref(), remove_all };
    let done = work::apply(&app, &env, &Arc::new(design), terms, &by).await?;
    let work::Done { number, changed, plan, next, followed, revision } = done;
    Ok(Json(Applied { design: number, changed, plan, followed, findings: told(&next.findings), revision }))
}
