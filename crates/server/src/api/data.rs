//! HTTP handlers for configuration data in layers: for all nodes, for a role, for one node.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::lookup::config_data::{DatumContent, DatumRecord, Layer};
use muster_core::names::DataKey;
use muster_core::txn::{Op, Revision};
use muster_wire::data::{DatumRow, SetDatum, SetDatumResponse, UnsetDatumResponse};
use muster_wire::operator::Page;
use muster_wire::problem::{Problem, ProblemCode};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::{Reader, ReplicaState, Writer};
use crate::secrets::{self, LARGEST_SECRET};

use crate::api::error::{ApiError, JsonBody, Path, Query};
use crate::api::key_write::{Condition, PlannedWrite, write};
use crate::api::request::{Author, LayerQuery, LayerTarget, PageQuery, Scope, unknown_target};

/// Largest value as JSON, in bytes. A key of the store holds at most 16 KiB, including author and message.
const LARGEST: usize = 15 * 1024;
/// Longest message, in characters.
const LONGEST_MESSAGE: usize = 300;

#[derive(Deserialize)]
pub(crate) struct KeyPath {
    key: String,
}

impl KeyPath {
    fn read(self) -> Result<DataKey, ApiError> {
        DataKey::new(self.key).map_err(|error| ApiError::invalid(error.to_string()))
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only the values that this node sees: of its own layer, of its role, and of all nodes.
    effective: Option<String>,
    /// Only this key.
    key: Option<String>,
}

/// Lists data of all layers or of one; the widest layer first.
#[utoipa::path(get, path = "/v1/envs/{env}/data",
    params(("env" = String, Path), LayerQuery, ListQuery, PageQuery), responses((status = 200, body = Page<DatumRow>)))]
pub(crate) async fn list_data(
    State(reader): State<Reader>,
    scope: Scope,
    Query(layer): Query<LayerQuery>,
    Query(query): Query<ListQuery>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<DatumRow>>, ApiError> {
    let layer = layer.read()?;
    let (rows, revision) = scope.read(&reader, |fleet| {
        let rows: Vec<DatumRow> = match &query.effective {
            None => {
                let all = fleet.data().all().filter(|(of, ..)| layer.as_ref().is_none_or(|layer| layer == *of));
                all.map(|(layer, key, datum)| row(fleet, layer, key, datum)).collect()
            }
            Some(node) => {
                let found = fleet.find(node).and_then(|(name, node)| Some((name, &node.record.as_ref()?.role)));
                let (name, role) = found.ok_or_else(|| unknown_target(fleet, &LayerTarget::node(node)))?;
                let seen = fleet.data().effective_for(name, role);
                let datum = |key: &DataKey, layer: &Layer| Some(row(fleet, layer, key, fleet.data().get(layer, key)?));
                seen.iter().filter_map(|(key, (layer, _))| datum(key, layer)).collect()
            }
        };
        Ok::<_, ApiError>((rows, fleet.revision))
    })??;
    let rows = rows.into_iter().filter(|row| query.key.as_ref().is_none_or(|key| key == row.key.as_str())).collect();
    Ok(Json(page.cut(rows, revision, |row: &DatumRow| format!("{}/{}", row.layer, row.key))?))
}

/// Shows one datum of a layer; without `role` and `host`, of the layer for all nodes.
#[utoipa::path(get, path = "/v1/envs/{env}/data/{key}",
    params(("env" = String, Path), ("key" = String, Path), LayerQuery),
    responses((status = 200, body = DatumRow, headers(("ETag" = String, description = "ETag for `If-Match`.")))))]
pub(crate) async fn show_datum(
    State(reader): State<Reader>,
    scope: Scope,
    Path(path): Path<KeyPath>,
    Query(layer): Query<LayerQuery>,
) -> Result<Response, ApiError> {
    let (key, layer) = (path.read()?, layer.read()?.unwrap_or(Layer::Global));
    let found =
        scope.read(&reader, |fleet| fleet.data().get(&layer, &key).map(|datum| row(fleet, &layer, &key, datum)))?;
    let row = found.ok_or_else(|| missing(&layer, &key))?;
    Ok((etag(row.changed_at), Json(row)).into_response())
}

/// Sets a datum. Nodes whose last run looked it up run again if their value changes.
#[utoipa::path(put, path = "/v1/envs/{env}/data/{key}",
    params(("env" = String, Path), ("key" = String, Path), LayerQuery,
        ("If-Match" = Option<String>, Header), ("If-None-Match" = Option<String>, Header),
        ("Muster-Author" = Option<String>, Header)),
    request_body = SetDatum, responses((status = 200, body = SetDatumResponse)))]
