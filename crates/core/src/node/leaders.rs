//! Election of the leader of each role: one node at a time, and the same one as long as possible.
//!
//! A leader is live and in service, which a cordoned node is not. It is an active node if the role has any, else the first connected node, since a
//! new fleet could not start otherwise. A leader stays until it cannot lead. A node that returns does not take the role
//! back. A node whose agent cron starts is elected only if no other can lead: its death is noticed after two intervals.
//!
//! Each election has a higher epoch than all before, so content can use the epoch as a fencing token. The epoch
//! survives the leader, the role and a restore from a backup: it is never below the epoch of the store, which is the
//! second at which the content of the store began, and a role has at most one election per second over time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fleet::{Fleet, Node};
use crate::keys::Keys;
use crate::names::{NodeName, Role};
use crate::node::liveness::{self, Link, LivenessInput, LivenessTimeouts};
use crate::node::policy::NodePolicy;
use crate::node::record::NodeRecord;
use crate::txn::{Guard, Op, Revision, Txn};

/// `leaders/<role>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaderRecord {
    /// None while no node can lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Grows with each election and never decreases.
    pub epoch: u64,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// New leader of a role, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderChange {
    pub role: Role,
    /// Observed record, which fences the change.
    pub before: Option<(LeaderRecord, Revision)>,
    pub now: LeaderRecord,
    pub because: ElectionCause,
}

/// Cause of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionCause {
    /// The role had no leader.
    Vacant,
    /// The agent was silent for too long.
    Lost,
    /// The node left the design or has another role now.
    Left,
    /// An operator has cordoned the leader.
    Cordoned,
    /// The leader is not active, and other nodes are.
    NotActive,
    /// The store was restored. Epochs before the restore may have been higher.
    Restored,
}

impl fmt::Display for ElectionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ElectionCause::Vacant => "it had no leader",
            ElectionCause::Lost => "its leader is lost",
            ElectionCause::Left => "its leader left the role",
            ElectionCause::Cordoned => "its leader is cordoned",
            ElectionCause::NotActive => "its leader is not active, and other nodes are",
            ElectionCause::Restored => "the store was restored, and earlier epochs are not valid",
        })
    }
}

/// Elections to perform, and the time of the next check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectionDecision {
    pub changes: Vec<LeaderChange>,
    /// No election is due before this time unless the fleet changes.
    pub recheck: Option<Timestamp>,
}

impl LeaderChange {
    /// Transaction of the change. It fails if the record changed, or if the new leader left the design or was cordoned.
    pub fn txn(&self, fleet: &Fleet) -> Result<Txn, serde_json::Error> {
        let keys = Keys::new(&fleet.env);
        let key = keys.leader(&self.role);
        let mut txn = Txn::new().guard(Guard::observed(key.clone(), self.before.as_ref().map(|(_, at)| *at)));
        if let Some(node) = &self.now.node {
            let known = fleet.get(node);
            let policy_at = known.and_then(|node| node.policy.as_ref()).map(|(_, at)| *at);
            txn = txn.guard(Guard::observed(keys.node(node), known.and_then(|node| node.record_at)));
            txn = txn.guard(Guard::observed(keys.policy(node), policy_at));
        }
        Ok(txn.op(Op::put_json(key, &self.now)?))
    }
}

/// One node that could lead.
struct RoleMember<'a> {
    name: &'a NodeName,
    position: u32,
    connected: bool,
    /// Cron starts its agent.
    cron: bool,
    active: bool,
}

