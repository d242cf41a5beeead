//! One environment in memory, built from its keys. All reads are answered from it.
//!
//! A fleet applies the changes of one transaction at a time and returns their [`Effects`]: the lookups, nodes and controllers
//! that may have to act. The cost of a change does not depend on the size of the fleet. The same keys give the same fleet, in
//! whatever order they are applied.
//!
//! - `apply`: one method for each kind of key.
//! - `changes`: the nodes that changed last.
//! - `desired`: versions that the environment and its nodes should run.
//! - `lookups`: values that nodes can look up.

mod apply;
pub mod changes;
mod desired;
mod lookups;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::design::DesignState;
use crate::identity::{CertificateRecord, Tokens};
use crate::lookup::RoleTags;
use crate::lookup::config_data::ConfigData;
use crate::lookup::published::Publications;
use crate::lookup::self_values::SelfValues;
use crate::lookup::services::ServiceIndex;
use crate::names::{EnvName, HostName, NodeName, ReplicaId, Role, Version};
use crate::node::agent::{AgentInfo, CallInterval};
use crate::node::leaders::LeaderRecord;
use crate::node::pause::{NodePause, PauseRecord, PauseScope, longest};
use crate::node::policy::{NodePolicy, NodePolicyRow, PolicyRecord};
use crate::node::record::{MachineRecord, NodeRecord, RunRequest};
use crate::node::service_state::ServiceState;
use crate::release::manifest::SignedTrust;
use crate::release::{AllowOlder, ReleaseRecord};
use crate::replica::{ControllerName, ControllerRecord, PresenceRecord, RefusedAgent, ReplicaRecord};
use crate::report::history::NodeHistory;
use crate::report::record::{ActiveRole, ObservedRecord, PastRun, StatusLeaf};
use crate::rollout::RolloutId;
use crate::rollout::record::{ActiveRollout, DesiredRecord, RolloutRecord};
use crate::txn::{Generation, Revision};

use changes::ChangeLog;

pub use desired::DesiredVersion;

/// `restoring`: the environment is being restored from a backup, or a restore was interrupted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestoreRecord {
    /// Digest of the backup file. Only the same file can complete the restore.
    pub digest: String,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Program and machine that restore.
    pub by: String,
}

/// `destroying`: the environment is being destroyed. Nothing new is accepted, its nodes leave, then its keys are deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestroyRecord {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Operator who destroys it.
    pub by: String,
}

/// State of one environment at one revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    pub env: EnvName,
    pub revision: Revision,
    lifecycle: Lifecycle,
    design: DesignState,
    versions: Versions,
    rollouts: FleetRollouts,
    leaders: BTreeMap<Role, (LeaderRecord, Revision)>,
    published: Publications,
    data: ConfigData,
    pauses: BTreeMap<PauseScope, (PauseRecord, Revision)>,
    nodes: BTreeMap<NodeName, Node>,
    tokens: Tokens,
    index: NodeIndex,
    servers: Servers,
    /// Keys whose value cannot be read, with the error.
    unreadable: BTreeMap<String, String>,
    changes: ChangeLog,
}

/// Begin and end of the environment.
#[derive(Clone, Debug, Default, PartialEq)]
struct Lifecycle {
    epoch: u64,
    epoch_at: Option<Revision>,
    restoring: Option<RestoreRecord>,
    destroying: Option<(DestroyRecord, Revision)>,
}

