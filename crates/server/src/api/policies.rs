//! HTTP handlers for the policy of nodes: cordoned nodes, which no rollout moves, and retired nodes, which leave the fleet.

use axum::Json;
use axum::extract::State;
use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::names::NodeName;
use muster_core::node::policy::{NodePolicy, NodePolicyRow, PolicyCommand, PolicyRecord, PolicyRefused, decide};
use muster_core::report::summary::clip;
use muster_core::rollout::record::FromVersion;
use muster_core::txn::{Guard, Op, Txn};
use muster_wire::operator::Page;
use muster_wire::policy::{PolicyResponse, SetPolicy};
use muster_wire::problem::{Problem, ProblemCode};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::error::{ApiError, JsonBody, Path, Query};
use crate::api::key_write::{PlannedTxn, write_txn};
use crate::api::nodes::NodePath;
use crate::api::request::{Author, PageQuery, Scope};
use crate::app::{Reader, Writer};
use crate::design::node_records::retirement;

/// Longest reason, in characters.
const LONGEST_REASON: usize = 300;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EndPolicyQuery {
    /// Policy to end: `cordoned`, which is the default, or `retired`.
    #[param(value_type = Option<String>)]
    policy: Option<NodePolicy>,
}

/// Lists the cordoned and retired nodes.
#[utoipa::path(get, path = "/v1/envs/{env}/policies", params(("env" = String, Path), PageQuery),
    responses((status = 200, body = Page<NodePolicyRow>)))]
pub(crate) async fn list_policies(
    State(reader): State<Reader>,
    scope: Scope,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<NodePolicyRow>>, ApiError> {
    let (rows, revision) = scope.read(&reader, |fleet| (fleet.policies().collect(), fleet.revision))?;
    Ok(Json(page.cut(rows, revision, |row: &NodePolicyRow| row.node.to_string())?))
}

/// Cordons or retires a node. A no-op if the node has the policy already: the first author, reason and time stay.
///
/// A retired node leaves its role in the same transaction. Its machine is released when the nodes that looked it up have run
/// without it; then its keys are removed. The policy stays, and the design does not bring the node back.
#[utoipa::path(put, path = "/v1/envs/{env}/nodes/{node}/policy",
    params(("env" = String, Path), ("node" = String, Path), ("Muster-Author" = Option<String>, Header)),
    request_body = SetPolicy, responses((status = 200, body = PolicyResponse)))]
pub(crate) async fn set_policy(
    writer: Writer,
    scope: Scope,
    Path(path): Path<NodePath>,
    author: Author,
    JsonBody(SetPolicy { policy, reason }): JsonBody<SetPolicy>,
) -> Result<Json<PolicyResponse>, ApiError> {
    let reason: String = reason.chars().filter(|c| !c.is_control()).collect();
    let reason = clip(reason.trim(), LONGEST_REASON).to_owned();
    let command = match policy {
        NodePolicy::Cordoned if reason.is_empty() => {
            return Err(ApiError::invalid("a cordon needs a reason for operators who find the cordoned node"));
        }
        NodePolicy::Cordoned => PolicyCommand::Cordon,
        NodePolicy::Retired => PolicyCommand::Retire,
        NodePolicy::InService => {
            return Err(ApiError::invalid("a policy is ended with DELETE, not by setting it to in_service"));
        }
    };
    let (by, now) = (author.by(None, "").author, writer.clock.now());
    let (response, revision) = write_txn(&writer, &scope, |fleet| {
        let (name, node) = path.known(fleet)?;
        let next = check(name, node, command)?;
        let before = node.policy.as_ref().map(|(record, _)| record.clone());
        if next == node.policy() {
            return Ok(PlannedTxn { txn: None, about: response(name, before.clone(), before) });
        }
        let keeps = fleet.desired_of(name).filter(|_| next == NodePolicy::Cordoned);
        let keeps = keeps.map(|desired| FromVersion {
            version: desired.version,
            generation: desired.generation,
            allow_older: desired.allow_older,
        });
        let record = PolicyRecord { policy: next, by: by.clone(), reason: reason.clone(), since: now, keeps };
        let unwritable = |error: serde_json::Error| ApiError::invalid(error.to_string());
        let key = Keys::new(&fleet.env).policy(name);
        let mut txn = policy_guard(fleet, name, node).op(Op::put_json(key, &record).map_err(unwritable)?);
        if next == NodePolicy::Cordoned {
            txn.guards.extend(desired_guards(fleet, name, node));
        }
        if next == NodePolicy::Retired {
            txn.merge(retirement(&Keys::new(&fleet.env), name, node, now).map_err(unwritable)?);
        }
        Ok(PlannedTxn { txn: Some(txn), about: response(name, before, Some(record)) })
    })
    .await?;
    if let Some(policy) = response.policy.as_ref().filter(|_| response.changed) {
        tracing::info!(env = %scope.env, node = %response.node, "{policy}");
    }
    Ok(Json(PolicyResponse { revision, ..response }))
}

