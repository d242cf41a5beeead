//! Service state of a node: the result of its last run or validation, as stored in `status/…`.
//!
//! The store keeps result and version. The state that operators see, [`NodeState`], is derived from it together with the
//! machine, the connection and the activity of the agent, which are not in this key.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::Version;
use crate::node::status::NodeState;

/// A node is in at most one service state, at one version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ServiceState {
    Configured { result: ConfigureResult, version: Version },
    Validated { result: ValidationResult, version: Version },
}

/// Result of the applier's last run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConfigureResult {
    Success,
    Failure,
    /// Stopped because something it needs from another node is missing. Not a failure.
    Pending,
}

/// Result of the last validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ValidationResult {
    Success,
    Failure,
}

impl ServiceState {
    pub fn version(&self) -> &Version {
        match self {
            ServiceState::Configured { version, .. } | ServiceState::Validated { version, .. } => version,
        }
    }

    /// Returns whether the last validation passed.
    pub fn is_validated(&self) -> bool {
        matches!(self, ServiceState::Validated { result: ValidationResult::Success, .. })
    }

    pub fn is_failure(&self) -> bool {
        match self {
            ServiceState::Configured { result, .. } => *result == ConfigureResult::Failure,
            ServiceState::Validated { result, .. } => *result == ValidationResult::Failure,
        }
    }

    pub fn is_pending(&self) -> bool {
        matches!(self, ServiceState::Configured { result: ConfigureResult::Pending, .. })
    }

    /// All states at a version.
    pub fn all_at(version: &Version) -> Vec<ServiceState> {
        let configured = [ConfigureResult::Success, ConfigureResult::Failure, ConfigureResult::Pending];
        let validated = [ValidationResult::Success, ValidationResult::Failure];
        let configured = configured.map(|result| ServiceState::Configured { result, version: version.clone() });
        let validated = validated.map(|result| ServiceState::Validated { result, version: version.clone() });
        configured.into_iter().chain(validated).collect()
    }

    /// The state that operators see when nothing else is known of the node.
    pub fn node_state(&self) -> NodeState {
        match self {
            ServiceState::Configured { result: ConfigureResult::Success, .. } => NodeState::Configured,
            ServiceState::Configured { result: ConfigureResult::Failure, .. } => NodeState::Failed,
            ServiceState::Configured { result: ConfigureResult::Pending, .. } => NodeState::Pending,
            ServiceState::Validated { result: ValidationResult::Success, .. } => NodeState::Validated,
            ServiceState::Validated { result: ValidationResult::Failure, .. } => NodeState::Invalid,
        }
    }

    /// Name of [`ServiceState::node_state`]: `validated`, `pending`, `configured`, `failed` or `invalid`.
    pub fn word(&self) -> &'static str {
        self.node_state().as_str()
    }
}

impl ConfigureResult {
    pub fn as_str(self) -> &'static str {
        match self {
            ConfigureResult::Success => "success",
            ConfigureResult::Failure => "failure",
            ConfigureResult::Pending => "pending",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Success, Self::Failure, Self::Pending].into_iter().find(|c| c.as_str() == text)
    }
}

impl ValidationResult {
    pub fn as_str(self) -> &'static str {
        match self {
            ValidationResult::Success => "success",
            ValidationResult::Failure => "failure",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Success, Self::Failure].into_iter().find(|v| v.as_str() == text)
    }
}

impl fmt::Display for ServiceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