/// Current version, and the releases to choose from.
#[derive(Clone, Debug, Default, PartialEq)]
struct Versions {
    current: Option<(Version, Revision)>,
    allow_older: Option<(AllowOlder, Revision)>,
    releases: BTreeMap<Version, ReleaseRecord>,
    trust: Option<(SignedTrust, Revision)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct FleetRollouts {
    /// The rollout that decides the version of nodes without a grant.
    active: Option<(ActiveRollout, Revision)>,
    /// `rollouts/active` exists and cannot be read. No node has a desired version then.
    active_unreadable: bool,
    records: BTreeMap<RolloutId, (RolloutRecord, Revision)>,
}

/// Sets that are kept up to date with each change. Computing them for each read would cost too much in a large fleet.
#[derive(Clone, Debug, Default, PartialEq)]
struct NodeIndex {
    roles: BTreeMap<Role, RoleMembers>,
    /// Nodes with a host name of their own.
    hosts: BTreeMap<HostName, BTreeSet<NodeName>>,
    /// Hashed: `verify-hosts` asks for thousands of hosts at a time.
    running: BTreeMap<Version, HashSet<NodeName>>,
    /// Services of active nodes.
    services: ServiceIndex,
    /// Nodes whose last run looked a role up.
    role_readers: BTreeMap<Role, BTreeSet<NodeName>>,
    /// Nodes whose last run looked up all roles, a service, or more than is recorded. They count as readers of every role.
    wide_readers: BTreeSet<NodeName>,
    late: BTreeSet<NodeName>,
    unproven: BTreeSet<NodeName>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct RoleMembers {
    /// Number of nodes with this role in the design.
    members: usize,
    active: BTreeSet<NodeName>,
    tags: RoleTags,
}

impl RoleMembers {
    fn is_empty(&self) -> bool {
        self.members == 0 && self.active.is_empty()
    }
}

/// Live servers, and the controllers that they hold.
#[derive(Clone, Debug, Default, PartialEq)]
struct Servers {
    replicas: BTreeMap<ReplicaId, (ReplicaRecord, Revision)>,
    controllers: BTreeMap<ControllerName, (ControllerRecord, Revision)>,
}

/// State of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// None for a node that is not in the design but still has keys.
    pub record: Option<NodeRecord>,
    /// Revision of `nodes/<node>`. It fences writes that rely on the design.
    pub record_at: Option<Revision>,
    pub machine: Option<(MachineRecord, Revision)>,
    pub provisioned: Option<bool>,
    /// Set while an operator has cordoned or retired the node. A retired node may have no other key.
    pub policy: Option<(PolicyRecord, Revision)>,
    pub observed: Option<(ObservedRecord, Revision)>,
    /// At most one. Two states are a violated invariant and are shown as they are.
    pub states: BTreeMap<ServiceState, StatusLeaf>,
    /// Revision at which the state was written.
    pub state_at: Option<Revision>,
    pub running: BTreeSet<Version>,
    pub active: BTreeMap<Version, (ActiveRole, Revision)>,
    /// Replica that the agent is connected to.
    pub presence: Option<(PresenceRecord, Revision)>,
    /// Grant of a rollout. [`Fleet::desired_of`] decides whether it is still valid.
    pub desired: Option<(DesiredRecord, Revision)>,
    /// The grant cannot be read. The node keeps the version that it was last sent.
    pub desired_unreadable: bool,
    /// Last run that an operator requested.
    pub run_request: Option<(RunRequest, Revision)>,
    /// Key of the node's machine. Without one no machine has this identity.
    pub certificate: Option<(CertificateRecord, Revision)>,
    /// Values of the node in the applied design, as stored. They are decoded when they are looked up.
    pub self_text: Option<Box<str>>,
    /// Keys of the runs in the history. Their values are only in the store.
    pub history: NodeHistory,
}

/// One changed key. Without a value the key was deleted.
#[derive(Clone, Copy, Debug)]
pub struct KeyChange<'a> {
    pub key: &'a str,
    pub value: Option<&'a [u8]>,
    pub revision: Revision,
}

/// Agents, lookups and controllers that a transaction may concern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Lookup keys with a new value.
    pub lookups: BTreeSet<String>,
    /// Roles that were added or removed. All lookups of these roles have new values.
    pub roles: BTreeSet<Role>,
    /// Nodes with any change.
    pub nodes: BTreeSet<NodeName>,
    /// The desired version of nodes without a grant, or a pause, may have changed.
    pub desired: bool,
    /// Nodes with a requested run, a grant, another policy, role or host name, or other values of their own.
    pub addressed_nodes: BTreeSet<NodeName>,
    /// A rollout changed. Concerns the rollout controller, no agent.
    pub rollouts: bool,
    /// The leader of a role may have changed.
    pub leaders: bool,
    /// The design has a new revision, another revision was applied, or the environment is being destroyed.
    pub design: bool,
    /// A node record changed. Concerns the provision controller, no agent.
    pub records: bool,
    /// A certificate was issued, revoked or deleted. Concerns connections, no running agent.
    pub identities: bool,
    /// Replicas, controllers, connections of agents, or the epoch changed. Concerns servers, no agent.
    pub servers: bool,
}

impl Node {
    /// Returns whether the node is in the design and not leaving.
    pub fn is_designed(&self) -> bool {
        self.record.as_ref().is_some_and(|record| !record.is_leaving())
    }

    pub fn is_leaving(&self) -> bool {
        self.record.as_ref().is_some_and(NodeRecord::is_leaving)
    }

    /// Returns whether there is a machine to drain: one that a driver made, or one that has joined.
    pub fn has_machine(&self) -> bool {
        self.machine.is_some() || self.certificate.is_some()
    }

