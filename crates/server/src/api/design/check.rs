//! What is wrong with a design, before anybody accepts it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use muster_wire::design::{Checked, DesignInput};

use super::AnyEnv;
use super::findings::told;
use crate::App;
use crate::api::answer::{JsonBody, Refusal};
use crate::design::work::lay_over;

/// Checks a design, laid over what is there. Changes nothing.
#[utoipa::path(post, path = "/v1/envs/{env}/design/check", params(("env" = String, Path)),
    request_body = DesignInput, responses((status = 200, body = Checked)))]
pub(crate) async fn check(
    State(app): State<App>,
    AnyEnv(env): AnyEnv,
    JsonBody(input): JsonBody<DesignInput>,
) -> Result<Json<Checked>, Refusal> {
    let next = lay_over(&app, &env, &Arc::new(input)).await?.next;
    Ok(Json(Checked {
        usable: next.is_usable(),
        findings: told(&next.findings),
        documents: next.design.written().count(),
        nodes: next.design.nodes().len(),
    }))
}
