//! How the store, the server and the other replicas are doing.

use axum::Json;
use axum::extract::State;
use muster_wire::doctor::Examination;

use crate::App;
use crate::doctor;

/// Examines the store and the replicas. It takes some seconds when something does not answer, and needs no view: it is
/// asked when all is not well.
#[utoipa::path(get, path = "/v1/doctor", responses((status = 200, body = Examination)))]
pub(crate) async fn examine(State(app): State<App>) -> Json<Examination> {
    let facts = doctor::gather(&app).await;
    Json(Examination { findings: doctor::judge(&facts), now: app.clock.now() })
}
