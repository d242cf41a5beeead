//! Policies: nodes that an operator has taken out of rollouts (cordoned) or out of the fleet (retired).
//!
//! A policy is a fact of its own beside machine, service state, liveness and pauses. A cordoned node stays active and keeps
//! its version: runs and validations go on, no rollout moves it, and it leads no role. A retired node is drained and
//! removed. Its policy outlives its other keys, so the design does not bring it back.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::names::NodeName;
use crate::rollout::record::FromVersion;

/// Policy of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodePolicy {
    /// No key is stored for it.
    #[default]
    InService,
    Cordoned,
    Retired,
}

impl NodePolicy {
    /// Values of a filter on policies.
    pub const WORDS: [&'static str; 3] =
        [NodePolicy::InService.word(), NodePolicy::Cordoned.word(), NodePolicy::Retired.word()];

    /// Name in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            NodePolicy::InService => "in_service",
            NodePolicy::Cordoned => "cordoned",
            NodePolicy::Retired => "retired",
        }
    }
}

/// `policy/<node>`. A node in service has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyRecord {
    pub policy: NodePolicy,
    pub by: String,
    /// Empty if the operator gave none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Version that a cordoned node keeps while another one is given to all nodes at once. None if it had no version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps: Option<FromVersion>,
}

impl PolicyRecord {
    pub fn is_cordoned(&self) -> bool {
        self.policy == NodePolicy::Cordoned
    }

    pub fn is_retired(&self) -> bool {
        self.policy == NodePolicy::Retired
    }
}

impl fmt::Display for PolicyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.policy {
            NodePolicy::InService => "put in service",
            NodePolicy::Cordoned => "cordoned",
            NodePolicy::Retired => "retired",
        };
        write!(f, "{what} by {}", self.by)?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

/// A node with its policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodePolicyRow {
    pub node: NodeName,
    #[serde(flatten)]
    pub record: PolicyRecord,
}

impl fmt::Display for NodePolicyRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.node, self.record)
    }
}

/// A request to change the policy of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyCommand {
    Cordon,
    Uncordon,
    Retire,
    Unretire,
}

/// Reason why a policy is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PolicyRefused {
    #[error("the node is retired")]
    Retired,
    #[error("the node is cordoned, not retired")]
    Cordoned,
}

/// Policy after a command. The same as before: the command is a no-op.
pub fn decide(now: NodePolicy, command: PolicyCommand) -> Result<NodePolicy, PolicyRefused> {
    match (now, command) {
        (NodePolicy::InService | NodePolicy::Cordoned, PolicyCommand::Cordon) => Ok(NodePolicy::Cordoned),
        (NodePolicy::InService | NodePolicy::Cordoned, PolicyCommand::Uncordon)
        | (NodePolicy::InService | NodePolicy::Retired, PolicyCommand::Unretire) => Ok(NodePolicy::InService),
        (NodePolicy::InService | NodePolicy::Cordoned | NodePolicy::Retired, PolicyCommand::Retire) => {
            Ok(NodePolicy::Retired)
        }
        (NodePolicy::Retired, PolicyCommand::Cordon | PolicyCommand::Uncordon) => Err(PolicyRefused::Retired),
        (NodePolicy::Cordoned, PolicyCommand::Unretire) => Err(PolicyRefused::Cordoned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_result_in_every_policy() {
        use NodePolicy::{Cordoned, InService, Retired};
        use PolicyCommand::{Cordon, Retire, Uncordon, Unretire};
        for (now, command, expected) in [
            (InService, Cordon, Ok(Cordoned)),
            (InService, Uncordon, Ok(InService)),
            (InService, Retire, Ok(Retired)),
            (InService, Unretire, Ok(InService)),
            (Cordoned, Cordon, Ok(Cordoned)),
            (Cordoned, Uncordon, Ok(InService)),
            (Cordoned, Retire, Ok(Retired)),
            (Cordoned, Unretire, Err(PolicyRefused::Cordoned)),
            (Retired, Cordon, Err(PolicyRefused::Retired)),
            (Retired, Uncordon, Err(PolicyRefused::Retired)),
            (Retired, Retire, Ok(Retired)),
            (Retired, Unretire, Ok(InService)),
        ] {
            assert_eq!(decide(now, command), expected, "{now:?} {command:?}");
        }
    }

    #[test]
    fn policy_record_is_flat() {
        let record = PolicyRecord {
            policy: NodePolicy::Cordoned,
            by: "ada".into(),
            reason: "disk swap".into(),
            since: "2026-11-15T10:00:00Z".parse().unwrap(),
            keeps: None,
        };
        let text = r#"{"policy":"cordoned","by":"ada","reason":"disk swap","since":"2026-11-15T10:00:00Z"}"#;
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
        assert_eq!(serde_json::from_str::<PolicyRecord>(text).unwrap(), record);
        let row = NodePolicyRow { node: NodeName::new("web1").unwrap(), record };
        assert_eq!(row.to_string(), "web1 is cordoned by ada: disk swap");
        for policy in [NodePolicy::InService, NodePolicy::Cordoned, NodePolicy::Retired] {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.word());
        }
    }
}