    pub fn policy(&self) -> NodePolicy {
        self.policy.as_ref().map(|(record, _)| record.policy).unwrap_or_default()
    }

    /// The policy of a cordoned node.
    pub fn cordon(&self) -> Option<&PolicyRecord> {
        self.policy.as_ref().map(|(record, _)| record).filter(|record| record.is_cordoned())
    }

    /// The service state. None before the first report.
    pub fn state(&self) -> Option<(&ServiceState, &StatusLeaf)> {
        self.states.first_key_value()
    }

    /// Returns whether the last run was for this generation or a newer one.
    pub fn has_answered(&self, chosen: Generation) -> bool {
        let last = self.observed.as_ref().and_then(|(observed, _)| observed.last.as_ref());
        last.is_some_and(|last| last.generation >= chosen)
    }

    /// Values of the node in the applied design. Empty if they are missing or cannot be read.
    pub fn self_values(&self) -> SelfValues {
        self.self_text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The run whose validation is not reported yet.
    pub fn open_run(&self) -> Option<PastRun> {
        self.observed.as_ref().and_then(|(observed, _)| observed.open_run())
    }

    /// Role and addresses that other nodes see. The newest entry counts, of whatever version.
    pub fn active(&self) -> Option<&ActiveRole> {
        self.active.values().max_by_key(|(_, at)| *at).map(|(active, _)| active)
    }

    /// A second agent with the name of the node, if it was refused in the last minutes.
    pub fn refused_agent(&self, now: Timestamp) -> Option<RefusedAgent> {
        self.presence.as_ref()?.0.refused.filter(|refused| refused.is_current(now))
    }

    /// What its agent said of itself when it connected last.
    pub fn agent(&self) -> Option<&AgentInfo> {
        self.presence.as_ref()?.0.agent.as_ref()
    }

    /// Interval of its agent, if cron starts it.
    pub fn call_interval(&self) -> Option<CallInterval> {
        self.agent()?.every
    }

    /// Time that each deadline of the node is longer, because its agent acts only when cron starts it.
    pub fn call_allowance(&self) -> jiff::SignedDuration {
        self.call_interval().map_or(jiff::SignedDuration::ZERO, CallInterval::allowance)
    }
}

/// Number of `-` in a host name that may stand for a `_`.
const MAX_DASHES: usize = 8;

impl Fleet {
    pub fn new(env: EnvName) -> Self {
        Self {
            env,
            revision: Revision(0),
            lifecycle: Lifecycle::default(),
            design: DesignState::default(),
            versions: Versions::default(),
            rollouts: FleetRollouts::default(),
            leaders: BTreeMap::new(),
            published: Publications::default(),
            data: ConfigData::default(),
            pauses: BTreeMap::new(),
            nodes: BTreeMap::new(),
            tokens: Tokens::new(),
            index: NodeIndex::default(),
            servers: Servers::default(),
            unreadable: BTreeMap::new(),
            changes: ChangeLog::default(),
        }
    }

    /// The nodes that changed last. A change of the live servers counts as one of every node, since it may change the
    /// connection of any.
    pub fn changes(&self) -> &ChangeLog {
        &self.changes
    }

    pub fn epoch(&self) -> u64 {
        self.lifecycle.epoch
    }

    /// Revision at which the epoch was written. None if the environment has no epoch yet.
    pub fn epoch_at(&self) -> Option<Revision> {
        self.lifecycle.epoch_at
    }

    /// Restore in progress. Until it is complete, the keys are a mix of two states and nothing is decided on them.
    pub fn restoring(&self) -> Option<&RestoreRecord> {
        self.lifecycle.restoring.as_ref()
    }

    /// Destruction in progress, with the revision of its key.
    pub fn destroying(&self) -> Option<&(DestroyRecord, Revision)> {
        self.lifecycle.destroying.as_ref()
    }

    /// Returns whether the environment exists: it holds more than the keys of servers.
    pub fn is_founded(&self) -> bool {
        let Lifecycle { epoch_at, restoring, destroying, .. } = &self.lifecycle;
        let has_marks = epoch_at.is_some() || restoring.is_some() || destroying.is_some();
        has_marks || self.versions.current.is_some() || self.recorded().next().is_some()
    }

    /// Live servers, each with the revision of its key.
    pub fn replicas(&self) -> &BTreeMap<ReplicaId, (ReplicaRecord, Revision)> {
        &self.servers.replicas
    }

    /// Holders of the controllers. The revision fences the writes of the controller.
    pub fn controllers(&self) -> &BTreeMap<ControllerName, (ControllerRecord, Revision)> {
        &self.servers.controllers
    }

