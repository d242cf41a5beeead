//! What there is, and who it is for.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, Request};
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::trace::TraceLayer;
use utoipa::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use crate::App;

use super::{
    activities, activity, answer, asked, backup, current_version, data, design, desired, doctor, environment,
    environments, failures, fleet_runs, health, log, lookup, metrics, nodes, pauses, releases, reports, rollouts,
    running_versions, runs, schemas, status, sync, verify_hosts,
};

/// A report with a whole log is below 128 KiB; the names of 50,000 hosts are below this.
const BODY_LIMIT: usize = 2 * 1024 * 1024;

#[derive(OpenApi)]
#[openapi(info(
    title = "Muster",
    description = "Takes a fleet of machines from a written design to verified service. \
                   Errors are RFC 9457 problems with a stable `code`; mutations answer with the revision at which they \
                   are visible, and a reader may demand it with the header `Muster-Min-Revision`."
))]
struct Description;

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Description::openapi())
        // For operators.
        .routes(routes!(environments::list))
        .routes(routes!(environment::show, environment::destroy))
        .routes(routes!(status::show))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::show))
        .routes(routes!(runs::show))
        .routes(routes!(asked::ask))
        .routes(routes!(asked::show))
        .routes(routes!(fleet_runs::list))
        .routes(routes!(fleet_runs::groups))
        .routes(routes!(log::show, log::take).layer(DefaultBodyLimit::max(log::BODY_LIMIT)))
        .routes(routes!(current_version::show, current_version::change))
        .routes(routes!(rollouts::plan::plan).layer(DefaultBodyLimit::max(rollouts::BODY_LIMIT)))
        .routes(
            routes!(rollouts::list::list, rollouts::start::start).layer(DefaultBodyLimit::max(rollouts::BODY_LIMIT)),
        )
        .routes(routes!(rollouts::show::show))
        .routes(routes!(rollouts::operate::pause))
        .routes(routes!(rollouts::operate::resume))
        .routes(routes!(rollouts::operate::abort))
        .routes(routes!(rollouts::operate::promote))
        .routes(routes!(rollouts::operate::skip))
        .routes(routes!(rollouts::operate::retry))
        .routes(routes!(rollouts::rollback::begin))
        .routes(routes!(rollouts::slots::list))
        .routes(routes!(rollouts::slots::release))
        .routes(routes!(running_versions::list))
        .routes(routes!(running_versions::hosts))
        .routes(routes!(verify_hosts::verify))
        .routes(routes!(failures::list))
        .routes(routes!(data::list))
        .routes(routes!(data::show, data::set, data::unset))
        .routes(routes!(pauses::list, pauses::set, pauses::end))
        .routes(routes!(lookup::show))
        // For those who make releases.
        .routes(routes!(releases::bundles::show, releases::bundles::put))
        .routes(routes!(releases::list::list))
        .routes(routes!(releases::release::show, releases::release::push))
        .routes(routes!(releases::trust::show, releases::trust::replace))
        // For those who write designs.
        .routes(routes!(design::summary::show))
        .routes(routes!(design::revisions::list))
        .routes(routes!(design::revisions::show))
        .routes(routes!(design::diff::show))
        .routes(routes!(design::documents::list))
        .routes(routes!(design::document::show, design::document::put, design::document::delete))
        .routes(routes!(design::nodes::list))
        .routes(routes!(design::node::show))
        .routes(routes!(design::changes::change).layer(whole_designs()))
        .routes(routes!(design::check::check).layer(whole_designs()))
        .routes(routes!(design::plan::show).layer(whole_designs()))
        .routes(routes!(design::apply::apply).layer(whole_designs()))
        .routes(routes!(schemas::list))
        .routes(routes!(schemas::show))
        // For agents.
        .routes(routes!(sync::open))
        .routes(routes!(reports::take))
        .routes(routes!(activity::say))
        .routes(routes!(desired::show))
        .routes(routes!(releases::download::show))
        // For the other replicas.
        .routes(routes!(activities::list))
        // For whoever looks after the server.
        .routes(routes!(doctor::examine))
        .routes(routes!(doctor::examine_self))
        .routes(routes!(backup::take))
        .routes(routes!(backup::restore))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::show))
        .routes(routes!(health::openapi))
}

fn whole_designs() -> DefaultBodyLimit {
    DefaultBodyLimit::max(design::BODY_LIMIT)
}

/// The document that describes the API. Checked in as `docs/openapi.json`.
pub fn openapi() -> utoipa::openapi::OpenApi {
    routes().into_openapi()
}

pub(crate) fn router(app: App) -> Router {
    let id = HeaderName::from_static("x-request-id");
    let span = |request: &Request<axum::body::Body>| {
        let id = request.headers().get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
        tracing::debug_span!("request", method = %request.method(), path = request.uri().path(), id)
    };
    let (router, _) = routes().split_for_parts();
    router
        .fallback(answer::nothing_here)
        .method_not_allowed_fallback(answer::wrong_method)
        .layer(axum::middleware::from_fn(answer::name_request))
        .layer(PropagateRequestIdLayer::new(id.clone()))
        .layer(TraceLayer::new_for_http().make_span_with(span))
        .layer(SetRequestIdLayer::new(id, MakeRequestUuid))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(app)
}
