//! Routes of the API, grouped by their users.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, Request};
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::trace::TraceLayer;
use utoipa::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use crate::app::{App, AppState};

use super::access::{AccessControl, check_access};
use super::error::REQUEST_ID;
use super::idempotency::IdempotencyKeys;
use super::{
    agents, audit, authority, backup, conditional, contract, data, design, drift, environments, error, idempotency,
    identity, login, logs, nodes, pauses, policies, releases, rollouts, runs, secrets, server, services, users,
    versions, viewer,
};

/// Largest body. A report with a full log is below 128 KiB; the names of 50,000 hosts are below this.
const BODY_LIMIT: usize = 2 * 1024 * 1024;

#[derive(OpenApi)]
#[openapi(info(
    title = "Muster",
    description = "Takes a fleet of machines from a written design to verified service. \
                   Errors are RFC 9457 problems with a stable `code`; mutations answer with the revision at which they \
                   are visible, and a reader may demand it with the header `Muster-Min-Revision`."
))]
struct Description;

/// Routes of all users, in the order of the document.
fn routes() -> OpenApiRouter<AppState> {
    let adders = [
        fleet_routes,
        rollout_routes,
        release_routes,
        design_routes,
        identity_routes,
        people_routes,
        agent_routes,
        replica_routes,
        server_routes,
    ];
    let router = OpenApiRouter::with_openapi(Description::openapi());
    adders.into_iter().fold(router, |router, add| add(router))
}

/// Adds the routes for operators of the fleet.
fn fleet_routes(router: OpenApiRouter<AppState>) -> OpenApiRouter<AppState> {
    router
        .routes(routes!(environments::list_environments))
        .routes(routes!(environments::show_environment, environments::destroy_environment))
        .routes(routes!(environments::environment_status))
        .routes(routes!(environments::wait_for_change))
        .routes(routes!(nodes::list_nodes))
        .routes(routes!(nodes::show_node))
        .routes(routes!(nodes::list_failures))
        .routes(routes!(nodes::lookup_key))
        .routes(routes!(nodes::show_self))
        .routes(routes!(nodes::show_self_value))
        .routes(routes!(nodes::show_own_self))
        .routes(routes!(nodes::show_own_self_value))
        .routes(routes!(services::list_services))
        .routes(routes!(runs::list_runs))
        .routes(routes!(drift::list_drift))
        .routes(routes!(runs::show_run))
        .routes(routes!(runs::request_run))
        .routes(routes!(runs::show_run_request))
        .routes(routes!(logs::show_log, logs::receive_log_piece).layer(DefaultBodyLimit::max(logs::BODY_LIMIT)))
        .routes(routes!(data::list_data))
        .routes(routes!(data::show_datum, data::set_datum, data::unset_datum))
        .routes(routes!(pauses::list_pauses, pauses::set_pause, pauses::end_pause))
        .routes(routes!(policies::list_policies))
        .routes(routes!(policies::set_policy, policies::end_policy))
}

/// Adds the routes for operators of versions and rollouts.
fn rollout_routes(router: OpenApiRouter<AppState>) -> OpenApiRouter<AppState> {
    router
        .routes(routes!(versions::show_current_version, versions::change_current_version))
        .routes(routes!(versions::list_running_versions))
        .routes(routes!(versions::list_version_hosts))
        .routes(routes!(versions::verify_hosts))
        .routes(routes!(rollouts::plan_rollout).layer(DefaultBodyLimit::max(rollouts::BODY_LIMIT)))
        .routes(
            routes!(rollouts::list_rollouts, rollouts::start_rollout)
                .layer(DefaultBodyLimit::max(rollouts::BODY_LIMIT)),
        )
        .routes(routes!(rollouts::show_rollout))
        .routes(routes!(rollouts::roll_back_rollout))
        .routes(routes!(rollouts::commands::pause))
        .routes(routes!(rollouts::commands::resume))
        .routes(routes!(rollouts::commands::abort))
        .routes(routes!(rollouts::commands::promote))
        .routes(routes!(rollouts::commands::skip))
        .routes(routes!(rollouts::commands::retry))
        .routes(routes!(rollouts::commands::list_slots))
        .routes(routes!(rollouts::commands::release_slot))
}

/// Adds the routes for authors of releases.
fn release_routes(router: OpenApiRouter<AppState>) -> OpenApiRouter<AppState> {
    router
        .routes(routes!(releases::list_releases))
        .routes(routes!(releases::show_release, releases::push_release))
        .routes(routes!(releases::bundles::show_bundle, releases::bundles::put_bundle))
        .routes(routes!(releases::show_trust, releases::replace_trusted_keys))
}

