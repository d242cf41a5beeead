//! HTTP handlers for pauses: nodes that must not run, with author, reason and end.

use axum::Json;
use axum::extract::State;
use jiff::SignedDuration;
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::node::pause::{NodePause, PauseRecord, PauseScope};
use muster_core::report::summary::clip;
use muster_core::txn::Op;
use muster_wire::data::{PauseRow, ResumeResponse, SetPause, SetPauseResponse};
use muster_wire::operator::Page;

use crate::app::{Reader, Writer};

use crate::api::error::{ApiError, JsonBody, Query};
use crate::api::key_write::{PlannedWrite, write};
use crate::api::request::{Author, LayerQuery, LayerTarget, PageQuery, Scope, unknown_target};

/// Longest reason, in characters.
const LONGEST_REASON: usize = 300;
/// Longest pause: one year. A pause without an end has no limit.
const LONGEST_SECONDS: u64 = 366 * 86_400;

/// Lists the active pauses.
#[utoipa::path(get, path = "/v1/envs/{env}/pauses", params(("env" = String, Path), PageQuery),
    responses((status = 200, body = Page<PauseRow>)))]
pub(crate) async fn list_pauses(
    State(reader): State<Reader>,
    scope: Scope,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<PauseRow>>, ApiError> {
    let now = reader.clock.now();
    let (rows, revision) = scope.read(&reader, |fleet| {
        let lasting = fleet.pauses().iter().filter(|(_, (pause, _))| !pause.is_over(now));
        let rows = lasting.map(|(target, (pause, _))| row(fleet, target, pause)).collect();
        (rows, fleet.revision)
    })?;
    Ok(Json(page.cut(rows, revision, |row: &PauseRow| row.paused.scope.to_string())?))
}

/// Pauses all nodes, the nodes of a role, or one node, in place of an earlier pause of the same scope. A run in progress is
/// finished; periodic validations continue.
#[utoipa::path(put, path = "/v1/envs/{env}/pauses",
    params(("env" = String, Path), LayerQuery, ("Muster-Author" = Option<String>, Header)),
    request_body = SetPause, responses((status = 200, body = SetPauseResponse)))]
pub(crate) async fn set_pause(
    writer: Writer,
    scope: Scope,
    Query(layer): Query<LayerQuery>,
    author: Author,
    JsonBody(SetPause { reason, seconds, force }): JsonBody<SetPause>,
) -> Result<Json<SetPauseResponse>, ApiError> {
    let target = layer.scope()?;
    let reason: String = reason.chars().filter(|c| !c.is_control()).collect();
    let reason = clip(reason.trim(), LONGEST_REASON).to_owned();
    if reason.is_empty() {
        return Err(ApiError::invalid("a pause needs a reason for operators who find the paused nodes"));
    }
    if seconds.is_some_and(|seconds| seconds == 0 || seconds > LONGEST_SECONDS) {
        return Err(ApiError::invalid(format!(
            "a pause lasts from 1 to {LONGEST_SECONDS} seconds, or until it is ended"
        )));
    }
    let since = writer.clock.now();
    let until = seconds.map(|seconds| {
        let long = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
        since.saturating_add(long).unwrap_or(jiff::Timestamp::MAX)
    });
    let pause = PauseRecord { by: author.by(None, "").author, reason, since, until };
    let store_key = Keys::new(&scope.env).pause(&target);
    let ((before, row), revision) = write(&writer, &scope, |fleet| {
        let current = fleet.pauses().get(&target);
        let about = (current.map(|(pause, _)| paused(&target, pause)), row(fleet, &target, &pause));
        let seen = current.map(|(_, at)| *at);
        if current.is_some_and(|(current, _)| *current == pause) {
            return Ok(PlannedWrite { seen, op: None, about });
        }
        if !force && !matches!(target, PauseScope::Global) && about.1.nodes == 0 {
            return Err(unknown_target(fleet, &LayerTarget::from_scope(&target)));
        }
        let op = Op::put_json(store_key.clone(), &pause).map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(PlannedWrite { seen, op: Some(op), about })
    })
    .await?;
    tracing::info!(env = %scope.env, "{}", row.paused);
    Ok(Json(SetPauseResponse { pause: row, before, revision }))
}

/// Ends a pause. Without a pause it is a no-op.
#[utoipa::path(delete, path = "/v1/envs/{env}/pauses",
    params(("env" = String, Path), LayerQuery, ("Muster-Author" = Option<String>, Header)),
    responses((status = 200, body = ResumeResponse)))]
pub(crate) async fn end_pause(
    writer: Writer,
    scope: Scope,
    Query(layer): Query<LayerQuery>,
    author: Author,
) -> Result<Json<ResumeResponse>, ApiError> {
    let target = layer.scope()?;
    let now = writer.clock.now();
    let store_key = Keys::new(&scope.env).pause(&target);
    let ((before, remaining), revision) = write(&writer, &scope, |fleet| {
        let current = fleet.pauses().get(&target);
        let concerned = |other: &PauseScope| {
            let both = |(name, _, record): (&_, _, &muster_core::node::record::NodeRecord)| {
                target.concerns(name, &record.role) && other.concerns(name, &record.role)
            };
            *other != target && fleet.designed().any(both)
        };
        let others = fleet.pauses().iter().filter(|(other, (pause, _))| !pause.is_over(now) && concerned(other));
        let remaining: Vec<PauseRow> = others.map(|(other, (pause, _))| row(fleet, other, pause)).collect();
        let op = current.map(|_| Op::delete(store_key.clone()));
        let before = current.map(|(pause, _)| paused(&target, pause)).filter(|before| !before.pause.is_over(now));
        Ok(PlannedWrite { seen: current.map(|(_, at)| *at), op, about: (before, remaining) })
    })
    .await?;
    if before.is_some() {
        tracing::info!(env = %scope.env, by = author.by(None, "").author, "the pause of {target} was ended");
    }
    Ok(Json(ResumeResponse { before, remaining, revision }))
}

fn paused(scope: &PauseScope, pause: &PauseRecord) -> NodePause {
    NodePause { scope: scope.clone(), pause: pause.clone() }
}

/// Pause with the number of nodes that it holds back.
fn row(fleet: &Fleet, scope: &PauseScope, pause: &PauseRecord) -> PauseRow {
    let nodes = fleet.designed().filter(|(name, _, record)| scope.concerns(name, &record.role)).count();
    PauseRow { paused: paused(scope, pause), nodes }
}