    /// Revisions of the design, and the applied one.
    pub fn design(&self) -> &DesignState {
        &self.design
    }

    /// Returns whether the design controller has work: a design was applied, or the environment is being destroyed.
    pub fn needs_design_controller(&self) -> bool {
        self.design.applied.is_some() || self.lifecycle.destroying.is_some()
    }

    pub fn unreadable(&self) -> &BTreeMap<String, String> {
        &self.unreadable
    }

    /// All nodes with any key, also those outside the design.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &Node)> {
        self.nodes.iter()
    }

    pub fn get(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// Nodes with a record: those of the design, and those that are leaving.
    pub fn recorded(&self) -> impl Iterator<Item = (&NodeName, &Node, &NodeRecord)> {
        self.nodes.iter().filter_map(|(name, node)| Some((name, node, node.record.as_ref()?)))
    }

    /// Nodes of the design, without those that are leaving.
    pub fn designed(&self) -> impl Iterator<Item = (&NodeName, &Node, &NodeRecord)> {
        self.recorded().filter(|(_, _, record)| !record.is_leaving())
    }

    /// Roles of the nodes of the design.
    pub fn designed_roles(&self) -> BTreeSet<Role> {
        self.index.roles.iter().filter(|(_, members)| members.members > 0).map(|(role, _)| role.clone()).collect()
    }

    /// Finds a node by its name or host name. A design gives no host name to two nodes, but a node that leaves may still have the name
    /// of another: that name finds neither.
    pub fn find(&self, name: &str) -> Option<(&NodeName, &Node)> {
        if let Some(found) = self.nodes.get_key_value(name) {
            return Some(found);
        }
        if let Some(named) = self.index.hosts.get(name) {
            let node = named.first().filter(|_| named.len() == 1)?;
            return self.nodes.get_key_value(node);
        }
        // By default a host name is the node's name with each `_` replaced by `-`. Names have few of both, so few candidates.
        let dashes: Vec<usize> = name.match_indices('-').map(|(at, _)| at).take(MAX_DASHES).collect();
        (1_u32..1 << dashes.len()).find_map(|replaced| {
            let mut candidate = name.to_owned();
            for (_, at) in dashes.iter().enumerate().filter(|(bit, _)| replaced & (1 << bit) != 0) {
                candidate.replace_range(*at..=*at, "_");
            }
            let has_default = |node: &Node| node.record.as_ref().is_none_or(|record| record.host_name.is_none());
            self.nodes.get_key_value(candidate.as_str()).filter(|(_, node)| has_default(node))
        })
    }

    /// Host name of a node.
    pub fn host_of(&self, name: &NodeName) -> String {
        let record = self.nodes.get(name).and_then(|node| node.record.as_ref());
        record.map_or_else(|| name.host(), |record| record.host(name))
    }

    /// Versions that nodes have validated, with those nodes.
    pub fn running(&self) -> &BTreeMap<Version, HashSet<NodeName>> {
        &self.index.running
    }

    /// Nodes whose last passed validation proves nothing now even if they are connected; see
    /// [`NotCounted::of_record`](crate::node::evidence::NotCounted::of_record).
    pub fn unproven(&self) -> &BTreeSet<NodeName> {
        &self.index.unproven
    }

    /// Cordoned and retired nodes.
    pub fn policies(&self) -> impl Iterator<Item = NodePolicyRow> {
        let row = |(name, node): (&NodeName, &Node)| {
            let (record, _) = node.policy.as_ref()?;
            Some(NodePolicyRow { node: name.clone(), record: record.clone() })
        };
        self.nodes.iter().filter_map(row)
    }

    /// Returns whether an operator has retired the node. The design does not bring it back.
    pub fn is_retired(&self, name: &NodeName) -> bool {
        self.nodes.get(name).is_some_and(|node| node.policy() == NodePolicy::Retired)
    }

    /// Join tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// All pauses, also expired ones.
    pub fn pauses(&self) -> &BTreeMap<PauseScope, (PauseRecord, Revision)> {
        &self.pauses
    }

    /// The pause that keeps a node from running: the longest of those that apply to it.
    pub fn pause_of(&self, name: &NodeName, role: &Role, now: Timestamp) -> Option<NodePause> {
        let concerned = self.pauses.iter().filter(|(scope, _)| scope.concerns(name, role));
        let lasting = concerned.filter(|(_, (pause, _))| !pause.is_over(now));
        longest(lasting.map(|(scope, (pause, _))| NodePause { scope: scope.clone(), pause: pause.clone() }))
    }
}