/// Puts a cordoned node in service, or lets the design bring a retired node back. A no-op for a node in service.
#[utoipa::path(delete, path = "/v1/envs/{env}/nodes/{node}/policy",
    params(("env" = String, Path), ("node" = String, Path), EndPolicyQuery, ("Muster-Author" = Option<String>, Header)),
    responses((status = 200, body = PolicyResponse)))]
pub(crate) async fn end_policy(
    writer: Writer,
    scope: Scope,
    Path(path): Path<NodePath>,
    Query(EndPolicyQuery { policy }): Query<EndPolicyQuery>,
    author: Author,
) -> Result<Json<PolicyResponse>, ApiError> {
    let command = match policy {
        None | Some(NodePolicy::Cordoned) => PolicyCommand::Uncordon,
        Some(NodePolicy::Retired) => PolicyCommand::Unretire,
        Some(NodePolicy::InService) => return Err(ApiError::invalid("the policy to end is cordoned or retired")),
    };
    let (response, revision) = write_txn(&writer, &scope, |fleet| {
        let (name, node) = path.known(fleet)?;
        check(name, node, command)?;
        let before = node.policy.as_ref().map(|(record, _)| record.clone());
        let delete = Op::delete(Keys::new(&fleet.env).policy(name));
        let txn = before.as_ref().map(|_| policy_guard(fleet, name, node).op(delete));
        Ok(PlannedTxn { txn, about: response(name, before, None) })
    })
    .await?;
    if let Some(before) = response.before.as_ref().filter(|_| response.changed) {
        let by = author.by(None, "").author;
        tracing::info!(env = %scope.env, node = %response.node, by, "in service again; it was {before}");
    }
    Ok(Json(PolicyResponse { revision, ..response }))
}

/// The policy of the node is the one that was decided on.
fn policy_guard(fleet: &Fleet, name: &NodeName, node: &Node) -> Txn {
    let seen = node.policy.as_ref().map(|(_, at)| *at);
    Txn::new().guard(Guard::observed(Keys::new(&fleet.env).policy(name), seen))
}

/// The version that a cordoned node keeps is the one that it should run when the cordon is committed.
fn desired_guards(fleet: &Fleet, name: &NodeName, node: &Node) -> [Guard; 3] {
    let keys = Keys::new(&fleet.env);
    [
        Guard::observed(keys.desired(name), node.desired.as_ref().map(|(_, at)| *at)),
        Guard::observed(keys.active_rollout(), fleet.active_rollout_pointer().map(|(_, at)| at)),
        Guard::observed(keys.current_version(), fleet.current_version().map(|(_, at)| at)),
    ]
}

fn response(name: &NodeName, before: Option<PolicyRecord>, policy: Option<PolicyRecord>) -> PolicyResponse {
    let changed = before != policy;
    PolicyResponse { node: name.clone(), policy, before, changed, revision: Default::default() }
}

/// Policy of a node after a command, or the reason why it is refused with what to do instead.
fn check(name: &NodeName, node: &Node, command: PolicyCommand) -> Result<NodePolicy, ApiError> {
    decide(node.policy(), command).map_err(|refused| {
        let record = node.policy.as_ref().map(|(record, _)| record.to_string()).unwrap_or_default();
        let hint = match refused {
            PolicyRefused::Retired => format!("`muster node unretire {name}` lets the design bring it back"),
            PolicyRefused::Cordoned => format!("`muster node uncordon {name}` puts it in service"),
        };
        ApiError(Problem::new(ProblemCode::PolicyRefused, format!("{name} is {record}")).hint(hint))
    })
}
