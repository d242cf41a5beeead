//! HTTP handlers for the nodes of an environment: list, details, failures and lookups of data keys.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use muster_core::fleet::{Fleet, Node};
use muster_core::lookup::{explain, self_values};
use muster_core::names::NodeName;
use muster_core::node::status::NodeState;
use muster_core::report::Report;
use muster_core::report::summary::clip;
use muster_wire::data::{LookupResponse, SelfResponse};
use muster_wire::operator::{AgentNames, NodeDetail, NodeRow, NodeService, Page};
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::runs::FailureList;
use serde::Deserialize;

use crate::agents::AgentConnection;
use crate::api::authorization::Client;
use crate::api::drift::{node_drift, read_differences};
use crate::api::error::{ApiError, Path, Query};
use crate::api::request::{FilterQuery, PageQuery, Scope};
use crate::api::runs::{add_run_errors, failure_groups};
use crate::app::{Agents, Reader};
use crate::rollouts::status_response;
use crate::run_history::ViewedRuns;
use crate::view::node_rows;

/// Lines of the last run's log in a response.
const LOG_LINES: usize = 15;
/// Longest line of the log in a response, in characters.
const LOG_WIDTH: usize = 400;

#[derive(Deserialize)]
pub(crate) struct NodePath {
    node: String,
}

impl NodePath {
    /// Node in the path, by its name or host name. It must be in the design or have a policy.
    pub(crate) fn known<'f>(&self, fleet: &'f Fleet) -> Result<(&'f NodeName, &'f Node), ApiError> {
        let found = fleet.find(&self.node).filter(|(_, node)| node.record.is_some() || node.policy.is_some());
        found.ok_or_else(|| ApiError::no_such_node(fleet, &self.node))
    }

    /// Node in the path, by its name or host name. It must be in the design.
    pub(crate) fn designed(&self, reader: &Reader, scope: &Scope) -> Result<NodeName, ApiError> {
        scope.read(reader, |fleet| {
            let found = fleet.find(&self.node).filter(|(_, node)| node.record.is_some());
            found.map(|(name, _)| name.clone()).ok_or_else(|| ApiError::no_such_node(fleet, &self.node))
        })?
    }
}

/// Lists the nodes in the order of the design; all, or those that match a filter.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes", params(("env" = String, Path), PageQuery, FilterQuery),
    responses((status = 200, body = Page<NodeRow>)))]
pub(crate) async fn list_nodes(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Query(page): Query<PageQuery>,
    Query(filter): Query<FilterQuery>,
) -> Result<Json<Page<NodeRow>>, ApiError> {
    let filter = filter.of_nodes(&reader, &scope)?;
    let remote = agents.remote_activities(&reader.view, &scope.env, None).await;
    let page = scope.read(&reader, |fleet| {
        let activities = agents.activities(&remote);
        let row = |recorded: &_| node_rows::matching_row(fleet, activities, &filter, *recorded);
        page.cut_made(&node_rows::in_order(fleet), fleet.revision, |(name, ..)| name.as_str(), row)
    })??;
    Ok(Json(page))
}

/// Shows one node: its record, state, machine, runs and published values.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes/{node}", params(("env" = String, Path), ("node" = String, Path)),
    responses((status = 200, body = NodeDetail)))]
