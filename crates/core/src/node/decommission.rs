//! Decommissioning: nodes that leave, and the nodes that still use them.
//!
//! A leaving node is removed from its role at once. Nodes whose last run looked that role or its services up are woken, as by any
//! change. The machine keeps running until all of them have run with the new value, or until a timeout of two minutes.
//! Reports record what a run looked up and saw, so every server can decide this, also after a restart. A node that is
//! silent, fails or waits delays another one by the timeout at most.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fleet::{Fleet, Node};
use crate::lookup::services::Services;
use crate::lookup::{LookupKey, Lookups, Tag};
use crate::names::{NodeName, Role};
use crate::node::record::Decommission;

/// Time that dependent nodes have to run. A Puppet run takes seconds to about a minute; a node that has not run by then
/// does not run at all.
pub const DRAIN_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// Starts decommissioning a node.
pub fn begin(now: Timestamp) -> Decommission {
    Decommission { since: now, until: now.saturating_add(DRAIN_TIMEOUT).unwrap_or(Timestamp::MAX) }
}

/// Role lookups of a run, with the tags that it observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleLookups {
    #[serde(default, skip_serializing_if = "Lookups::is_empty")]
    keys: Lookups,
    /// More lookups than are recorded. The run may have looked up anything.
    #[serde(rename = "too_much", default, skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

impl RoleLookups {
    pub fn new(lookups: &Lookups) -> Self {
        let of_role = lookups.iter().filter(|(key, _)| role(key).is_some() || is_wide(key));
        Self { keys: of_role.map(|(key, tag)| (key.clone(), tag.clone())).collect(), truncated: false }
    }

    pub fn truncated() -> Self {
        Self { keys: Lookups::new(), truncated: true }
    }

    /// Returns whether nodes of more than one role may be read: all roles, a service, or unknown lookups.
    pub fn is_wide(&self) -> bool {
        self.truncated || self.keys.keys().any(|key| is_wide(key))
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn roles(&self) -> BTreeSet<Role> {
        self.keys.keys().filter_map(|key| Role::new(role(key)?).ok()).collect()
    }

    /// Lookups that a node of this role with these services is part of.
    fn of_node<'a>(&'a self, of: &'a Role, services: &'a Services) -> impl Iterator<Item = (&'a String, &'a Tag)> {
        self.keys.iter().filter(move |(key, _)| match LookupKey::parse(key) {
            LookupKey::ActiveRoles => true,
            LookupKey::ActiveRole { role } | LookupKey::ActiveRoleInterface { role, .. } => role == of.as_str(),
            LookupKey::Service { name } => services.contains_key(name),
            LookupKey::Leader { .. }
            | LookupKey::Published { .. }
            | LookupKey::Datum { .. }
            | LookupKey::SelfValue { .. }
            | LookupKey::Unknown => false,
        })
    }

    /// Returns whether the run may have used the node.
    fn concerns(&self, of: &Role, services: &Services) -> bool {
        self.truncated || self.of_node(of, services).next().is_some()
    }

    /// Returns whether the run observed another value than the current one.
    fn differs(&self, fleet: &Fleet, of: &Role, services: &Services) -> bool {
        self.truncated || self.of_node(of, services).any(|(key, tag)| fleet.tag(key, None) != *tag)
    }
}

/// Returns whether a lookup returns nodes of any role.
fn is_wide(key: &str) -> bool {
    matches!(LookupKey::parse(key), LookupKey::ActiveRoles | LookupKey::Service { .. })
}

/// Role of an `active_roles` lookup key.
fn role(key: &str) -> Option<&str> {
    match LookupKey::parse(key) {
        LookupKey::ActiveRole { role } | LookupKey::ActiveRoleInterface { role, .. } => Some(role),
        LookupKey::ActiveRoles
        | LookupKey::Leader { .. }
        | LookupKey::Published { .. }
        | LookupKey::Service { .. }
        | LookupKey::Datum { .. }
        | LookupKey::SelfValue { .. }
        | LookupKey::Unknown => None,
    }
}

/// Time at which a node joined its role, if it left within the timeout after that. A run that the join started may not
/// be reported yet.
fn joined_shortly_before_leaving(node: &Node) -> Option<Timestamp> {
    let left = node.record.as_ref()?.leaving?.since;
    let (observed, _) = node.observed.as_ref()?;
    observed.since.filter(|joined| left.duration_since(*joined) < DRAIN_TIMEOUT)
}

/// Nodes that have yet to run without a leaving node. Nodes that leave themselves do not count.
pub fn dependents(fleet: &Fleet, node: &Node) -> Vec<NodeName> {
    let Some(record) = &node.record else { return Vec::new() };
    // A node that never validated was in no lookup.
    let Some((left, _)) = node.observed.as_ref().filter(|(observed, _)| observed.passed.is_some()) else {
        return Vec::new();
    };
    let joined = joined_shortly_before_leaving(node);
    let has_not_run_since = |name: &&NodeName| {
        let other = fleet.get(name).filter(|other| other.is_designed());
        let observed = other.and_then(|other| other.observed.as_ref());
        observed.is_some_and(|(observed, _)| {
            // The last report may be from before the node joined while a run that saw it is still in progress.
            let ran_before = |joined| observed.last.as_ref().is_some_and(|last| last.started < joined);
            let (seen, role, services) = (&observed.looked_up, &record.role, &left.services);
            seen.differs(fleet, role, services) || (seen.concerns(role, services) && joined.is_some_and(ran_before))
        })
    };
    fleet.role_readers(&record.role).filter(has_not_run_since).cloned().collect()
}
