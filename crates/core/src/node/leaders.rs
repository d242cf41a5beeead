//! Who leads each role: one node at a time, and the same one for as long as it can.
//!
//! A leader is live and in service. It is one that others count on if the role has any; else the first that is connected,
//! since a fresh fleet could never start otherwise. Whoever leads goes on leading until it cannot: a node that comes back
//! does not take the place again.
//!
//! Each election has a higher epoch than all before it, so that content can pass it on as a fencing token: whoever holds
//! an older one speaks for a leader that is none any more. The epoch outlives the leader, the role and a restore from a
//! backup, of which the elections since are lost: it is never below the epoch of the store, which is the second at which the
//! store's life began, and a role sees no more than one election a second over time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fleet::{Fleet, Node};
use crate::keys::Keys;
use crate::names::{NodeName, Role};
use crate::node::liveness::{self, Link, LivenessInput, LivenessTimeouts};
use crate::node::record::NodeRecord;
use crate::txn::{Guard, Op, Revision, Txn};

/// `leaders/<role>`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaderRecord {
    /// None while nobody can lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Grows with each election, and never goes back.
    pub epoch: u64,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// Another leader of a role, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderChange {
    pub role: Role,
    /// What was seen of its key: fences the change.
    pub before: Option<(LeaderRecord, Revision)>,
    pub now: LeaderRecord,
    pub because: ElectionCause,
}

/// Why a role gets another leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionCause {
    /// It had none.
    Vacant,
    /// Its agent has been silent for too long.
    Lost,
    /// The design does not want it any more, or wants something else of it.
    Left,
    /// Others do not count on it, and there are some on whom they do.
    NotActive,
    /// The store was restored: what was said in its last life may have been of a later epoch.
    Restored,
}

impl fmt::Display for ElectionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ElectionCause::Vacant => "it had no leader",
            ElectionCause::Lost => "its leader is lost",
            ElectionCause::Left => "its leader left it",
            ElectionCause::NotActive => "its leader is not in service, and others are",
            ElectionCause::Restored => "the store was restored, and earlier epochs are not to be trusted",
        })
    }
}

/// What to do about leaders, and when to look again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectionDecision {
    pub changes: Vec<LeaderChange>,
    /// Nothing changes before this moment, unless something else does.
    pub recheck: Option<Timestamp>,
}

impl LeaderChange {
    /// The change as a transaction. Refused if the record is not the one that was seen, or the one that is to lead has
    /// left meanwhile.
    pub fn txn(&self, fleet: &Fleet) -> Result<Txn, serde_json::Error> {
        let keys = Keys::new(&fleet.env);
        let key = keys.leader(&self.role);
        let mut txn = Txn::new().guard(Guard::observed(key.clone(), self.before.as_ref().map(|(_, at)| *at)));
        if let Some(node) = &self.now.node {
            let record_at = fleet.get(node).and_then(|node| node.record_at);
            txn = txn.guard(Guard::observed(keys.node(node), record_at));
        }
        Ok(txn.op(Op::put_json(key, &self.now)?))
    }
}

/// One node that could lead.
struct Member<'a> {
    name: &'a NodeName,
    position: u32,
    connected: bool,
    active: bool,
}

/// Decides who leads. Writes nothing in an environment that is being restored or destroyed: what is there is not what
/// will be.
pub fn decide(
    fleet: &Fleet,
    link: impl Fn(&NodeName) -> Link,
    patience: LivenessTimeouts,
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
    // By the same rules as for all who are counted on: patience, grace, and domains in which too many are silent at once.
    let seen = serving.iter().zip(&links).map(|((name, node, record), link)| LivenessInput {
        node: name,
        failure_domain: &record.failure_domain,
        link: *link,
        fit: false,
        active: node.active().is_some() || leading.contains(*name),
    });
    let liveness = liveness::decide(seen, patience, listening_since, now);
    let lost: BTreeSet<NodeName> = liveness.withdraw.into_iter().collect();

    let mut roles: BTreeMap<&Role, Vec<Member<'_>>> = fleet.leaders().keys().map(|role| (role, Vec::new())).collect();
    for ((name, node, record), link) in serving.into_iter().zip(links) {
        let NodeRecord { role, position, .. } = record;
        let connected = matches!(link, Link::Connected { .. });
        let members = roles.entry(role).or_default();
        if !lost.contains(name) {
            members.push(Member { name, position: *position, connected, active: node.active().is_some() });
        }
    }
    let unreadable = |role: &Role| fleet.unreadable().contains_key(&Keys::new(&fleet.env).leader(role));
    let changes = roles.into_iter().filter(|(role, _)| !unreadable(role));
    let changes = changes.filter_map(|(role, members)| elect(fleet, role, &members, &lost, now)).collect();
    ElectionDecision { changes, recheck: liveness.recheck }
}

/// Who is to lead a role, if that is not as it is.
fn elect(
    fleet: &Fleet,
    role: &Role,
    members: &[Member<'_>],
    lost: &BTreeSet<NodeName>,
    now: Timestamp,
) -> Option<LeaderChange> {
    let before = fleet.leaders().get(role).cloned();
    let leader = before.as_ref().and_then(|(record, _)| record.node.as_ref());
    let epoch = before.as_ref().map_or(0, |(record, _)| record.epoch);
    let is_leader = |member: &&Member<'_>| leader == Some(member.name);
    let any_active = members.iter().any(|member| member.active);
    // A leader that is silent for a moment is not replaced by one that happens to be connected.
    let could = |member: &&Member<'_>| {
        if any_active { member.active } else { member.connected || is_leader(member) }
    };
    let candidates = || members.iter().filter(could);
    let stays = candidates().find(is_leader);
    let is_current = epoch >= fleet.epoch();
    if stays.is_some() && is_current {
        return None;
    }
    let first = || candidates().min_by_key(|member| (!member.connected, member.position, member.name.natural()));
    let node = stays.or_else(first).map(|member| member.name.clone());
    if node.is_none() && leader.is_none() {
        return None;
    }
    let because = match leader {
        None => ElectionCause::Vacant,
        Some(_) if stays.is_some() => ElectionCause::Restored,
        Some(leader) if lost.contains(leader) => ElectionCause::Lost,
        Some(leader) if members.iter().any(|member| member.name == leader) => ElectionCause::NotActive,
        Some(_) => ElectionCause::Left,
    };
    let epoch = if node.is_some() { epoch.saturating_add(1).max(fleet.epoch()) } else { epoch };
    Some(LeaderChange { role: role.clone(), before, now: LeaderRecord { node, epoch, since: now }, because })
}

/// Its machine is being given back: nothing that it is told to lead would be led for long.
fn is_released(node: &Node) -> bool {
    node.machine.as_ref().is_some_and(|(machine, _)| machine.phase.is_releasing())
}
