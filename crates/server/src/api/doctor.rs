//! How the store, the server and the other replicas are doing.

use axum::Json;
use axum::extract::State;
use muster_wire::doctor::{Examination, SelfExamination};

use crate::App;
use crate::doctor;

/// Examines the store and the replicas. It takes some seconds when something does not answer, and needs no view: it is
/// asked when all is not well.
#[utoipa::path(get, path = "/v1/doctor", responses((status = 200, body = Examination)))]
pub(crate) async fn examine(State(app): State<App>) -> Json<Examination> {
    let facts = doctor::gather(&app).await;
    Json(Examination { findings: doctor::judge(&facts), now: app.clock.now() })
}

/// What this replica says of itself, to the one that examines it.
#[utoipa::path(get, path = "/v1/doctor/self", responses((status = 200, body = SelfExamination)))]
pub(crate) async fn examine_self(State(app): State<App>) -> Json<SelfExamination> {
    Json(doctor::examine_self(&app).await)
}
