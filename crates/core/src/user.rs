//! People: users, their roles in each environment, and their tokens.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::identity::TokenHash;
use crate::names::{EnvName, NameError, TokenId, UserName};

/// Longest life of a user's token.
pub const LONGEST_USER_TOKEN: SignedDuration = SignedDuration::from_hours(366 * 24);
/// Most tokens of one user: their record must fit into a value of the store.
pub const MOST_USER_TOKENS: usize = 32;

/// What a user may do. Each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UserRole {
    /// Reads.
    Viewer,
    /// Changes data, designs, releases and versions, pauses, cordons, requests runs.
    Operator,
    /// Lets rollouts pass gates that wait for a person.
    Approver,
    /// Makes tokens for machines, revokes certificates, changes trusted keys, backs up, restores and destroys.
    Admin,
}

impl UserRole {
    pub const ALL: [UserRole; 4] = [UserRole::Viewer, UserRole::Operator, UserRole::Approver, UserRole::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            UserRole::Viewer => "viewer",
            UserRole::Operator => "operator",
            UserRole::Approver => "approver",
            UserRole::Admin => "admin",
        }
    }
}

impl fmt::Display for UserRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a role of users: use viewer, operator, approver or admin")]
pub struct UnknownUserRole(String);

impl FromStr for UserRole {
    type Err = UnknownUserRole;

    fn from_str(text: &str) -> Result<Self, UnknownUserRole> {
        let found = UserRole::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| UnknownUserRole(text.to_owned()))
    }
}

/// Environments of a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RoleScope {
    /// All environments, and the server itself. Written `*`.
    Everything,
    Env(EnvName),
}

impl fmt::Display for RoleScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoleScope::Everything => f.write_str("*"),
            RoleScope::Env(env) => env.fmt(f),
        }
    }
}

impl From<RoleScope> for String {
    fn from(scope: RoleScope) -> Self {
        scope.to_string()
    }
}

impl TryFrom<String> for RoleScope {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        if text == "*" { Ok(RoleScope::Everything) } else { EnvName::new(text).map(RoleScope::Env) }
    }
}

/// Roles by environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = std::collections::BTreeMap<String, UserRole>)]
pub struct UserRoles(pub BTreeMap<RoleScope, UserRole>);

impl UserRoles {
    /// Role in an environment; none of an environment: for the server itself.
    pub fn role(&self, env: Option<&EnvName>) -> Option<UserRole> {
        let everywhere = self.0.get(&RoleScope::Everything);
        let here = env.and_then(|env| self.0.get(&RoleScope::Env(env.clone())));
        here.into_iter().chain(everywhere).max().copied()
    }
}

/// `users/<name>`: a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserRecord {
    pub roles: UserRoles,
    /// Identity at the OIDC provider, such as an address of e-mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<DisabledUser>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<TokenId, UserTokenRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DisabledUser {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub by: String,
    pub reason: String,
}

/// A token of a user, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserTokenRecord {
    pub hash: TokenHash,
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub expires: Timestamp,
    /// Purpose, such as `laptop` or `login`.
    pub note: String,
}

/// Reason why a user's token is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UserTokenRefusal {
    /// The same answer for an unknown id and a wrong secret.
    #[error("the token is not valid, or was revoked")]
    Invalid,
    #[error("the token expired at {expires}")]
    Expired { expires: Timestamp },
    #[error("the user {user} is disabled")]
    Disabled { user: UserName },
}

/// Finds the user of a presented token.
pub fn authenticate<'u>(
    users: impl Iterator<Item = (&'u UserName, &'u UserRecord)>,
    id: &TokenId,
    hash: &TokenHash,
    now: Timestamp,
) -> Result<(&'u UserName, &'u UserRecord), UserTokenRefusal> {
    let mut owners = users.filter_map(|(name, user)| Some((name, user, user.tokens.get(id)?)));
    match owners.next() {
        Some((name, user, token)) if token.hash == *hash => {
            if token.expires <= now {
                Err(UserTokenRefusal::Expired { expires: token.expires })
            } else if user.disabled.is_some() {
                Err(UserTokenRefusal::Disabled { user: name.clone() })
            } else {
                Ok((name, user))
            }
        }
        Some(_) | None => Err(UserTokenRefusal::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(disabled: bool) -> UserRecord {
        let at = Timestamp::UNIX_EPOCH;
        let token = UserTokenRecord {
            hash: TokenHash("h".to_owned()),
            created: at,
            expires: at + SignedDuration::from_secs(100),
            note: String::new(),
        };
        let roles = [("*", UserRole::Viewer), ("prod", UserRole::Operator)];
        let roles = roles.map(|(scope, role)| (RoleScope::try_from(scope.to_owned()).unwrap(), role));
        UserRecord {
            roles: UserRoles(roles.into()),
            identity: None,
            created: at,
            by: "root".to_owned(),
            disabled: disabled.then(|| DisabledUser { at, by: "root".to_owned(), reason: String::new() }),
            tokens: [(TokenId::new("0123456789abcdef").unwrap(), token)].into(),
        }
    }

    #[test]
    fn role_is_the_highest_of_the_environment_and_everything() {
        let roles = user(false).roles;
        let of = |env: &str| roles.role(Some(&EnvName::new(env).unwrap()));
        assert_eq!((of("prod"), of("test")), (Some(UserRole::Operator), Some(UserRole::Viewer)));
        assert_eq!(roles.role(None), Some(UserRole::Viewer));
        assert_eq!(UserRoles::default().role(None), None);
        assert!(UserRole::ALL.is_sorted());
        let text = serde_json::to_string(&roles).unwrap();
        assert_eq!(text, r#"{"*":"viewer","prod":"operator"}"#);
        assert_eq!(serde_json::from_str::<UserRoles>(&text).unwrap(), roles);
    }

    #[test]
    fn token_needs_its_secret_its_time_and_an_enabled_user() {
        let name = UserName::new("ann@example.org").unwrap();
        let check = |disabled: bool, id: &str, hash: &str, seconds: i64| {
            let (id, user) = (TokenId::new(id).unwrap(), user(disabled));
            let now = Timestamp::from_second(seconds).unwrap();
            authenticate([(&name, &user)].into_iter(), &id, &TokenHash(hash.to_owned()), now)
                .map(|(name, _)| name.to_string())
        };
        let good = "0123456789abcdef";
        assert_eq!(check(false, good, "h", 99).unwrap(), "ann@example.org");
        assert_eq!(check(false, good, "x", 99), Err(UserTokenRefusal::Invalid));
        assert_eq!(check(false, "0123456789abcde0", "h", 99), Err(UserTokenRefusal::Invalid));
        assert!(matches!(check(false, good, "h", 100), Err(UserTokenRefusal::Expired { .. })));
        assert!(matches!(check(true, good, "h", 99), Err(UserTokenRefusal::Disabled { .. })));
        assert_eq!(check(true, good, "x", 99), Err(UserTokenRefusal::Invalid), "nothing is told without the secret");
    }
}
