//! Names: one type for each, holding only legal values.
//!
//! A role is data and is never parsed from a node's name. The name is *built* from the role: `<role><num>[_<stack>]`. A role does
//! not end in a digit, and its `_` stand between letters, so people can read the name in both directions.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use thiserror::Error;
use utoipa::ToSchema;

use crate::lookup::explain::without_prefix;

/// An illegal name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text:?} is not a legal {what}: {rule}")]
pub struct NameError {
    pub what: &'static str,
    pub text: String,
    pub rule: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $rule:expr, $pattern:expr, $legal:path) => {
        $(#[$doc])*
        // A view holds the same name in a dozen places, and one decision reads thousands of names. Copies share the
        // text.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, ToSchema)]
        #[serde(try_from = "String")]
        #[schema(value_type = String, description = $rule, pattern = $pattern)]
        pub struct $type(std::sync::Arc<str>);

        impl $type {
            /// Rule for legal names, for error messages.
            pub const RULE: &'static str = $rule;
            /// Regular expression for documents. It bounds the length only where the parts of a name have one each.
            pub const PATTERN: &'static str = $pattern;

            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                if $legal(&text) {
                    Ok(Self(text.into()))
                } else {
                    Err(NameError { what: $what, text, rule: Self::RULE })
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}
pub(crate) use name;

name!(
    /// One environment: a fleet with its own key prefix.
    EnvName, "environment name",
    "1 to 63 of a-z, 0-9, '-' and '_', beginning with a letter or digit",
    "^[a-z0-9][a-z0-9_-]{0,62}$",
    is_env
);
name!(
    /// Purpose of a node.
    Role, "role name",
    "a-z, 0-9, '-' and '_', at most 40 characters, beginning and ending with a letter, with a letter on both sides of each '_'; \
     otherwise the names of nodes, role and number and '_' and stack, would be ambiguous (node 2 of web1, node 12 of web)",
    "^[a-z]([a-z0-9-]*[a-z])?(_[a-z]([a-z0-9-]*[a-z])?)*$",
    is_role
);
name!(
    /// One machine: `<role><num>[_<stack>]` if an environment file generates it, or the name of its own document, such
    /// as `r1-compute-07`.
    NodeName, "node name",
    "1 to 63 of a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit, and optionally further parts after \
     '_', each 1 to 20 of the same characters, beginning and ending with a letter or digit",
    "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?(_[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?)*$",
    is_node
);
name!(
    /// Name of a machine in DNS, and name of a node for Puppet, whose CA refuses upper case.
    HostName, "host name",
    "parts of a-z, 0-9, '-' and '_' joined by '.', each of at most 63 characters that begins and ends with a letter or digit, \
     at most 253 characters in all",
    "^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?(\\.[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?)*$",
    is_host
);
name!(
    /// Suffix of node names that separates two deployments of one design.
    Stack, "stack name",
    "1 to 20 of a-z, 0-9 and '-', beginning and ending with a letter or digit",
    "^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$",
    is_stack
);
name!(
    /// A version of the configuration content.
    Version, "version",
    "1 to 64 of A-Z, a-z, 0-9, '.', '_', '+' and '-', beginning with a letter or digit",
    "^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$",
    is_version
);
name!(
    /// One run: the applier and then the validation on a node. Unique within the node.
    RunId, "run id",
    "1 to 64 of a-z, 0-9 and '-'",
    "^[a-z0-9-]{1,64}$",
    is_run
);
name!(
    /// One server process. A restarted server is another replica.
    ReplicaId, "replica id",
    "1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit",
    "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    is_replica
);

name!(
    /// Public part of a join token.
    TokenId, "token id",
    "16 of 0-9 and a-f",
    "^[0-9a-f]{16}$",
    is_token
);

name!(
    /// Id of a key that seals secrets.
    SecretKeyId, "key id",
    "16 of 0-9 and a-f",
    "^[0-9a-f]{16}$",
    is_token
);

name!(
    /// A person.
    UserName, "user name",
    "1 to 64 of a-z, 0-9, '.', '-', '_' and '@', beginning with a letter or digit",
    "^[a-z0-9][a-z0-9.@_-]{0,63}$",
    is_user
);

name!(
    /// A service that nodes offer, such as `http`.
    ServiceName, "service name",
    "1 to 40 of a-z, 0-9, '-' and '_', beginning with a letter",
    "^[a-z][a-z0-9_-]{0,39}$",
    is_service
);

name!(
    /// Key of configuration data and published values: a plain Hiera key. Dots are not legal: Hiera reads a dot as
    /// access into a hash.
    DataKey, "data key",
    "1 to 200 of A-Z, a-z, 0-9, '_' and '-' in parts joined by '::', each beginning with a letter or '_'; neither \
     'lookup_options' nor a lookup such as 'muster::leader::…', which have a meaning already",
    "^[A-Za-z_][A-Za-z0-9_-]*(::[A-Za-z_][A-Za-z0-9_-]*)*$",
    is_data_key
);

impl NodeName {
    /// Builds the name of node `number` of a role.
    pub fn build(role: &Role, number: u32, stack: Option<&Stack>) -> Result<Self, NameError> {
        Self::new(match stack {
            None => format!("{role}{number}"),
            Some(stack) => format!("{role}{number}_{stack}"),
        })
    }

    /// Host name of a node whose design sets none: the node name with `_` replaced by `-`, which host names do not allow.
    pub fn host(&self) -> String {
        self.0.replace('_', "-")
    }

    /// Sort key that puts `web2` before `web10`.
    pub fn natural(&self) -> (&str, u32, &str) {
        split_node(&self.0).unwrap_or((&self.0, 0, ""))
    }
}

fn within(text: &str, longest: usize) -> bool {
    !text.is_empty() && text.len() <= longest
}

fn is_env(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    within(text, 63) && text.bytes().all(legal) && text.as_bytes()[0].is_ascii_alphanumeric()
}

fn is_service(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    within(text, 40) && text.bytes().all(legal) && text.as_bytes()[0].is_ascii_lowercase()
}

fn is_role(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let letter = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase());
    let part = |part: &str| part.bytes().all(legal) && letter(part.bytes().next()) && letter(part.bytes().next_back());
    within(text, 40) && text.split('_').all(part)
}

fn is_host(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    let end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let part = |part: &str| {
        within(part, 63) && part.bytes().all(legal) && end(part.bytes().next()) && end(part.bytes().next_back())
    };
    within(text, 253) && text.split('.').all(part)
}

fn is_stack(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let bytes = text.as_bytes();
    within(text, 20) && bytes.iter().copied().all(legal) && bytes[0] != b'-' && bytes[bytes.len() - 1] != b'-'
}

fn is_user(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_' | b'@');
    within(text, 64) && text.bytes().all(legal) && text.as_bytes()[0].is_ascii_alphanumeric()
}

fn is_token(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_replica(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let bytes = text.as_bytes();
    within(text, 63) && bytes.iter().copied().all(legal) && bytes[0] != b'-' && bytes[bytes.len() - 1] != b'-'
}

fn is_version(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'+' | b'-');
    within(text, 64) && text.bytes().all(legal) && text.as_bytes()[0].is_ascii_alphanumeric()
}

fn is_data_key(text: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    within(text, 200) && text.split("::").all(part) && text != "lookup_options" && without_prefix(text).is_none()
}

fn is_run(text: &str) -> bool {
    within(text, 64) && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn is_node(text: &str) -> bool {
    let mut parts = text.split('_');
    let base = parts.next().unwrap_or_default();
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    within(base, 63)
        && base.bytes().all(legal)
        && base.starts_with(|c: char| c.is_ascii_lowercase())
        && !base.ends_with('-')
        && parts.all(is_stack)
}

/// Splits a node name into role, number and stack. The split is unique: roles end in a letter, and the stack follows
/// the first `_` after a digit, which no role contains.
fn split_node(text: &str) -> Option<(&str, u32, &str)> {
    let after_digit = |(at, _): &(usize, &str)| text[..*at].ends_with(|c: char| c.is_ascii_digit());
    let (base, stack) = match text.match_indices('_').find(after_digit) {
        None => (text, ""),
        Some((at, _)) => (&text[..at], &text[at + 1..]),
    };
    let digits = base.len() - base.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (role, number) = base.split_at(digits);
    if number.starts_with('0') {
        return None;
    }
    Some((role, number.parse().ok()?, stack))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_are_built_and_refused() {
        let build = |role: &str, number, stack: Option<&str>| {
            let stack = stack.map(|s| Stack::new(s).unwrap());
            NodeName::build(&Role::new(role).unwrap(), number, stack.as_ref()).map(String::from)
        };
        assert_eq!(build("web", 1, None).unwrap(), "web1");
        assert_eq!(build("k8s-node", 12, Some("blue")).unwrap(), "k8s-node12_blue");
        assert_eq!(NodeName::new("web1_blue").unwrap().host(), "web1-blue");
        assert_eq!(build("my_db", 2, Some("blue")).unwrap(), "my_db2_blue");
        for good in ["web", "web01", "r1-compute-07", "web1_blue", "a", "web1_a_b", "a_1"] {
            assert!(NodeName::new(good).is_ok(), "{good:?} must be accepted");
        }
        let long = "w".repeat(64);
        for bad in ["", "1", "Web1", "web1_", "web1_-x", "web-", "9web1", "web1 ", "web1/x", "web1__b", "web.1", &long]
        {
            assert!(NodeName::new(bad).is_err(), "{bad:?} must be refused");
        }
    }

    macro_rules! assert_pattern {
        ($($type:ident),*) => {
            $(proptest::proptest!(|(text in proptest::string::string_regex($type::PATTERN.trim_matches(['^', '$'])).unwrap())| {
                proptest::prop_assert!(text.len() > 40 || $type::new(text.as_str()).is_ok(), "{text:?}");
            });)*
        };
    }

    #[test]
    fn names_of_the_documented_pattern_are_legal() {
        assert_pattern!(
            EnvName,
            Role,
            NodeName,
            HostName,
            Stack,
            Version,
            RunId,
            ReplicaId,
            TokenId,
            SecretKeyId,
            UserName
        );
        assert_pattern!(ServiceName, DataKey);
    }

    #[test]
    fn natural_order_is_numeric() {
        let mut names: Vec<_> =
            ["web10", "my_db10", "my_db9_b", "db1", "web2"].into_iter().map(|n| NodeName::new(n).unwrap()).collect();
        names.sort_by(|a, b| a.natural().cmp(&b.natural()));
        assert_eq!(
            names.iter().map(NodeName::as_str).collect::<Vec<_>>(),
            ["db1", "my_db9_b", "my_db10", "web2", "web10"]
        );
    }

    #[test]
    fn roles_are_data_but_never_end_in_a_digit() {
        for good in ["a", "web", "k8s-node", "st-x", "my_db", "a_b_c", "k8s_node"] {
            assert!(Role::new(good).is_ok(), "{good:?}");
        }
        // Node 2 of role `web1_a` would be `web1_a2`, as node 1 of `web` in stack `a2`.
        for bad in ["", "web1", "-a", "a-", "Web", "ä", "_a", "a_", "a__b", "web1_a", "a_1b"] {
            assert!(Role::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn versions_accept_release_tool_names() {
        for good in ["v1", "2026.11.15", "1.2.3-rc.1+build_7", "0"] {
            assert!(Version::new(good).is_ok(), "{good:?}");
        }
        for bad in ["", ".1", "v/1", "v 1", &"x".repeat(65)] {
            assert!(Version::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn name_error_states_the_rule() {
        let refusal = Role::new("web1").unwrap_err().to_string();
        assert!(refusal.starts_with("\"web1\" is not a legal role name: a-z, 0-9, '-' and '_',"), "{refusal}");
        assert!(refusal.contains("node 2 of web1, node 12 of web"), "{refusal}");
    }
}
