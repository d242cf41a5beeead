//! Response types for the keys that seal secrets.

use muster_core::lookup::config_data::Layer;
use muster_core::names::{DataKey, EnvName, SecretKeyId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Keys of the server, and the secrets that they seal. Never a key or a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretsStatus {
    /// File with the keys, on the server that answers.
    pub file: String,
    /// The newest first.
    pub keys: Vec<SecretKeyRow>,
    /// Secrets that are stored without a seal: those of an older server, which are being sealed.
    pub unsealed: usize,
    /// Secrets that are still sealed with another key than the sealing one.
    pub remaining: usize,
    /// Secrets that this server cannot open. Nodes that look them up are pending.
    pub unopened: Vec<UnopenedRow>,
    /// Reason why no secret can be sealed now, or why the newest key is not used yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretKeyRow {
    pub id: SecretKeyId,
    /// New values are sealed with it.
    pub seals: bool,
    /// Number of secrets that are sealed with it.
    pub secrets: usize,
}

/// A secret that the server cannot open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnopenedRow {
    pub env: EnvName,
    pub key: DataKey,
    #[serde(flatten)]
    pub layer: Layer,
    pub reason: String,
}

/// Response to a rotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotateResponse {
    /// The new key. None if an earlier rotation was continued.
    pub made: Option<SecretKeyId>,
    #[serde(flatten)]
    pub status: SecretsStatus,
}