pub(crate) async fn show_node(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(path): Path<NodePath>,
) -> Result<Json<NodeDetail>, ApiError> {
    let name = path.designed(&reader, &scope)?;
    let remote = agents.remote_activities(&reader.view, &scope.env, Some(&name)).await;
    let activities = agents.activities(&remote);
    let plan = status_response::deciding_plan(&reader, &scope.env).await;
    let lookups = match agents.hub.session(&scope.env, &name) {
        Some(session) => session.looked_up(),
        None => remote.get(&name).map(|agent| agent.lookups.clone()).unwrap_or_default(),
    };
    let detail = scope.read(&reader, |fleet| {
        let (node, record) = fleet.get(&name).and_then(|node| Some((node, node.record.as_ref()?)))?;
        let observed = node.observed.as_ref().map(|(observed, _)| observed.clone()).unwrap_or_default();
        let row = node_rows::row(fleet, activities, &name, node, record);
        let (drift, drift_run) = node_drift(fleet, row.clone());
        let detail = NodeDetail {
            services: services(&row, node),
            row,
            record: record.clone(),
            machine: node.machine.as_ref().map(|(machine, _)| machine.clone()),
            states: node.states.keys().cloned().collect(),
            activity: activities.agent(fleet, &name).1,
            interfaces: observed.interfaces,
            incarnation: observed.incarnation,
            errors: Vec::new(),
            last: observed.last,
            history: Vec::new(),
            published: fleet.published().of_node(&name).cloned().unwrap_or_default(),
            lookups,
            log: None,
            agent_names: None,
            refused_agent: node.refused_agent(reader.clock.now()),
            hold: status_response::hold_of(&reader, &agents, fleet, plan.as_deref(), &name),
            drift: Some(drift),
            revision: fleet.revision,
        };
        Some((detail, drift_run, ViewedRuns::of(fleet, &name)))
    })?;
    let (mut detail, drift_run, viewed) = detail.ok_or_else(|| ApiError::unknown_node(&scope.env, &name))?;
    let digest = detail.last.as_ref().and_then(|last| last.log.clone());
    let reports = reader.blobs.reports(digest.into_iter().collect()).await;
    detail.log = reports.first().map(|report| excerpt(&report.log));
    detail.agent_names = reports.first().and_then(|report| AgentNames::of(&report.facts));
    let stored = || detail.last.as_ref().map(|last| last.errors.clone()).unwrap_or_default();
    detail.errors = reports.first().map_or_else(stored, Report::all_errors);
    if let (Some(drift), Some(run)) = (&mut detail.drift, drift_run) {
        drift.differences = read_differences(&reader, &scope, &name, &run).await?;
    }
    detail.history = reader.history.runs(&scope.env, &name, viewed).await?;
    Ok(Json(detail))
}

/// Services of an active node. Their checks pass since the node is validated.
fn services(row: &NodeRow, node: &Node) -> Vec<NodeService> {
    let passing_since = row.since.filter(|_| row.state == NodeState::Validated);
    let services = node.active().map(|active| active.services.clone()).unwrap_or_default();
    services.into_iter().map(|(service, offer)| NodeService { service, offer, passing_since }).collect()
}

/// Last lines of a log.
fn excerpt(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let start = lines.len().saturating_sub(LOG_LINES);
    lines[start..].iter().map(|line| clip(line, LOG_WIDTH)).collect::<Vec<_>>().join("\n")
}

/// Lists the nodes that have failed and were not validated since, one by one and in groups with the same cause. Pending nodes
/// that have not failed before are not failures.
#[utoipa::path(get, path = "/v1/envs/{env}/failures", params(("env" = String, Path), PageQuery, FilterQuery),
    responses((status = 200, body = FailureList)))]
pub(crate) async fn list_failures(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Query(page): Query<PageQuery>,
    Query(filter): Query<FilterQuery>,
) -> Result<Json<FailureList>, ApiError> {
    let filter = filter.of_nodes(&reader, &scope)?;
    let remote = agents.remote_activities(&reader.view, &scope.env, None).await;
    let (rows, mut groups, revision) = scope.read(&reader, |fleet| {
        let failed = node_rows::failed(fleet, agents.activities(&remote), &filter);
        let groups = failure_groups(fleet, &failed);
        (failed.into_iter().map(|failed| failed.row).collect(), groups, fleet.revision)
    })?;
    add_run_errors(&reader, &mut groups).await;
    let groups = groups.into_iter().map(|(group, _)| group).collect();
    let Page { items, next, revision } = page.cut(rows, revision, |row: &NodeRow| row.node.to_string())?;
    Ok(Json(FailureList { items, groups, next, revision }))
}

/// Shows the values of a node in the applied design, resolved: names, DNS, addresses, interfaces, routes, devices, kernel
/// parameters, boot actions, rack and labels. A run looks them up with `muster::self`.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes/{node}/self", params(("env" = String, Path), ("node" = String, Path)),
    responses((status = 200, body = SelfResponse)))]
pub(crate) async fn show_self(
    State(reader): State<Reader>,
    scope: Scope,
    Path(path): Path<NodePath>,
) -> Result<Json<SelfResponse>, ApiError> {
    self_value(&reader, &scope, &path, "")
}

#[derive(Deserialize)]
pub(crate) struct SelfPath {
    path: String,
}

/// Shows one of these values. The parts of the path are separated by `::`, as in `dns::domain`.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes/{node}/self/{path}",
    params(("env" = String, Path), ("node" = String, Path), ("path" = String, Path)),
    responses((status = 200, body = SelfResponse)))]
