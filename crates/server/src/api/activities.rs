//! What the agents of this replica do, for the other replicas.

use axum::Json;
use axum::extract::{Query, State};
use muster_core::names::NodeName;
use muster_core::standing::Activity;
use muster_wire::operator::Page;
use muster_wire::replica::AgentActivity;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::App;
use crate::agents::Session;

use super::answer::Refusal;
use super::scope::Scope;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct NodeQuery {
    /// Only this node, with what its last run looked up.
    #[param(value_type = Option<String>)]
    node: Option<NodeName>,
}

/// What the agents do that are connected to this replica, those that do something. Nobody else is asked for it.
#[utoipa::path(get, path = "/v1/envs/{env}/activities", params(("env" = String, Path), NodeQuery),
    responses((status = 200, body = Page<AgentActivity>)))]
pub(crate) async fn list(
    State(app): State<App>,
    scope: Scope,
    query: Result<Query<NodeQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Page<AgentActivity>>, Refusal> {
    let Query(NodeQuery { node }) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    let items: Vec<AgentActivity> = match node {
        Some(node) => app.hub.session(&scope.env, &node).iter().map(|session| told(&app, session, true)).collect(),
        None => {
            let all = app.hub.sessions(&scope.env);
            let told = all.iter().map(|session| told(&app, session, false));
            told.filter(|told| told.doing != Activity::Idle).collect()
        }
    };
    Ok(Json(Page { items, next: None, revision: app.view.revision().unwrap_or_default() }))
}

fn told(app: &App, session: &Session, whole: bool) -> AgentActivity {
    let doing = session.activity();
    let (lookups, asked) = if whole {
        let asked = app.hub.live_logs.asked(&session.env, &session.node);
        (session.looked_up(), asked)
    } else {
        (Vec::new(), Vec::new())
    };
    AgentActivity { node: session.node.clone(), doing, lookups, asked }
}