/// Adds the routes for authors of designs.
fn design_routes(router: OpenApiRouter<AppState>) -> OpenApiRouter<AppState> {
    router
        .routes(routes!(design::show_design))
        .routes(routes!(design::list_revisions))
        .routes(routes!(design::show_revision))
        .routes(routes!(design::diff_revisions))
        .routes(routes!(design::documents::list_documents))
        .routes(routes!(
            design::documents::show_document,
            design::documents::put_document,
            design::documents::delete_document
        ))
        .routes(routes!(design::nodes::list_design_nodes))
        .routes(routes!(design::nodes::show_design_node))
        .routes(routes!(design::apply::change_documents).layer(design_body_limit()))
        .routes(routes!(design::apply::check_design).layer(design_body_limit()))
        .routes(routes!(design::apply::plan_design).layer(design_body_limit()))
        .routes(routes!(design::apply::apply_design).layer(design_body_limit()))
        .routes(routes!(design::documents::list_schemas))
        .routes(routes!(design::documents::show_schema))
}

/// Adds the routes for machines that join, and for administrators of identities.
fn identity_routes(router: OpenApiRouter<AppState>) -> OpenApiRouter<AppState> {
    router
        .routes(routes!(authority::show_authority))
        .routes(routes!(authority::show_rotation, authority::rotate_authority, authority::cancel_rotation))
        .routes(routes!(identity::join).layer(DefaultBodyLimit::max(identity::BODY_LIMIT)))
        .routes(routes!(identity::renew).layer(DefaultBodyLimit::max(identity::BODY_LIMIT)))
        .routes(routes!(identity::list_tokens, identity::create_token))
        .routes(routes!(identity::delete_token))
        .routes(routes!(identity::list_certificates))
        .routes(routes!(identity::revoke_certificate))
}

/// Adds the routes for people, and for administrators of people.
fn people_routes(router: OpenApiRouter<AppState>) -> OpenApiRouter<AppState> {
    router
        .routes(routes!(login::show_login, login::log_in).layer(DefaultBodyLimit::max(login::BODY_LIMIT)))
        .routes(routes!(users::who_am_i))
        .routes(routes!(users::list_users, users::create_user))
        .routes(routes!(users::show_user, users::change_user))
        .routes(routes!(users::create_user_token))
        .routes(routes!(users::revoke_user_token))
        .routes(routes!(audit::list_audit))
        .routes(routes!(audit::list_environment_audit))
        .routes(routes!(audit::verify_audit))
}

/// Adds the routes for agents.
fn agent_routes(router: OpenApiRouter<AppState>) -> OpenApiRouter<AppState> {
    router
        .routes(routes!(agents::open_stream))
        .routes(routes!(agents::receive_report))
        .routes(routes!(agents::publish_activity))
        .routes(routes!(agents::desired_state))
        .routes(routes!(releases::bundles::download_bundle))
        .routes(routes!(releases::bundles::download_delta))
}

/// Adds the routes for other replicas.
fn replica_routes(router: OpenApiRouter<AppState>) -> OpenApiRouter<AppState> {
    router.routes(routes!(agents::list_activities)).routes(routes!(server::run_doctor_on_self))
}

/// Adds the routes for administrators of the server.
fn server_routes(router: OpenApiRouter<AppState>) -> OpenApiRouter<AppState> {
    router
        .routes(routes!(server::run_doctor))
        .routes(routes!(backup::download_backup))
        .routes(routes!(backup::restore_backup))
        .routes(routes!(secrets::show_secrets))
        .routes(routes!(secrets::rotate_secrets))
        .routes(routes!(server::healthz))
        .routes(routes!(server::readyz))
        .routes(routes!(server::show_metrics))
        .routes(routes!(server::openapi_document))
        .routes(routes!(viewer::show_docs))
}

fn design_body_limit() -> DefaultBodyLimit {
    DefaultBodyLimit::max(design::BODY_LIMIT)
}

/// OpenAPI document of the API. Checked in as `docs/openapi.json`.
pub fn openapi() -> serde_json::Value {
    contract::complete(serde_json::to_value(routes().into_openapi()).unwrap_or_default())
}

pub(crate) fn router(app: App, access: Arc<AccessControl>) -> Router {
    let id = HeaderName::from_static(REQUEST_ID);
    let document = openapi();
    let tagged = Arc::new(contract::tagged_routes(&document));
    let span = |request: &Request<axum::body::Body>| {
        let id = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
        tracing::debug_span!("request", method = %request.method(), path = request.uri().path(), id)
    };
    let keys = IdempotencyKeys::new(app.clone(), &document);
    let (router, _) = routes().split_for_parts();
    router
        .fallback(error::not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(axum::middleware::from_fn_with_state(keys, idempotency::execute_once))
        .layer(axum::middleware::from_fn_with_state(tagged, conditional::tag_response))
        .layer(axum::middleware::from_fn_with_state(access, check_access))
        .layer(axum::middleware::from_fn(error::add_request_id))
        .layer(PropagateRequestIdLayer::new(id.clone()))
        .layer(TraceLayer::new_for_http().make_span_with(span))
        .layer(SetRequestIdLayer::new(id, MakeRequestUuid))
        .layer(axum::middleware::map_request(error::drop_invalid_request_id))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(Arc::new(app))
}
