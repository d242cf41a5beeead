//! Failure of a node: a node has failed until a validation passes, whatever its agent does meanwhile.
//!
//! [`NodeState`] is what happens now: a failed node that retries is `applying`, one whose agent disconnected is `silent`. The
//! failure is the same before, during and after that.

use jiff::Timestamp;

use crate::fleet::Node;
use crate::node::status::{self, Activity, NodeState, NodeStatus, Reason};
use crate::report::ResourceError;

/// An unresolved failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFailure {
    /// `failed`, `invalid`, `unprovisioned` or `blocked`.
    pub state: NodeState,
    /// Time of the first failure since the node was last validated, if known.
    pub since: Option<Timestamp>,
    pub reason: Reason,
}

impl NodeFailure {
    /// The failure of a node with this status. None if it has not failed, or leaves.
    pub fn of_node(node: &Node, status: &NodeStatus, activity: &Activity) -> Option<Self> {
        let observed = node.observed.as_ref().map(|(observed, _)| observed);
        let failing_since = observed.and_then(|observed| observed.failing_since());
        match status.state {
            NodeState::Leaving => None,
            NodeState::Failed | NodeState::Invalid | NodeState::Unprovisioned | NodeState::Blocked => Some(Self {
                state: status.state,
                since: failing_since.or(status.since),
                reason: status.reason.clone().unwrap_or(status::failure(node, activity)),
            }),
            NodeState::Provisioning
            | NodeState::Silent
            | NodeState::Applying
            | NodeState::Validating
            | NodeState::Pending
            | NodeState::Outdated
            | NodeState::Configured
            | NodeState::Validated => {
                let invalid = observed.and_then(|observed| observed.state.as_ref());
                let invalid = invalid.is_some_and(|state| state.node_state() == NodeState::Invalid);
                Some(Self {
                    state: if invalid { NodeState::Invalid } else { NodeState::Failed },
                    since: Some(failing_since?),
                    reason: last_failure(node, activity),
                })
            }
        }
    }
}

/// Reason of the last failed run. After a retry that only applied, the record of the node has it beside the retry.
fn last_failure(node: &Node, activity: &Activity) -> Reason {
    let observed = node.observed.as_ref().map(|(observed, _)| observed);
    if observed.and_then(|observed| observed.last.as_ref()).is_some_and(|last| last.outcome.is_failure()) {
        return status::failure(node, activity);
    }
    let reason = match observed.and_then(|observed| observed.failure.as_ref()) {
        Some(failure) => failure.reason.clone(),
        // Earlier versions have written it to the history alone.
        None => node.history.listed().0.into_iter().find(|past| past.outcome.is_failure()).and_then(|past| past.reason),
    };
    let message = reason.map(|message| ResourceError { message, ..ResourceError::default() });
    Reason::Failed { reason: None, errors: message.into_iter().collect(), attempt: 0, retry: status::retry(activity) }
}
