//! The service state of a node: what its last run and its last validation left it in.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::Version;

/// In at most one of these is a node, at one version (DESIGN invariant 1). Named for what has been achieved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ServiceState {
    Configured { result: ConfigureResult, version: Version },
    Validated { result: ValidationResult, version: Version },
}

/// How the applier's last run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConfigureResult {
    Success,
    Failure,
    /// Stopped because something it needs from another node is not there yet; never a failure.
    Pending,
}

/// How the last validation ended.
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

    /// Whether the node has passed muster.
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

    /// Every state that there is at a version.
    pub fn all_at(version: &Version) -> Vec<ServiceState> {
        let configured = [ConfigureResult::Success, ConfigureResult::Failure, ConfigureResult::Pending];
        let validated = [ValidationResult::Success, ValidationResult::Failure];
        let configured = configured.map(|result| ServiceState::Configured { result, version: version.clone() });
        let validated = validated.map(|result| ServiceState::Validated { result, version: version.clone() });
        configured.into_iter().chain(validated).collect()
    }

    /// One word for people: `validated`, `pending`, `configured`, `failed` or `invalid`.
    pub fn word(&self) -> &'static str {
        match self {
            ServiceState::Configured { result: ConfigureResult::Success, .. } => "configured",
            ServiceState::Configured { result: ConfigureResult::Failure, .. } => "failed",
            ServiceState::Configured { result: ConfigureResult::Pending, .. } => "pending",
            ServiceState::Validated { result: ValidationResult::Success, .. } => "validated",
            ServiceState::Validated { result: ValidationResult::Failure, .. } => "invalid",
        }
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
