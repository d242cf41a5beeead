//! Joining, certificates and join tokens.

use jiff::Timestamp;
use muster_core::authority::{AuthorityPin, RotationHoldouts, RotationPhase};
use muster_core::identity::{CertificateRecord, TokenScope};
use muster_core::names::{EnvName, NodeName, Role, TokenId};
use muster_core::release::manifest::PublicKey;
use muster_core::txn::Revision;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The certificate authority, which is public.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuthorityResponse {
    /// SHA-256 of the public key of the root certificate of the authority that issues certificates.
    pub pin: AuthorityPin,
    /// The trusted root certificates, in PEM: two during a rotation.
    pub root: String,
    /// End of the root certificate of the authority that issues certificates.
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
}

/// Request to rotate the certificate authority.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateAuthority {
    /// Pin of the new authority, whose files the server has. None: the server makes one, or uses the only one that was not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<AuthorityPin>,
    /// Ends the phase of a rotation in progress now, though it has not reached every machine.
    #[serde(default)]
    pub force: bool,
}

/// The certificate authority and its rotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotationResponse {
    /// Pin of the authority that issues certificates.
    pub pin: AuthorityPin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<RotationStatus>,
    /// Replaced authorities whose clients still accept the servers.
    pub bridges: Vec<BridgeRow>,
    /// Pins of replaced authorities.
    pub retired: Vec<AuthorityPin>,
    /// The server that answers, and the directory of its authorities.
    pub host: String,
    pub directory: String,
    pub revision: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotationStatus {
    /// Pin of the new authority.
    pub pin: AuthorityPin,
    pub phase: RotationPhase,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    pub by: String,
    /// True if clients that know only the old root will accept the servers: the old authority has signed the new one.
    pub is_bridged: bool,
    /// Machines and servers that the phase has not reached.
    pub waits_for: RotationHoldouts,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BridgeRow {
    pub pin: AuthorityPin,
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
}

/// Request of a machine that has no identity yet.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    pub token: TokenId,
    pub secret: String,
    /// Certificate request, in PEM. It holds the public key and no name.
    pub request: String,
    /// Host name of the machine.
    pub host: String,
}

/// Without the secret.
impl std::fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinRequest").field("token", &self.token).field("host", &self.host).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinResponse {
    pub env: EnvName,
    pub node: NodeName,
    pub role: Role,
    #[serde(flatten)]
    pub certificate: CertificateResponse,
    /// URLs of the servers.
    pub servers: Vec<String>,
    /// Keys that sign the releases of the environment.
    pub trusted_keys: Vec<PublicKey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateResponse {
    /// The certificate, and those between it and the root, in PEM.
    pub certificate: String,
    /// Roots of servers, in PEM.
    pub roots: String,
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
}

/// Request for a new certificate, by the key of the last one.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    pub env: EnvName,
    pub node: NodeName,
    /// Certificate request, in PEM: it proves that the sender has the key.
    pub request: String,
    /// Pins of the root certificates that the machine has stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<AuthorityPin>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateToken {
    #[serde(flatten)]
    pub scope: TokenScope,
    pub uses: u32,
    pub seconds: u64,
}

/// A new join token. Its text is shown only here.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreateTokenResponse {
    pub token: String,
    #[serde(flatten)]
    pub row: TokenRow,
    pub revision: Revision,
}

/// Without the token.
impl std::fmt::Debug for CreateTokenResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreateTokenResponse").field("row", &self.row).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenRow {
    pub id: TokenId,
    #[serde(flatten)]
    pub scope: TokenScope,
    /// Machines that can still join with it.
    pub uses: u32,
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
    /// False once it has expired or was used up.
    pub usable: bool,
    pub by: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateRow {
    pub node: NodeName,
    pub state: CertificateState,
    #[serde(flatten)]
    pub certificate: CertificateRecord,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CertificateState {
    Valid,
    /// It ended, and the machine can still renew it.
    Expired,
    /// It ended too long ago: the machine needs a new token.
    Ended,
    Revoked,
}

impl CertificateState {
    pub fn as_str(self) -> &'static str {
        match self {
            CertificateState::Valid => "valid",
            CertificateState::Expired => "expired",
            CertificateState::Ended => "ended",
            CertificateState::Revoked => "revoked",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeCertificate {
    pub reason: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RevokeResponse {
    #[serde(flatten)]
    pub row: CertificateRow,
    /// False if it was revoked before.
    pub changed: bool,
    pub revision: Revision,
}
