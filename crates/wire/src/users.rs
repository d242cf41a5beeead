//! People: users, their tokens, and who is logged in.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::names::{TokenId, UserName};
use muster_core::txn::Revision;
use muster_core::user::{DisabledUser, RoleScope, UserRole, UserRoles};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The client of a request, as the server sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WhoAmI {
    /// The server's Unix socket or token.
    Administrator,
    User {
        #[serde(flatten)]
        user: Box<UserRow>,
        /// The token of the request.
        token: TokenId,
    },
}

/// A user, without hashes of tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserRow {
    pub name: UserName,
    pub roles: UserRoles,
    /// Identity at the OIDC provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<DisabledUser>,
    pub tokens: Vec<UserTokenRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserTokenRow {
    pub id: TokenId,
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
    pub note: String,
    pub usable: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateUser {
    pub name: UserName,
    pub roles: UserRoles,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

/// A change of a user. What is not set stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeUser {
    /// Roles by environment, `*` for all; null removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Object)]
    pub roles: BTreeMap<RoleScope, Option<UserRole>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserResponse {
    #[serde(flatten)]
    pub user: UserRow,
    pub revision: Revision,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateUserToken {
    pub seconds: u64,
    #[serde(default)]
    pub note: String,
}

/// A new token. The response is the only place where its secret is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserTokenResponse {
    pub user: UserName,
    pub token: String,
    #[serde(flatten)]
    pub row: UserTokenRow,
    pub revision: Revision,
}

/// Ways to log in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginMethods {
    /// The OIDC provider, if the server has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcMethod>,
}

/// An OIDC provider, and the name that the server has there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OidcMethod {
    pub issuer: String,
    pub client_id: String,
}

/// A login with the ID token of the provider.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogIn {
    pub id_token: String,
}

/// Without the token.
impl std::fmt::Debug for LogIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogIn")
    }
}