pub(crate) async fn set_datum(
    writer: Writer,
    State(replica): State<ReplicaState>,
    scope: Scope,
    (Path(path), Query(layer)): (Path<KeyPath>, Query<LayerQuery>),
    author: Author,
    headers: HeaderMap,
    JsonBody(body): JsonBody<SetDatum>,
) -> Result<Response, ApiError> {
    let (key, layer) = (path.read()?, layer.read()?.unwrap_or(Layer::Global));
    let condition = Condition::read(&headers)?;
    let size = serde_json::to_vec(&body.value).map_or(usize::MAX, |text| text.len());
    let limit = if body.secret { LARGEST_SECRET } else { LARGEST };
    if size > limit {
        let detail = format!("the value of {key} has {size} bytes as JSON; the limit is {limit}");
        return Err(ApiError(
            Problem::new(ProblemCode::TooLarge, detail).hint("put it into a file of the release instead"),
        ));
    }
    let by = author.by(None, body.message.as_deref().unwrap_or_default());
    let message = muster_core::report::summary::clip(&by.message, LONGEST_MESSAGE);
    let store_key = Keys::new(&scope.env).datum(&layer, &key);
    let content = if body.secret {
        // Sealed with the same text in each attempt, so that the current value shows whether an earlier one was committed.
        secrets::seal(&writer.view, replica.membership.id(), &store_key, &body.value)?
    } else {
        DatumContent::Value(body.value.clone())
    };
    let record = DatumRecord {
        content,
        secret: body.secret,
        by: by.author,
        at: writer.clock.now(),
        message: (!message.is_empty()).then(|| message.to_owned()),
    };
    let ((changed, unchanged), revision) = write(&writer, &scope, |fleet| {
        let current = fleet.data().get(&layer, &key);
        let seen = current.map(|(_, at)| *at);
        if current.is_some_and(|(current, _)| *current == record) {
            return Ok(PlannedWrite { seen, op: None, about: (true, None) });
        }
        condition.check(seen, || refused(fleet, &layer, &key))?;
        if !body.force && !layer_exists(fleet, &layer) {
            return Err(unknown_target(fleet, &LayerTarget::from_layer(&layer)));
        }
        let is_same =
            |current: &DatumRecord| secrets::has_value(&writer.view, &store_key, current, &body.value, body.secret);
        if let Some((current, _)) = current.filter(|(current, _)| is_same(current)) {
            return Ok(PlannedWrite { seen, op: None, about: (false, Some(current.clone())) });
        }
        let op = Op::put_json(store_key.clone(), &record).map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(PlannedWrite { seen, op: Some(op), about: (true, None) })
    })
    .await?;
    let datum = scope.read(&writer, |fleet| {
        let current = fleet.data().get(&layer, &key).cloned();
        // Another client may have changed it by now: the response is about this change.
        let mine = current.filter(|(current, _)| *current == record || unchanged.is_some());
        row(fleet, &layer, &key, &mine.unwrap_or((record.clone(), revision)))
    })?;
    if changed {
        // Never logs the value: it may be a secret.
        tracing::info!(env = %scope.env, %layer, %key, by = datum.by, "datum set");
    }
    Ok((etag(datum.changed_at), Json(SetDatumResponse { datum, changed, revision })).into_response())
}

/// Removes a datum. A datum that does not exist is a no-op.
#[utoipa::path(delete, path = "/v1/envs/{env}/data/{key}",
    params(("env" = String, Path), ("key" = String, Path), LayerQuery, ("If-Match" = Option<String>, Header),
        ("Muster-Author" = Option<String>, Header)),
    responses((status = 200, body = UnsetDatumResponse)))]
pub(crate) async fn unset_datum(
    writer: Writer,
    scope: Scope,
    Path(path): Path<KeyPath>,
    Query(layer): Query<LayerQuery>,
    author: Author,
    headers: HeaderMap,
) -> Result<Json<UnsetDatumResponse>, ApiError> {
    let (key, layer) = (path.read()?, layer.read()?.unwrap_or(Layer::Global));
    let condition = Condition::read(&headers)?;
    let store_key = Keys::new(&scope.env).datum(&layer, &key);
    let (before, revision) = write(&writer, &scope, |fleet| {
        let current = fleet.data().get(&layer, &key);
        let seen = current.map(|(_, at)| *at);
        condition.check(seen, || refused(fleet, &layer, &key))?;
        let about = current.map(|datum| row(fleet, &layer, &key, datum));
        Ok(PlannedWrite { seen, op: about.as_ref().map(|_| Op::delete(store_key.clone())), about })
    })
    .await?;
    if before.is_some() {
        tracing::info!(env = %scope.env, %layer, %key, by = author.by(None, "").author, "datum unset");
    }
    Ok(Json(UnsetDatumResponse { before, revision }))
}

fn row(fleet: &Fleet, layer: &Layer, key: &DataKey, (datum, at): &(DatumRecord, Revision)) -> DatumRow {
    DatumRow {
        key: key.clone(),
        layer: layer.clone(),
        value: datum.redacted(),
        secret: datum.secret,
        by: datum.by.clone(),
        at: datum.at,
        message: datum.message.clone(),
        changed_at: *at,
        matches_no_node: !layer_exists(fleet, layer),
    }
}

fn layer_exists(fleet: &Fleet, layer: &Layer) -> bool {
    match layer {
        Layer::Global => true,
        Layer::Role { role } => fleet.designed().any(|(_, _, record)| record.role == *role),
        Layer::Host { node } => fleet.get(node).is_some_and(muster_core::fleet::Node::is_designed),
    }
}

fn missing(layer: &Layer, key: &DataKey) -> ApiError {
    let problem = Problem::new(ProblemCode::UnknownDatum, format!("there is no {key} in the layer {layer}"));
    ApiError(problem.hint("`muster data list` shows what there is; `muster lookup NODE KEY` what a node sees"))
}

/// Error of a failed precondition, with the current value and its author.
fn refused(fleet: &Fleet, layer: &Layer, key: &DataKey) -> ApiError {
    let current = fleet.data().get(layer, key).map(|datum| row(fleet, layer, key, datum));
    let detail = match &current {
        None => format!("{key} ({layer}) does not exist: it was removed or never set"),
        Some(row) => format!(
            "{key} ({layer}) was changed by {} at {} to {} (revision {})",
            row.by,
            row.at.strftime("%Y-%m-%d %H:%M:%S UTC"),
            row.value,
            row.changed_at
        ),
    };
    let mut problem =
        Problem::new(ProblemCode::NotAsExpected, detail).hint("read the current value, then decide again");
    problem.current = current.and_then(|row| serde_json::to_value(row).ok()).map(Box::new);
    ApiError(problem)
}

fn etag(at: Revision) -> [(header::HeaderName, String); 1] {
    [(header::ETAG, format!("\"{at}\""))]
}