pub(crate) async fn show_self_value(
    State(reader): State<Reader>,
    scope: Scope,
    Path(node): Path<NodePath>,
    Path(SelfPath { path }): Path<SelfPath>,
) -> Result<Json<SelfResponse>, ApiError> {
    self_value(&reader, &scope, &node, &clip(&path, LONGEST))
}

/// The environment and the node of the client's certificate.
pub(crate) struct OwnNode(Scope, NodePath);

impl<S: Sync> FromRequestParts<S> for OwnNode {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        match parts.extensions.get() {
            Some(Client::Node { env, node }) => {
                Ok(Self(Scope { env: env.clone() }, NodePath { node: node.to_string() }))
            }
            Some(
                Client::Administrator
                | Client::User { .. }
                | Client::Replica
                | Client::CertificateHolder { .. }
                | Client::Unknown,
            )
            | None => {
                let problem = Problem::new(ProblemCode::InvalidRequest, "the client has no certificate of a node");
                Err(ApiError(problem.hint("name the node: /v1/envs/ENV/nodes/NODE/self")))
            }
        }
    }
}

/// Shows the values of the node whose certificate the client presents.
#[utoipa::path(get, path = "/v1/self", responses((status = 200, body = SelfResponse)))]
pub(crate) async fn show_own_self(
    State(reader): State<Reader>,
    OwnNode(scope, node): OwnNode,
) -> Result<Json<SelfResponse>, ApiError> {
    self_value(&reader, &scope, &node, "")
}

/// Shows one of these values.
#[utoipa::path(get, path = "/v1/self/{path}", params(("path" = String, Path)),
    responses((status = 200, body = SelfResponse)))]
pub(crate) async fn show_own_self_value(
    State(reader): State<Reader>,
    OwnNode(scope, node): OwnNode,
    Path(SelfPath { path }): Path<SelfPath>,
) -> Result<Json<SelfResponse>, ApiError> {
    self_value(&reader, &scope, &node, &clip(&path, LONGEST))
}

fn self_value(reader: &Reader, scope: &Scope, node: &NodePath, path: &str) -> Result<Json<SelfResponse>, ApiError> {
    let name = node.designed(reader, scope)?;
    scope.read(reader, |fleet| {
        let values = fleet.get(&name).map(Node::self_values).unwrap_or_default();
        // A design may give a node nothing. All of its values are none then; that is an answer.
        let whole = || path.is_empty().then(|| serde_json::json!(values));
        let value = self_values::at_path(&values, path).or_else(whole).ok_or_else(|| {
            let detail = format!("the design gives {name} no value {path:?}");
            let known: Vec<&str> = values.keys().map(String::as_str).collect();
            ApiError(Problem::new(ProblemCode::NotFound, detail).hint(format!("it gives {}", known.join(", "))))
        })?;
        Ok(Json(SelfResponse { node: name.clone(), path: path.to_owned(), value, revision: fleet.revision }))
    })?
}

/// Longest key that is looked up, in characters.
const LONGEST: usize = 400;

#[derive(Deserialize)]
pub(crate) struct LookupPath {
    key: String,
}

/// Looks up a key as a run on the node would: a data key, or one that begins with `muster::`.
#[utoipa::path(get, path = "/v1/envs/{env}/nodes/{node}/lookup/{key}",
    params(("env" = String, Path), ("node" = String, Path), ("key" = String, Path)),
    responses((status = 200, body = LookupResponse)))]
pub(crate) async fn lookup_key(
    State(reader): State<Reader>,
    State(agents): State<Agents>,
    scope: Scope,
    Path(node): Path<NodePath>,
    Path(LookupPath { key }): Path<LookupPath>,
) -> Result<Json<LookupResponse>, ApiError> {
    let node = node.designed(&reader, &scope)?;
    let key = clip(&key, LONGEST).to_owned();
    let remote = agents.remote_activities(&reader.view, &scope.env, Some(&node)).await;
    let answer = scope.read(&reader, |fleet| {
        let found = explain::resolve(fleet, &node, &key);
        let suggestion = if found.is_none() { explain::suggest(fleet, &node, &key) } else { None };
        let recorded = explain::recorded_key(&key);
        let looked_up = match agents.links.agent(fleet, &node).at {
            AgentConnection::Local(session) => Some(session.has_looked_up(&recorded)),
            AgentConnection::Remote(_) => remote.get(&node).map(|agent| agent.lookups.contains(&recorded)),
            AgentConnection::Disconnected => None,
        };
        LookupResponse { node: node.clone(), key: key.clone(), found, suggestion, looked_up, revision: fleet.revision }
    })?;
    Ok(Json(answer))
}
