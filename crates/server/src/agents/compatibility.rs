//! Refuses agents whose protocol this server does not support, and records that for the operator.
//!
//! See [`muster_core::node::agent`] for the window. A refused agent keeps the state of its node and tries again, so an
//! upgrade of either side is enough.

use axum::http::HeaderMap;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::node::agent::{AgentInfo, FIRST_PROTOCOL, IncompatibleProtocol, PROTOCOL, is_compatible};
use muster_core::replica::PresenceRecord;
use muster_core::txn::{Guard, Op, Txn};
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::sync::{AGENT_PROTOCOL, SyncOpen};

use crate::app::Writer;
use crate::transactions::commit_all;

/// `Retry-After` of a refused agent, in seconds. Agents wait longer after each refusal.
const RETRY_AFTER: u16 = 30;

/// Returns the problem if the protocol of an agent is not supported.
pub(crate) fn check(agent: u32) -> Result<(), Problem> {
    if is_compatible(agent) {
        return Ok(());
    }
    let protocols = IncompatibleProtocol { agent, server: PROTOCOL };
    let problem = Problem::new(ProblemCode::IncompatibleAgent, protocols.to_string());
    Err(problem.hint(protocols.hint()).retry_after(RETRY_AFTER))
}

/// As [`check`], for a request without a stream.
pub(crate) fn check_header(headers: &HeaderMap) -> Result<(), Problem> {
    let protocol = headers.get(AGENT_PROTOCOL).and_then(|value| value.to_str().ok()?.parse().ok());
    check(protocol.unwrap_or(FIRST_PROTOCOL))
}

/// Records the refused agent in the presence of its node, unless an agent of the node is connected. It is written once for
/// each version of an agent. A conflict is no error: the next refusal is recorded.
pub(crate) async fn record(writer: &Writer, env: &EnvName, node: &NodeName, open: &SyncOpen) {
    // It is not expected to call: until it is upgraded, each call is refused.
    let Some(agent) = open.agent().map(|agent| AgentInfo { every: None, ..agent }) else { return };
    let (presence, at) = {
        let fleets = writer.view.fleets();
        let Some(fleet) = fleets.get(env) else { return };
        let known = fleet.get(node).and_then(|node| node.presence.as_ref());
        let is_live = |presence: &PresenceRecord| {
            presence.replica.as_ref().is_some_and(|replica| fleet.replicas().contains_key(replica))
        };
        if known.is_some_and(|(presence, _)| is_live(presence) || presence.agent.as_ref() == Some(&agent)) {
            return;
        }
        let since = || PresenceRecord { since: writer.clock.now(), ..PresenceRecord::default() };
        (known.map_or_else(since, |(presence, _)| presence.clone()), known.map(|(_, at)| *at))
    };
    let AgentInfo { version, protocol, .. } = &agent;
    tracing::warn!(%env, %node, version, protocol, supported = PROTOCOL, "its agent is refused: the protocols differ by more than 1");
    let key = Keys::new(env).presence(node);
    let Ok(put) = Op::put_json(key.clone(), &PresenceRecord { agent: Some(agent), ..presence }) else { return };
    if let Err(error) = commit_all(writer, vec![Txn::new().guard(Guard::observed(key, at)).op(put)]).await {
        tracing::debug!(%error, %env, %node, "the refusal of an agent cannot be recorded");
    }
}
