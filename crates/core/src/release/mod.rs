//! Releases: the registered record, the content (`release.yaml` and its files), and the signed manifest.

pub mod dir;
pub mod environment_conf;
pub mod manifest;
pub mod puppet_settings;
pub mod services;
pub mod spec;
pub mod timed_runs;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{Role, Version};
use manifest::SignedManifest;
use spec::ReleaseSpec;
use timed_runs::TimedRuns;

/// `releases/<version>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseRecord {
    /// Digest of the bundle, and name of its blob.
    pub digest: String,
    /// Grows with each release. A node moves to a lower serial only with permission.
    pub serial: u64,
    /// Size of the bundle in bytes.
    pub size: u64,
    /// Digest of the unpacked content.
    pub content: String,
    /// Signed by the builder. Agents trust this field only.
    pub signed: SignedManifest,
    #[schema(value_type = String, format = DateTime)]
    pub pushed: Timestamp,
    pub by: String,
    /// Roles that its checks are for, and its timed runs. None in records of older servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<ReleaseChecks>,
}

/// Roles that the checks of a release are for, and its timed runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseChecks {
    /// A check names no role: it is for every node.
    pub for_all: bool,
    /// Roles that checks name.
    pub roles: BTreeSet<Role>,
    /// None in records of older servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_runs: Option<TimedRuns>,
}

impl ReleaseChecks {
    pub fn new(spec: &ReleaseSpec) -> Self {
        let for_all = spec.validate.iter().any(|check| check.roles.is_empty());
        let roles = spec.validate.iter().flat_map(|check| check.roles.iter().cloned()).collect();
        let timed_runs = Some(TimedRuns { run_every: spec.run_every, drift: spec.drift });
        Self { for_all, roles, timed_runs }
    }

    /// Roles that checks name and the environment does not have. Nothing is known about an environment without nodes.
    pub fn unknown_roles(&self, roles: &BTreeSet<Role>) -> Vec<Role> {
        if roles.is_empty() { Vec::new() } else { self.roles.difference(roles).cloned().collect() }
    }

    /// Roles of the environment whose nodes are validated without any check.
    pub fn unchecked_roles(&self, roles: &BTreeSet<Role>) -> Vec<Role> {
        if self.for_all { Vec::new() } else { roles.difference(&self.roles).cloned().collect() }
    }
}

/// `allow_older`: written with `current_version` when an operator moves nodes to an earlier release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllowOlder {
    pub version: Version,
    pub by: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_without_checks_and_unknown_roles_are_found() {
        let roles = |names: &[&str]| names.iter().map(|name| Role::new(*name).unwrap()).collect::<BTreeSet<_>>();
        let checks = |checks: serde_json::Value| {
            let spec = serde_json::json!({"applier": "script", "manifest": "run", "validate": checks});
            ReleaseChecks::new(&serde_json::from_value(spec).unwrap())
        };
        let some = checks(serde_json::json!([{"name": "up", "tcp": "x:1", "roles": ["web", "wbe"]}]));
        let env = roles(&["db", "web"]);
        assert_eq!(some.unknown_roles(&env), [Role::new("wbe").unwrap()]);
        assert_eq!(some.unchecked_roles(&env), [Role::new("db").unwrap()]);
        assert!(some.unknown_roles(&roles(&[])).is_empty());
        let all = checks(serde_json::json!([{"name": "up", "tcp": "x:1"}]));
        assert!(all.unknown_roles(&env).is_empty() && all.unchecked_roles(&env).is_empty());
        assert_eq!(checks(serde_json::json!([])).unchecked_roles(&env).len(), 2);
    }
}
