//! Refuses a second agent with the name of a node while the first one is connected.
//!
//! Each agent sends an id of its state directory and boot. The same agent may connect again at any time, also to another
//! replica: the lock of its state directory excludes a second process. A different agent waits until the first one is gone.
//! Otherwise the two would end each other's streams, and both would run the same desired state. The refusal is recorded in
//! the presence of the node, where the node's page and `muster doctor` find it.

use axum::http::HeaderMap;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, ReplicaId};
use muster_core::replica::{PresenceRecord, RefusedAgent, are_different_agents};
use muster_core::txn::{Guard, Op, Txn};
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::sync::{AGENT_HOLDER, SyncOpen};

use super::Hub;
use crate::app::{Reader, Writer};
use crate::transactions::commit_all;

/// `Retry-After` of a refused agent, in seconds. Agents wait longer after each refusal.
const RETRY_AFTER: u16 = 3;

/// Returns the problem if a different agent of the node is connected, here or to another replica.
pub(crate) fn check(
    reader: &Reader,
    hub: &Hub,
    me: &ReplicaId,
    env: &EnvName,
    node: &NodeName,
    holder: Option<&str>,
) -> Result<(), Problem> {
    if !hub.has_different_agent(env, node, holder) && !is_connected_elsewhere(reader, me, env, node, holder) {
        return Ok(());
    }
    Err(problem(node))
}

/// The answer to a refused agent.
pub(crate) fn problem(node: &NodeName) -> Problem {
    let problem = Problem::new(ProblemCode::DuplicateAgent, format!("another agent with the name {node} is connected"));
    let hint = "stop one of the two agents, or correct `node` in its configuration; an agent needs a state directory of its own";
    problem.hint(hint).retry_after(RETRY_AFTER)
}

/// The id of the agent that sends a request.
pub(crate) fn holder(headers: &HeaderMap) -> Option<&str> {
    headers.get(AGENT_HOLDER)?.to_str().ok()
}

fn is_connected_elsewhere(
    reader: &Reader,
    me: &ReplicaId,
    env: &EnvName,
    node: &NodeName,
    holder: Option<&str>,
) -> bool {
    let fleets = reader.view.fleets();
    let Some(fleet) = fleets.get(env) else { return false };
    let presence = fleet.get(node).and_then(|node| node.presence.as_ref()).map(|(presence, _)| presence);
    presence.is_some_and(|presence| {
        let is_live = |replica| replica != me && fleet.replicas().contains_key(replica);
        presence.replica.as_ref().is_some_and(is_live) && are_different_agents(presence.holder.as_deref(), holder)
    })
}

/// Records that an agent was refused, at most once a minute. A conflict is no error: the next refusal is recorded.
pub(crate) async fn record(writer: &Writer, env: &EnvName, node: &NodeName, open: &SyncOpen) {
    let (presence, at, refused) = {
        let fleets = writer.view.fleets();
        let Some(known) = fleets.get(env).and_then(|fleet| fleet.get(node)) else { return };
        let Some((presence, at)) = known.presence.as_ref().filter(|(presence, _)| presence.replica.is_some()) else {
            return;
        };
        let incarnation = known.observed.as_ref().map(|(observed, _)| observed.incarnation);
        let is_copy = open.incarnation.is_some() && open.incarnation == incarnation;
        let Some(refused) = RefusedAgent::after_refusal(presence.refused, is_copy, writer.clock.now()) else { return };
        (presence.clone(), *at, refused)
    };
    tracing::warn!(%env, %node, boot = open.boot, "{refused}");
    let key = Keys::new(env).presence(node);
    let Ok(put) = Op::put_json(key.clone(), &PresenceRecord { refused: Some(refused), ..presence }) else { return };
    if let Err(error) = commit_all(writer, vec![Txn::new().guard(Guard::observed(key, Some(at))).op(put)]).await {
        tracing::debug!(%error, %env, %node, "the refusal of an agent cannot be recorded");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::agents::JoinRequest;
    use crate::app::Clock;
    use crate::view::View;

    #[tokio::test(start_paused = true)]
    async fn different_agent_is_refused_while_the_first_is_connected() {
        let hub = Arc::new(Hub::new(Clock::system(), CancellationToken::new(), &View::default()));
        let (env, node) = (EnvName::new("test").unwrap(), NodeName::new("web1").unwrap());
        let is_refused = |holder| hub.has_different_agent(&env, &node, holder);
        assert!(!is_refused(Some("b")), "no agent is connected");
        let join =
            |holder: &str| hub.join(&env, &node, JoinRequest { holder: Some(holder.into()), ..JoinRequest::default() });
        let first = join("a").unwrap();
        // A busy agent may answer late.
        tokio::time::sleep(Duration::from_secs(24)).await;
        assert!(is_refused(Some("b")) && !is_refused(Some("a")) && !is_refused(None));
        assert!(join("b").is_none(), "both were checked before one of them joined");
        assert!(!first.session.ended.is_cancelled());
        let again = join("a").unwrap();
        assert!(first.session.ended.is_cancelled(), "the same agent replaces its own stream");
        drop(first);
        assert!(is_refused(Some("b")));
        drop(again);
        assert!(!is_refused(Some("b")), "the first has ended");
    }
}