/// Decides the leaders. No elections in an environment that is being restored or destroyed.
pub fn decide(
    fleet: &Fleet,
    link: impl Fn(&NodeName) -> Link,
    timeouts: LivenessTimeouts,
    listening_since: Timestamp,
    now: Timestamp,
) -> ElectionDecision {
    if fleet.restoring().is_some() || fleet.destroying().is_some() {
        return ElectionDecision::default();
    }
    let leading: BTreeSet<&NodeName> =
        fleet.leaders().values().filter_map(|(leader, _)| leader.node.as_ref()).collect();
    let serving: Vec<_> = fleet.designed().filter(|(_, node, _)| !is_released(node)).collect();
    let links: Vec<Link> = serving.iter().map(|(name, ..)| link(name)).collect();
    // Same rules as for active nodes: timeout, grace period, and domains in which too many nodes are silent.
    let seen = serving.iter().zip(&links).map(|((name, node, record), link)| LivenessInput {
        node: name,
        failure_domain: &record.failure_domain,
        link: *link,
        may_be_active: false,
        active: node.active().is_some() || leading.contains(*name),
    });
    let liveness = liveness::decide(seen, timeouts, listening_since, now);
    let lost: BTreeSet<NodeName> = liveness.withdraw.into_iter().collect();

    let mut roles: BTreeMap<&Role, Vec<RoleMember<'_>>> =
        fleet.leaders().keys().map(|role| (role, Vec::new())).collect();
    for ((name, node, record), link) in serving.into_iter().zip(links) {
        let NodeRecord { role, position, .. } = record;
        let connected = link.is_live();
        let cron = node.call_interval().is_some();
        let members = roles.entry(role).or_default();
        if !lost.contains(name) && node.policy() == NodePolicy::InService {
            members.push(RoleMember { name, position: *position, connected, cron, active: node.active().is_some() });
        }
    }
    let unreadable = |role: &Role| fleet.unreadable().contains_key(&Keys::new(&fleet.env).leader(role));
    let changes = roles.into_iter().filter(|(role, _)| !unreadable(role));
    let changes = changes.filter_map(|(role, members)| elect(fleet, role, &members, &lost, now)).collect();
    ElectionDecision { changes, recheck: liveness.recheck }
}

/// Elects a leader of a role if the current one cannot stay.
fn elect(
    fleet: &Fleet,
    role: &Role,
    members: &[RoleMember<'_>],
    lost: &BTreeSet<NodeName>,
    now: Timestamp,
) -> Option<LeaderChange> {
    let before = fleet.leaders().get(role).cloned();
    let leader = before.as_ref().and_then(|(record, _)| record.node.as_ref());
    let epoch = before.as_ref().map_or(0, |(record, _)| record.epoch);
    let is_leader = |member: &&RoleMember<'_>| leader == Some(member.name);
    let any_active = members.iter().any(|member| member.active);
    // A leader that is silent for a moment is not replaced by another connected node.
    let could = |member: &&RoleMember<'_>| {
        if any_active { member.active } else { member.connected || is_leader(member) }
    };
    let candidates = || members.iter().filter(could);
    let stays = candidates().find(is_leader);
    let is_current = epoch >= fleet.epoch();
    if stays.is_some() && is_current {
        return None;
    }
    let first =
        || candidates().min_by_key(|member| (member.cron, !member.connected, member.position, member.name.natural()));
    let node = stays.or_else(first).map(|member| member.name.clone());
    if node.is_none() && leader.is_none() {
        return None;
    }
    let because = match leader {
        None => ElectionCause::Vacant,
        Some(_) if stays.is_some() => ElectionCause::Restored,
        Some(leader) if lost.contains(leader) => ElectionCause::Lost,
        Some(leader) if fleet.get(leader).is_some_and(|node| node.cordon().is_some()) => ElectionCause::Cordoned,
        Some(leader) if members.iter().any(|member| member.name == leader) => ElectionCause::NotActive,
        Some(_) => ElectionCause::Left,
    };
    let epoch = if node.is_some() { epoch.saturating_add(1).max(fleet.epoch()) } else { epoch };
    Some(LeaderChange { role: role.clone(), before, now: LeaderRecord { node, epoch, since: now }, because })
}

/// The machine is being released, so the node cannot lead for long.
fn is_released(node: &Node) -> bool {
    node.machine.as_ref().is_some_and(|(machine, _)| machine.phase.is_releasing())
}
