//! HTTP handlers for the nodes that a revision of a design defines, and the origin of their values.

use axum::Json;
use axum::extract::State;
use muster_core::names::NodeName;
use muster_design::inherit::{LayerAction, LayerStep, ValuePath};
use muster_design::yaml::{Value, YamlNode};
use muster_wire::design::{DesignNode, DesignNodeRow, PathProvenance, ProvenanceStep, ValueProvenance};
use muster_wire::operator::Page;
use muster_wire::problem::{Problem, ProblemCode};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::design::RevisionQuery;
use crate::api::error::{ApiError, Path, Query};
use crate::api::request::{PageQuery, Scope};
use crate::app::Reader;
use crate::design::compiled::CompiledDesign;

/// Lists the nodes that a revision of the design defines, in its order.
#[utoipa::path(get, path = "/v1/envs/{env}/design/nodes", params(("env" = String, Path), RevisionQuery, PageQuery),
    responses((status = 200, body = Page<DesignNodeRow>)))]
pub(crate) async fn list_design_nodes(
    State(reader): State<Reader>,
    scope: Scope,
    Query(revision): Query<RevisionQuery>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<DesignNodeRow>>, ApiError> {
    let (_, design) = revision.design(&reader, &scope).await?;
    let row = |node: &muster_design::CompiledNode| DesignNodeRow {
        node: node.name.clone(),
        role: node.record.role.clone(),
        flavor: node.record.flavor.clone(),
        profile: node.record.profile.clone(),
        failure_domain: node.record.failure_domain.clone(),
        labels: node.record.labels.clone(),
    };
    let rows = design.design.nodes().iter().map(|node| row(node)).collect();
    let revision = reader.view.revision().unwrap_or_default();
    Ok(Json(page.cut(rows, revision, |row| row.node.to_string())?))
}

/// Values in one response. A node has some dozens; more can be requested by path.
const MAX_VALUES: usize = 1000;
const KIND: &str = "Node";

#[derive(Deserialize)]
pub(crate) struct DesignNodePath {
    node: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhyQuery {
    /// Path of a value whose origin is shown, such as `interfaces.bond0.mtu`.
    path: Option<String>,
    /// Also show the origin of each value.
    #[serde(default)]
    provenance: bool,
}

/// Shows a node with its effective values; with a path, every layer that set, changed or removed the value there.
#[utoipa::path(get, path = "/v1/envs/{env}/design/nodes/{node}",
    params(("env" = String, Path), ("node" = String, Path), RevisionQuery, WhyQuery),
    responses((status = 200, body = DesignNode)))]
pub(crate) async fn show_design_node(
    State(reader): State<Reader>,
    scope: Scope,
    Path(DesignNodePath { node }): Path<DesignNodePath>,
    Query(revision): Query<RevisionQuery>,
    Query(query): Query<WhyQuery>,
) -> Result<Json<DesignNode>, ApiError> {
    let (design_ref, design) = revision.design(&reader, &scope).await?;
    let name = NodeName::new(node).map_err(|error| ApiError::invalid(error.to_string()))?;
    let planned = design.design.nodes().iter().find(|node| node.name == name);
    let (Some(planned), Some(tree)) = (planned, design.design.effective(KIND, name.as_str())) else {
        let detail = format!("{name} is not in revision {} of the design of {}", design_ref.number, scope.env);
        return Err(ApiError(Problem::new(ProblemCode::UnknownNode, detail)));
    };
    let why = query.path.as_deref().map(|path| value_provenance(&design, &name, path)).transpose()?;
    let mut provenance = Vec::new();
    if query.provenance {
        leaves(tree, &ValuePath::default(), &mut |path, _| {
            if provenance.len() <= MAX_VALUES
                && let Ok(found) = design.design.provenance(KIND, name.as_str(), path)
                && let Some(value) = found.value.as_ref().and_then(json)
            {
                let steps = found.steps.iter().map(step).collect();
                provenance.push(PathProvenance { path: path.to_string(), value, steps });
            }
        });
    }
    let provenance_cut = provenance.len() > MAX_VALUES;
    provenance.truncate(MAX_VALUES);
    Ok(Json(DesignNode {
        node: name,
        design: design_ref.number,
        record: planned.record.clone(),
        effective: json(tree).unwrap_or_default(),
        why,
        provenance,
        provenance_cut,
        revision: reader.view.revision().unwrap_or_default(),
    }))
}

fn value_provenance(design: &CompiledDesign, name: &NodeName, path: &str) -> Result<ValueProvenance, ApiError> {
    let parsed: ValuePath =
        path.parse().map_err(|error: muster_design::inherit::ValuePathError| ApiError::invalid(error.to_string()))?;
    let found = design
        .design
        .provenance(KIND, name.as_str(), &parsed)
        .map_err(|error| ApiError(Problem::new(ProblemCode::NotFound, error.to_string())))?;
    let steps = found.steps.iter().map(step).collect();
    Ok(ValueProvenance { path: parsed.to_string(), value: found.value.as_ref().and_then(json), steps })
}

fn step(step: &LayerStep) -> ProvenanceStep {
    let (action, fragment) = match &step.action {
        LayerAction::Set { value } => ("set", json(value)),
        LayerAction::Changed { value } => ("changed", json(value)),
        LayerAction::Members { written, .. } => ("members", json(written)),
        LayerAction::Removed => ("removed", None),
    };
    let at = step.location.span.map(|span| span.start);
    ProvenanceStep {
        source: step.source.clone(),
        kind: step.kind.clone(),
        name: step.name.clone(),
        file: step.location.file.clone(),
        line: at.map(|at| at.line),
        column: at.map(|at| at.column),
        path: step.path.to_string(),
        action: action.to_owned(),
        fragment,
    }
}

/// Calls `visit` for each leaf of a tree; a list is one value.
fn leaves(node: &YamlNode, path: &ValuePath, visit: &mut dyn FnMut(&ValuePath, &YamlNode)) {
    match &node.value {
        Value::Map(map) => {
            map.entries().iter().for_each(|entry| leaves(&entry.value, &path.join(&entry.key.text), visit));
        }
        Value::Scalar(_) | Value::Seq(_) => visit(path, node),
    }
}

fn json(node: &YamlNode) -> Option<serde_json::Value> {
    serde_json::to_value(node).ok()
}
