//! Nodes that leave, and who has yet to run without them.
//!
//! A node that leaves is out of its role at once, and those whose last run looked that role up are woken, as by any
//! change. Its machine goes on meanwhile: it is released when all of them have run with what is there now. Reports say
//! what a run looked up and saw, so this is known to every server, and after any restart. Nobody is waited for for ever:
//! a node that is silent, fails or waits keeps another one for two minutes and no longer.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fleet::{Fleet, Node};
use crate::lookup::{LookupKey, Lookups};
use crate::names::{NodeName, Role};
use crate::node::record::Decommission;

/// A run of Puppet takes seconds to a minute or so. Whoever has not run without a node by then does not run at all.
pub const DRAIN_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// A node that leaves now.
pub fn begin(now: Timestamp) -> Decommission {
    Decommission { since: now, until: now.saturating_add(DRAIN_TIMEOUT).unwrap_or(Timestamp::MAX) }
}

/// What a run looked up of roles, and what it saw there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleLookups {
    #[serde(default, skip_serializing_if = "Lookups::is_empty")]
    keys: Lookups,
    /// It is more than is kept: the run may have looked up anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    too_much: bool,
}

impl RoleLookups {
    pub fn of(lookups: &Lookups) -> Self {
        let of_role = lookups.iter().filter(|(key, _)| role(key).is_some());
        Self { keys: of_role.map(|(key, tag)| (key.clone(), tag.clone())).collect(), too_much: false }
    }

    pub fn too_much() -> Self {
        Self { keys: Lookups::new(), too_much: true }
    }

    pub fn is_too_much(&self) -> bool {
        self.too_much
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn roles(&self) -> BTreeSet<Role> {
        self.keys.keys().filter_map(|key| Role::new(role(key)?).ok()).collect()
    }

    /// Whether the run saw something else of a role than there is now.
    fn differs(&self, fleet: &Fleet, of: &Role) -> bool {
        let seen = self.keys.iter().filter(|(key, _)| role(key) == Some(of.as_str()));
        self.too_much || seen.into_iter().any(|(key, tag)| fleet.tag(key, None) != *tag)
    }
}

/// Whose `active_roles` a key is.
fn role(key: &str) -> Option<&str> {
    match LookupKey::parse(key) {
        LookupKey::ActiveRole { role } | LookupKey::ActiveRoleInterface { role, .. } => Some(role),
        LookupKey::Leader { .. } | LookupKey::Published { .. } | LookupKey::Datum { .. } | LookupKey::Unknown => None,
    }
}

/// When a node came into its role, if it left so soon after that a run which it woke may not have been reported yet.
fn came_just_before(node: &Node) -> Option<Timestamp> {
    let left = node.record.as_ref()?.leaving?.since;
    let (observed, _) = node.observed.as_ref()?;
    observed.since.filter(|came| left.duration_since(*came) < DRAIN_TIMEOUT)
}

/// Who has yet to run without a node that leaves. Others that leave do not count.
pub fn dependents(fleet: &Fleet, node: &Node) -> Vec<NodeName> {
    let Some(record) = &node.record else { return Vec::new() };
    // Nobody can have found a node that never passed.
    if node.observed.as_ref().is_none_or(|(observed, _)| observed.passed.is_none()) {
        return Vec::new();
    }
    let came = came_just_before(node);
    let is_behind = |name: &&NodeName| {
        let other = fleet.get(name).filter(|other| other.is_designed());
        let observed = other.and_then(|other| other.observed.as_ref());
        observed.is_some_and(|(observed, _)| {
            // What has been reported may be as if the node had never been there, while a run that has found it is under way.
            let ran_before = |came| observed.last.as_ref().is_some_and(|last| last.started < came);
            observed.looked_up.differs(fleet, &record.role) || came.is_some_and(ran_before)
        })
    };
    fleet.lookers(&record.role).filter(is_behind).cloned().collect()
}
