//! One environment in memory, built from its keys: what every question is answered from.
//!
//! It takes the changes of one transaction at a time, and says what they may wake. Each change costs the same however
//! large the fleet is. Built twice from the same keys, in whatever order, it is the same.
//!
//! It is long because it has one arm for each kind of key: what a key changes in memory is told in one place.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::{SignedDuration, Timestamp};
use serde::de::Error;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::design::DesignState;
use crate::keys::Key;
use crate::lookup::config_data::ConfigData;
use crate::lookup::published::{Publication, Publications};
use crate::lookup::snapshot::{LeaderInfo, Snapshot};
use crate::lookup::{LookupKey, RoleTags, Tag, datum_tag, interface_in_key};
use crate::names::{DataKey, EnvName, NodeName, ReplicaId, Role, Version};
use crate::node::leaders::LeaderRecord;
use crate::node::pause::{NodePause, PauseRecord, PauseScope, longest};
use crate::node::record::{MachineRecord, NodeRecord, RunRequest};
use crate::node::service_state::ServiceState;
use crate::release::manifest::SignedTrust;
use crate::release::{AllowOlder, ReleaseRecord};
use crate::replica::{ControllerName, ControllerRecord, PresenceRecord, ReplicaRecord};
use crate::report::Interfaces;
use crate::report::record::{ActiveRole, ObservedRecord, RunHistory, StatusLeaf};
use crate::rollout::RolloutId;
use crate::rollout::record::{ActiveRollout, DesiredRecord, RolloutRecord};
use crate::txn::{Generation, Revision};

/// `restoring`: the environment is being restored from a backup, or a restore of it was cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RestoreRecord {
    /// Digest of the backup's file: only the same one completes what it began.
    pub digest: String,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Who restores: a program on a machine.
    pub by: String,
}

/// `destroying`: the environment is on its way out. Nothing new is accepted, its nodes leave, then all of its keys go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestroyRecord {
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Who asked for it.
    pub by: String,
}

/// Everything that is known of one environment, at one revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    pub env: EnvName,
    pub revision: Revision,
    epoch: u64,
    epoch_at: Option<Revision>,
    restoring: Option<RestoreRecord>,
    destroying: Option<(DestroyRecord, Revision)>,
    design: DesignState,
    current: Option<(Version, Revision)>,
    allow_older: Option<(AllowOlder, Revision)>,
    releases: BTreeMap<Version, ReleaseRecord>,
    /// Which rollout decides what nodes run that were granted nothing, and all that are remembered.
    active: Option<(ActiveRollout, Revision)>,
    /// It is there, and nobody can read it: then nobody can say what anybody should run.
    active_unreadable: bool,
    rollouts: BTreeMap<RolloutId, (RolloutRecord, Revision)>,
    trust: Option<(SignedTrust, Revision)>,
    leaders: BTreeMap<Role, (LeaderRecord, Revision)>,
    published: Publications,
    data: ConfigData,
    pauses: BTreeMap<PauseScope, (PauseRecord, Revision)>,
    nodes: BTreeMap<NodeName, Node>,
    roles: BTreeMap<Role, RoleMembers>,
    /// Hashed: whether so many thousand hosts run a version is asked all the time.
    running: BTreeMap<Version, HashSet<NodeName>>,
    /// Who has looked a role up in its last run; those of whom only that they looked up a lot is known are with each.
    lookers: BTreeMap<Role, BTreeSet<NodeName>>,
    lookers_of_much: BTreeSet<NodeName>,
    /// Kept up to date rather than asked for, for the same reason.
    late: BTreeSet<NodeName>,
    /// The servers that live, and who of them holds which controller.
    replicas: BTreeMap<ReplicaId, (ReplicaRecord, Revision)>,
    controllers: BTreeMap<ControllerName, (ControllerRecord, Revision)>,
    /// Keys whose value cannot be read, and why: shown to people, never guessed at.
    unreadable: BTreeMap<String, String>,
}

/// What is known of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// None for a node that left keys behind but is not in the design.
    pub record: Option<NodeRecord>,
    /// When the design last said it: fences what is done in its name.
    pub record_at: Option<Revision>,
    pub machine: Option<(MachineRecord, Revision)>,
    pub provisioned: Option<bool>,
    pub observed: Option<(ObservedRecord, Revision)>,
    /// Holds one state at most; more than one is a violated invariant, and is shown as it is.
    pub states: BTreeMap<ServiceState, StatusLeaf>,
    /// When that was written.
    pub state_at: Option<Revision>,
    pub running: BTreeSet<Version>,
    pub active: BTreeMap<Version, (ActiveRole, Revision)>,
    /// Which replica its agent is connected to.
    pub presence: Option<(PresenceRecord, Revision)>,
    /// What a rollout has granted it. Whether that still counts, [`Fleet::desired_of`] says.
    pub desired: Option<(DesiredRecord, Revision)>,
    /// It was granted something that cannot be read: it stays at what it was told last, whatever that was.
    pub desired_unreadable: bool,
    /// The last run that a person asked for.
    pub asked: Option<(RunRequest, Revision)>,
    /// Kept as it is stored: read for one node at a time, when somebody asks.
    pub history_text: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct RoleMembers {
    /// How many nodes of the design have this role.
    members: usize,
    active: BTreeSet<NodeName>,
    tags: RoleTags,
}

/// What a node should run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredVersion {
    pub version: Version,
    pub generation: Generation,
    /// Whether nodes may go to it from a later release.
    pub allow_older: bool,
    /// How long the node may be unable to report after it has applied, before it goes back.
    pub confirm_within: Option<SignedDuration>,
}

/// One changed key; no value means that it is gone.
#[derive(Clone, Copy, Debug)]
pub struct KeyChange<'a> {
    pub key: &'a str,
    pub value: Option<&'a [u8]>,
    pub revision: Revision,
}

/// What a rollout has granted to a node.
enum Granted<'a> {
    /// What decides cannot be read.
    Unreadable,
    Nothing,
    This(&'a DesiredRecord, Revision),
}

/// What a transaction may wake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Keys that content can look up and whose value is another one now.
    pub lookups: BTreeSet<String>,
    /// Roles that have appeared or gone: everything that can be looked up of them is different now.
    pub roles: BTreeSet<Role>,
    /// Nodes of which anything changed.
    pub nodes: BTreeSet<NodeName>,
    /// What nodes should run may be another version now, or they are paused, or no longer.
    pub desired: bool,
    /// Nodes of which somebody has asked for a run, or which a rollout has granted something.
    pub told: BTreeSet<NodeName>,
    /// How a rollout stands, or which one decides. Wakes whoever looks after rollouts, and no agent.
    pub rollouts: bool,
    /// Who leads a role may be another one now.
    pub leaders: bool,
    /// The design has another revision, the nodes are to follow another one, or the environment is being destroyed.
    pub design: bool,
    /// The record of some node is another one now. Wakes whoever looks after machines, and no agent.
    pub records: bool,
    /// Replicas have come or gone, a controller has another holder, agents are connected elsewhere, or the environment
    /// begins. Wakes servers, and no agent.
    pub servers: bool,
}

impl Node {
    /// Whether the design wants it. One that leaves has a record still.
    pub fn is_designed(&self) -> bool {
        self.record.as_ref().is_some_and(|record| !record.is_leaving())
    }

    pub fn is_leaving(&self) -> bool {
        self.record.as_ref().is_some_and(NodeRecord::is_leaving)
    }

    /// The service state; none before the first report.
    pub fn state(&self) -> Option<(&ServiceState, &StatusLeaf)> {
        self.states.first_key_value()
    }

    /// Whether its last run was made for this choice of a version, or for a newer one.
    pub fn has_answered(&self, chosen: Generation) -> bool {
        let last = self.observed.as_ref().and_then(|(observed, _)| observed.last.as_ref());
        last.is_some_and(|last| last.generation >= chosen)
    }

    pub fn history(&self) -> RunHistory {
        serde_json::from_slice(&self.history_text).unwrap_or_default()
    }

    /// Where others find the node; the versions are united, the newest entry counts.
    pub fn active(&self) -> Option<&ActiveRole> {
        self.active.values().max_by_key(|(_, at)| *at).map(|(active, _)| active)
    }
}

impl Fleet {
    pub fn new(env: EnvName) -> Self {
        Self {
            env,
            revision: Revision(0),
            epoch: 0,
            epoch_at: None,
            restoring: None,
            destroying: None,
            design: DesignState::default(),
            current: None,
            allow_older: None,
            releases: BTreeMap::new(),
            active: None,
            active_unreadable: false,
            rollouts: BTreeMap::new(),
            trust: None,
            leaders: BTreeMap::new(),
            published: Publications::default(),
            data: ConfigData::default(),
            pauses: BTreeMap::new(),
            nodes: BTreeMap::new(),
            roles: BTreeMap::new(),
            running: BTreeMap::new(),
            lookers: BTreeMap::new(),
            lookers_of_much: BTreeSet::new(),
            late: BTreeSet::new(),
            replicas: BTreeMap::new(),
            controllers: BTreeMap::new(),
            unreadable: BTreeMap::new(),
        }
    }

    /// Takes in the changes of one transaction.
    pub fn apply<'a>(
        &mut self,
        revision: Revision,
        changes: impl IntoIterator<Item = (KeyChange<'a>, Key)>,
    ) -> Effects {
        let mut effects = Effects::default();
        let base = self.base();
        // What a lookup gives depends on all changes of the transaction together: compare before with after.
        let mut before: BTreeMap<NodeName, Option<ActiveRole>> = BTreeMap::new();
        for (change, key) in changes {
            self.unreadable.remove(change.key);
            if let Err(problem) = self.change(&change, key, &mut before, &mut effects) {
                self.unreadable.insert(change.key.to_owned(), problem.to_string());
            }
        }
        for (node, before) in before {
            let after = self.nodes.get(&node).and_then(Node::active).cloned();
            self.move_active(&node, before, after, &mut effects);
        }
        // Only what changed can have become empty: going through all nodes would make building a fleet quadratic.
        for name in &effects.nodes {
            if self.nodes.get(name).is_some_and(|node| *node == Node::default()) {
                self.nodes.remove(name);
            }
        }
        if self.base() == base {
            effects.nodes.iter().for_each(|name| self.settle_late(name));
        } else {
            self.settle_all();
        }
        self.revision = self.revision.max(revision);
        effects
    }

    fn settle_late(&mut self, name: &NodeName) {
        let is_late = self.nodes.get(name).is_some_and(|node| self.is_late(node, self.base().as_ref()));
        set_member(&mut self.late, name.clone(), is_late);
    }

    /// Who is late, where everybody may be.
    fn settle_all(&mut self) {
        let base = self.base();
        let late = self.nodes.iter().filter(|(_, node)| self.is_late(node, base.as_ref()));
        self.late = late.map(|(name, _)| name.clone()).collect();
    }

    fn is_late(&self, node: &Node, base: Option<&DesiredVersion>) -> bool {
        let chosen = match self.grant_of(node) {
            Granted::Unreadable => None,
            Granted::Nothing => base.map(|base| base.generation),
            Granted::This(record, at) => Some(self.generation_of(record, at)),
        };
        node.is_designed() && chosen.is_some_and(|chosen| !node.has_answered(chosen))
    }

    fn change(
        &mut self,
        change: &KeyChange<'_>,
        key: Key,
        before: &mut BTreeMap<NodeName, Option<ActiveRole>>,
        effects: &mut Effects,
    ) -> Result<(), serde_json::Error> {
        match key {
            Key::StoreEpoch => {
                self.epoch_at = change.value.map(|_| change.revision);
                self.epoch = read(change)?.unwrap_or(0);
                effects.desired = true;
                // That is how servers learn of an environment.
                effects.servers = true;
            }
            Key::Restoring => {
                // One that cannot be read is one all the same: the environment is not what it should be.
                self.restoring = change.value.map(|_| RestoreRecord::default());
                // Streams end, and controllers stop, until it is gone.
                effects.desired = true;
                effects.servers = true;
                self.restoring = read(change)?;
            }
            Key::Destroying => {
                // As above: a mark that cannot be read is a mark.
                self.destroying = change.value.map(|_| (DestroyRecord::default(), change.revision));
                effects.design = true;
                effects.servers = true;
                self.destroying = read(change)?.map(|destroying| (destroying, change.revision));
            }
            Key::DesignRevision { revision } => {
                effects.design = true;
                match read(change)? {
                    Some(record) => self.design.revisions.insert(revision, record),
                    None => self.design.revisions.remove(&revision),
                };
            }
            Key::DesignHead => {
                effects.design = true;
                self.design.head = read(change)?.map(|head| (head, change.revision));
            }
            Key::DesignApplied => {
                effects.design = true;
                self.design.applied = read(change)?.map(|applied| (applied, change.revision));
            }
            Key::CurrentVersion => {
                let text = change.value.map(|value| String::from_utf8_lossy(value).into_owned());
                let version: Option<Version> = text.map(Version::new).transpose().map_err(serde_json::Error::custom)?;
                effects.servers |= self.current.is_none();
                self.current = version.map(|version| (version, change.revision));
                effects.desired = true;
            }
            Key::AllowOlder => {
                effects.desired = true;
                self.allow_older = read(change)?.map(|allowed| (allowed, change.revision));
            }
            Key::Trust => {
                effects.desired = true;
                self.trust = read(change)?.map(|trust| (trust, change.revision));
            }
            Key::Leader { role } => {
                effects.leaders = true;
                effects.lookups.insert(format!("leader::{role}"));
                match read(change)? {
                    Some(leader) => self.leaders.insert(role, (leader, change.revision)),
                    None => self.leaders.remove(&role),
                };
            }
            Key::Published { node } => {
                let publication: Publication = read(change)?.unwrap_or_default();
                let changed = self.published.replace(&node, publication);
                effects.lookups.extend(changed.iter().map(|key| format!("published::{key}")));
            }
            Key::Datum { layer, key } => {
                effects.lookups.insert(format!("data::{key}"));
                let datum = read(change)?.map(|datum| (datum, change.revision));
                self.data.set(layer, key, datum);
            }
            Key::Pause { scope } => {
                effects.desired = true;
                // One that cannot be read holds its nodes back all the same: only somebody who looks may end it.
                match change.value {
                    Some(_) => self.pauses.insert(scope.clone(), (unreadable_pause(), change.revision)),
                    None => self.pauses.remove(&scope),
                };
                if let Some(pause) = read(change)? {
                    self.pauses.insert(scope, (pause, change.revision));
                }
            }
            Key::Asked { node } => {
                let asked = read(change)?;
                effects.told.insert(node.clone());
                self.node(&node, effects).asked = asked.map(|asked| (asked, change.revision));
            }
            Key::Release { version } => {
                match read(change)? {
                    Some(release) => self.releases.insert(version, release),
                    None => self.releases.remove(&version),
                };
                effects.desired = true;
            }
            Key::ActiveRollout => {
                effects.desired = true;
                effects.rollouts = true;
                // One that cannot be read holds the whole fleet. To go on as if there were none would move everybody who was
                // not granted anything, at once.
                self.active = None;
                self.active_unreadable = change.value.is_some();
                self.active = read(change)?.map(|active| (active, change.revision));
                self.active_unreadable = false;
            }
            Key::Rollout { id } => {
                effects.rollouts = true;
                // What it said before is not what it says now: nobody acts on that.
                self.rollouts.remove(&id);
                if let Some(record) = read(change)? {
                    self.rollouts.insert(id, (record, change.revision));
                }
            }
            Key::Desired { node } => {
                effects.told.insert(node.clone());
                let node = self.node(&node, effects);
                node.desired = None;
                node.desired_unreadable = change.value.is_some();
                node.desired = read(change)?.map(|desired| (desired, change.revision));
                node.desired_unreadable = false;
            }
            Key::RunningVersion { version, node } => {
                let there = change.value.is_some();
                let known = self.node(&node, effects);
                set_member(&mut known.running, version.clone(), there);
                let counts = there && !known.is_leaving();
                self.count_running(version, &node, counts);
            }
            Key::Provisioned { success, node } => {
                let node = self.node(&node, effects);
                if change.value.is_some() {
                    node.provisioned = Some(success);
                } else if node.provisioned == Some(success) {
                    node.provisioned = None;
                }
            }
            Key::Status { state, node } => {
                let leaf = read(change)?;
                let node = self.node(&node, effects);
                match leaf {
                    Some(leaf) => {
                        node.states.insert(state, leaf);
                        node.state_at = Some(change.revision);
                    }
                    None => {
                        node.states.remove(&state);
                        node.state_at = node.state_at.filter(|_| !node.states.is_empty());
                    }
                }
            }
            Key::ActiveRole { version, node: name } => {
                let active: Option<ActiveRole> = read(change)?;
                let node = self.node(&name, effects);
                before.entry(name).or_insert_with(|| node.active().cloned());
                match active {
                    Some(active) => node.active.insert(version, (active, change.revision)),
                    None => node.active.remove(&version),
                };
            }
            Key::Observed { node } => {
                let observed: Option<ObservedRecord> = read(change)?;
                self.index_lookups(&node, observed.as_ref());
                self.leader_moves(&node, observed.as_ref(), effects);
                self.node(&node, effects).observed = observed.map(|observed| (observed, change.revision));
            }
            Key::History { node } => {
                self.node(&node, effects).history_text = change.value.map(<[u8]>::to_vec).unwrap_or_default();
            }
            Key::Node { node: name } => {
                effects.records = true;
                let record: Option<NodeRecord> = read(change)?;
                let old = self.node(&name, effects).record.take();
                if let Some(old) = &old {
                    self.count_member(&old.role, false, effects);
                }
                if let Some(new) = &record {
                    self.count_member(&new.role, true, effects);
                }
                let node = self.node(&name, effects);
                node.record_at = record.is_some().then_some(change.revision);
                node.record = record;
                // What one that leaves has proved says nothing about the fleet that stays.
                let (counts, proved) = (!node.is_leaving(), node.running.clone());
                proved.into_iter().for_each(|version| self.count_running(version, &name, counts));
            }
            Key::Machine { node } => {
                self.node(&node, effects).machine = read(change)?.map(|machine| (machine, change.revision));
            }
            Key::Presence { node } => {
                effects.servers = true;
                self.node(&node, effects).presence = read(change)?.map(|presence| (presence, change.revision));
            }
            Key::Replica { replica } => {
                effects.servers = true;
                match read(change)? {
                    Some(record) => self.replicas.insert(replica, (record, change.revision)),
                    None => self.replicas.remove(&replica),
                };
            }
            Key::Controller { name } => {
                effects.servers = true;
                match read(change)? {
                    Some(record) => self.controllers.insert(name, (record, change.revision)),
                    None => self.controllers.remove(&name),
                };
            }
            Key::Unknown => {}
        }
        Ok(())
    }

    fn node(&mut self, name: &NodeName, effects: &mut Effects) -> &mut Node {
        effects.nodes.insert(name.clone());
        self.nodes.entry(name.clone()).or_default()
    }

    fn count_running(&mut self, version: Version, node: &NodeName, counts: bool) {
        let nodes = self.running.entry(version).or_default();
        if counts {
            nodes.insert(node.clone());
        } else {
            nodes.remove(node);
        }
        self.running.retain(|_, nodes| !nodes.is_empty());
    }

    fn index_lookups(&mut self, name: &NodeName, now: Option<&ObservedRecord>) {
        let before = self.nodes.get(name).and_then(|node| node.observed.as_ref()).map(|(observed, _)| observed);
        let before = before.map(|observed| observed.looked_up.roles()).unwrap_or_default();
        let after = now.map(|observed| observed.looked_up.roles()).unwrap_or_default();
        for role in before.difference(&after) {
            if let Some(nodes) = self.lookers.get_mut(role) {
                nodes.remove(name);
                if nodes.is_empty() {
                    self.lookers.remove(role);
                }
            }
        }
        for role in after.difference(&before) {
            self.lookers.entry(role.clone()).or_default().insert(name.clone());
        }
        set_member(
            &mut self.lookers_of_much,
            name.clone(),
            now.is_some_and(|observed| observed.looked_up.is_too_much()),
        );
    }

    /// A leader that has other addresses is another one to those who look it up.
    fn leader_moves(&self, name: &NodeName, now: Option<&ObservedRecord>, effects: &mut Effects) {
        let before = self.nodes.get(name).and_then(|node| node.observed.as_ref()).map(|(observed, _)| observed);
        if before.map(|observed| &observed.interfaces) == now.map(|observed| &observed.interfaces) {
            return;
        }
        let led = self.leaders.iter().filter(|(_, (leader, _))| leader.node.as_ref() == Some(name));
        effects.lookups.extend(led.map(|(role, _)| format!("leader::{role}")));
    }

    fn count_member(&mut self, role: &Role, joins: bool, effects: &mut Effects) {
        let members = self.roles.entry(role.clone()).or_default();
        let existed = members.members > 0 || !members.active.is_empty();
        members.members = if joins { members.members + 1 } else { members.members.saturating_sub(1) };
        self.settle_role(role, existed, effects);
    }

    /// Drops a role that nothing belongs to; its appearing and going changes what a lookup gives.
    fn settle_role(&mut self, role: &Role, existed: bool, effects: &mut Effects) {
        let exists = self.roles.get(role).is_some_and(|r| r.members > 0 || !r.active.is_empty());
        if !exists {
            self.roles.remove(role);
        }
        if exists != existed {
            effects.roles.insert(role.clone());
        }
    }

    fn move_active(
        &mut self,
        node: &NodeName,
        before: Option<ActiveRole>,
        after: Option<ActiveRole>,
        effects: &mut Effects,
    ) {
        if before == after {
            return;
        }
        if let Some(before) = &before {
            let role = self.roles.entry(before.role.clone()).or_default();
            role.active.remove(node);
            role.tags.take(node, &before.interfaces);
            self.settle_role(&before.role, true, effects);
        }
        if let Some(after) = &after {
            let role = self.roles.entry(after.role.clone()).or_default();
            let existed = role.members > 0 || !role.active.is_empty();
            role.active.insert(node.clone());
            role.tags.add(node, &after.interfaces);
            self.settle_role(&after.role, existed, effects);
        }
        for role in [&before, &after].into_iter().flatten().map(|active| &active.role) {
            effects.lookups.insert(format!("active_roles::{role}"));
        }
        let none = Interfaces::new();
        let interfaces = |active: &Option<ActiveRole>, role: &Role| match active {
            Some(active) if active.role == *role => active.interfaces.clone(),
            Some(_) | None => none.clone(),
        };
        for role in [&before, &after].into_iter().flatten().map(|active| &active.role) {
            let (old, new) = (interfaces(&before, role), interfaces(&after, role));
            for name in old.keys().chain(new.keys()).filter(|name| old.get(*name) != new.get(*name)) {
                effects.lookups.insert(format!("active_roles::{role}::{}", interface_in_key(name)));
            }
        }
    }

    /// What the environment should run, once it has been moved there; none before a version was chosen.
    pub fn desired(&self) -> Option<DesiredVersion> {
        let (version, at) = self.current.as_ref()?;
        // Written together: the permission is for this choice of a version, and for no later one.
        let allow_older =
            self.allow_older.as_ref().is_some_and(|(older, then)| older.version == *version && then == at);
        let generation = Generation { epoch: self.epoch, number: at.0 };
        Some(DesiredVersion { version: version.clone(), generation, allow_older, confirm_within: None })
    }

    /// What a node should run now: what it was granted; else, while a rollout is under way, what was there before it; else
    /// what the environment should run. None too where what decides cannot be read: who is told nothing stays where it is.
    pub fn desired_of(&self, name: &NodeName) -> Option<DesiredVersion> {
        match self.nodes.get(name) {
            Some(node) => self.desired_by(node),
            None => self.base(),
        }
    }

    /// The same for whoever has the node at hand.
    pub fn desired_by(&self, node: &Node) -> Option<DesiredVersion> {
        match self.grant_of(node) {
            Granted::Unreadable => None,
            Granted::Nothing => self.base(),
            Granted::This(record, at) => Some(DesiredVersion {
                version: record.version.clone(),
                generation: self.generation_of(record, at),
                allow_older: record.allow_older,
                confirm_within: record.confirm_within,
            }),
        }
    }

    /// What was kept in another life of the store is told anew, like everything else.
    fn generation_of(&self, record: &DesiredRecord, at: Revision) -> Generation {
        let generation = Generation { epoch: self.epoch, number: at.0 };
        record.kept.filter(|kept| kept.epoch == self.epoch).unwrap_or(generation)
    }

    /// What a rollout has granted to a node, if that still counts: nobody has moved the whole fleet at once since.
    pub fn granted(&self, name: &NodeName) -> Option<(&DesiredRecord, Revision)> {
        self.counting(self.nodes.get(name)?)
    }

    fn counting<'a>(&self, node: &'a Node) -> Option<(&'a DesiredRecord, Revision)> {
        let (record, at) = node.desired.as_ref()?;
        let floor = self.active.as_ref().map(|(active, _)| active.floor).unwrap_or_default();
        (record.rollout >= floor).then_some((record, *at))
    }

    fn grant_of<'a>(&self, node: &'a Node) -> Granted<'a> {
        // Without `rollouts/active` nobody knows either which grants still count.
        if self.active_unreadable || node.desired_unreadable {
            return Granted::Unreadable;
        }
        match self.counting(node) {
            Some((record, at)) => Granted::This(record, at),
            None => Granted::Nothing,
        }
    }

    /// What nodes should run that were granted nothing.
    ///
    /// Once a rollout has ended well that is the environment's version; but who was told that version before it began is not
    /// told anew. When a rollout went back to where most of the fleet still was, its end moves nobody.
    pub fn base(&self) -> Option<DesiredVersion> {
        if self.active_unreadable {
            return None;
        }
        let staged = self.active.as_ref().filter(|(active, _)| !active.at_once);
        let Some((active, _)) = staged else { return self.desired() };
        let is_there_already = || active.from.as_ref().is_some_and(|from| from.version == active.to);
        let still_chosen = || self.current.as_ref().is_some_and(|(version, _)| *version == active.to);
        if active.completed && !(is_there_already() && still_chosen()) {
            return self.desired();
        }
        let from = active.from.as_ref()?;
        // A generation of another life of the store may be higher than any that is to come: this life's first one stands
        // for it.
        let first = Generation { epoch: self.epoch, number: self.epoch_at.unwrap_or_default().0 };
        let generation = if from.generation.epoch == self.epoch { from.generation } else { first };
        let (version, allow_older) = (from.version.clone(), from.allow_older);
        Some(DesiredVersion { version, generation, allow_older, confirm_within: None })
    }

    /// Which rollout decides what nodes run that were granted nothing; with the revision of its key.
    pub fn active_rollout(&self) -> Option<(&ActiveRollout, Revision)> {
        self.active.as_ref().map(|(active, at)| (active, *at))
    }

    /// Whether nobody can say which rollout decides: its key cannot be read. Nobody is told anything until it can, and no
    /// rollout may begin.
    pub fn rollouts_unreadable(&self) -> bool {
        self.active_unreadable
    }

    /// The rollouts that are remembered, with the revisions of their keys.
    pub fn rollouts(&self) -> &BTreeMap<RolloutId, (RolloutRecord, Revision)> {
        &self.rollouts
    }

    /// The record of the rollout that decides.
    pub fn deciding_rollout(&self) -> Option<(&RolloutRecord, Revision)> {
        let (active, _) = self.active.as_ref()?;
        self.rollouts.get(&active.id).map(|(record, at)| (record, *at))
    }

    pub fn current_version(&self) -> Option<(&Version, Revision)> {
        self.current.as_ref().map(|(version, at)| (version, *at))
    }

    /// Nodes of the design whose last run was made before the environment's version was chosen.
    ///
    /// What they have proved may be of the right version and worth nothing: the fleet was sent elsewhere and called
    /// back, and they are on their way there. Every choice makes every node run, so each of them answers.
    pub fn late(&self) -> &BTreeSet<NodeName> {
        &self.late
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// When the epoch was last written; none if the environment has none yet.
    pub fn epoch_at(&self) -> Option<Revision> {
        self.epoch_at
    }

    /// The servers that live, each with the revision of its key.
    pub fn replicas(&self) -> &BTreeMap<ReplicaId, (ReplicaRecord, Revision)> {
        &self.replicas
    }

    /// Who holds which controller. The revision fences what is done in the controller's name.
    pub fn controllers(&self) -> &BTreeMap<ControllerName, (ControllerRecord, Revision)> {
        &self.controllers
    }

    /// Whether there is anything here but what servers say of themselves.
    pub fn is_founded(&self) -> bool {
        let begun = self.epoch_at.is_some() || self.current.is_some();
        let between = self.restoring.is_some() || self.destroying.is_some();
        begun || between || self.recorded().next().is_some()
    }

    /// All nodes of which anything is known, those outside the design too.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &Node)> {
        self.nodes.iter()
    }

    /// The restore that is under way. Until it is done the keys are of two lives at once, and say nothing.
    pub fn restoring(&self) -> Option<&RestoreRecord> {
        self.restoring.as_ref()
    }

    /// The end of the environment, once somebody has asked for it; with the revision of its key.
    pub fn destroying(&self) -> Option<&(DestroyRecord, Revision)> {
        self.destroying.as_ref()
    }

    /// Whether somebody has to look after its nodes on behalf of the design.
    pub fn needs_design_controller(&self) -> bool {
        self.design.applied.is_some() || self.destroying.is_some()
    }

    /// The revisions of the design, and which one the nodes follow.
    pub fn design(&self) -> &DesignState {
        &self.design
    }

    pub fn releases(&self) -> &BTreeMap<Version, ReleaseRecord> {
        &self.releases
    }

    pub fn unreadable(&self) -> &BTreeMap<String, String> {
        &self.unreadable
    }

    pub fn get(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The nodes that the store has a record of: those of the design, and those that are leaving.
    pub fn recorded(&self) -> impl Iterator<Item = (&NodeName, &Node, &NodeRecord)> {
        self.nodes.iter().filter_map(|(name, node)| Some((name, node, node.record.as_ref()?)))
    }

    /// The nodes of the design. What others left behind does not count, nor who is leaving.
    pub fn designed(&self) -> impl Iterator<Item = (&NodeName, &Node, &NodeRecord)> {
        self.recorded().filter(|(_, _, record)| !record.is_leaving())
    }

    /// Finds a node by its name, or by its host name.
    pub fn find(&self, name: &str) -> Option<(&NodeName, &Node)> {
        if let Some(found) = self.nodes.get_key_value(name) {
            return Some(found);
        }
        // A host name is the node's name with the one `_` turned into `-`; stacks are short, so few places to try.
        name.match_indices('-').find_map(|(at, _)| {
            let candidate = format!("{}_{}", &name[..at], &name[at + 1..]);
            self.nodes.get_key_value(candidate.as_str())
        })
    }

    /// The versions that nodes have proved to run, with those nodes.
    pub fn running(&self) -> &BTreeMap<Version, HashSet<NodeName>> {
        &self.running
    }

    /// The nodes whose last run may have looked a role up.
    pub fn lookers(&self, role: &Role) -> impl Iterator<Item = &NodeName> {
        self.lookers.get(role).into_iter().flatten().chain(&self.lookers_of_much)
    }

    /// How many nodes of a role others may count on.
    pub fn active_count(&self, role: &Role) -> u32 {
        self.roles.get(role).map_or(0, |role| u32::try_from(role.active.len()).unwrap_or(u32::MAX))
    }

    /// How many nodes publish under a key.
    pub fn published_count(&self, key: &DataKey) -> u32 {
        self.published.at(key.as_str()).map_or(0, |nodes| u32::try_from(nodes.len()).unwrap_or(u32::MAX))
    }

    /// What nodes publish for each other.
    pub fn published(&self) -> &Publications {
        &self.published
    }

    /// Configuration data, in layers.
    pub fn data(&self) -> &ConfigData {
        &self.data
    }

    /// Who leads each role, with the revision of its key. A record without a node is kept for its epoch.
    pub fn leaders(&self) -> &BTreeMap<Role, (LeaderRecord, Revision)> {
        &self.leaders
    }

    pub fn trust(&self) -> Option<&(SignedTrust, Revision)> {
        self.trust.as_ref()
    }

    /// All pauses, those that are over included.
    pub fn pauses(&self) -> &BTreeMap<PauseScope, (PauseRecord, Revision)> {
        &self.pauses
    }

    /// The pause that keeps a node from running.
    pub fn pause_of(&self, name: &NodeName, role: &Role, now: Timestamp) -> Option<NodePause> {
        let concerned = self.pauses.iter().filter(|(scope, _)| scope.concerns(name, role));
        let lasting = concerned.filter(|(_, (pause, _))| !pause.is_over(now));
        longest(lasting.map(|(scope, (pause, _))| NodePause { scope: scope.clone(), pause: pause.clone() }))
    }

    /// The roles of the environment, with the nodes that others may count on.
    pub fn roles(&self) -> impl Iterator<Item = (&Role, &BTreeSet<NodeName>)> {
        self.roles.iter().map(|(role, members)| (role, &members.active))
    }

    /// The leader of a role, as nodes see it.
    pub fn leader(&self, role: &str) -> Option<LeaderInfo> {
        let (record, _) = self.leaders.get(role)?;
        let node = record.node.clone()?;
        let observed = self.nodes.get(&node).and_then(|node| node.observed.as_ref());
        let interfaces = observed.map(|(observed, _)| observed.interfaces.clone()).unwrap_or_default();
        Some(LeaderInfo { host: node.host(), node, epoch: record.epoch, interfaces })
    }

    /// The tag of what a node would see at a key. Without a node: of what is the same for all; there are no data then.
    pub fn tag(&self, key: &str, node: Option<&NodeName>) -> Tag {
        match LookupKey::parse(key) {
            LookupKey::ActiveRole { role } => self.roles.get(role).map(|role| role.tags.role()),
            LookupKey::ActiveRoleInterface { role, interface } => {
                self.roles.get(role).map(|role| role.tags.interface(interface))
            }
            LookupKey::Leader { role } => self.leader(role).map(|leader| leader.tag()),
            LookupKey::Published { key } => Some(self.published.tag(key)),
            LookupKey::Datum { key } => node.and_then(|name| {
                let role = &self.nodes.get(name)?.record.as_ref()?.role;
                let (_, (datum, _)) = self.data.of(name, role, key).next()?;
                Some(datum_tag(&datum.value, datum.secret))
            }),
            LookupKey::Unknown => None,
        }
        .unwrap_or_else(Tag::absent)
    }

    /// Everything that any node may look up; its own data are added by [`Fleet::snapshot_for`].
    pub fn snapshot(&self) -> Snapshot {
        let address = |name: &NodeName| Some((name.clone(), self.nodes.get(name)?.active()?.interfaces.clone()));
        let active_roles = self
            .roles
            .iter()
            .map(|(role, members)| (role.clone(), members.active.iter().filter_map(address).collect()));
        let leaders = self.leaders.keys().filter_map(|role| Some((role.clone(), self.leader(role.as_str())?)));
        Snapshot {
            revision: self.revision,
            tag: None,
            active_roles: active_roles.collect(),
            leaders: leaders.collect(),
            published: self.published.by_key(),
            data: BTreeMap::new(),
        }
    }

    /// Everything that a node may look up.
    pub fn snapshot_for(&self, name: &NodeName) -> Snapshot {
        let role = self.nodes.get(name).and_then(|node| node.record.as_ref()).map(|record| &record.role);
        let data = role.map(|role| self.data.seen_by(name, role)).unwrap_or_default();
        Snapshot { data, ..self.snapshot() }
    }
}

fn unreadable_pause() -> PauseRecord {
    PauseRecord {
        by: "somebody".into(),
        reason: "the pause in the store cannot be read".into(),
        since: Timestamp::UNIX_EPOCH,
        until: None,
    }
}

fn read<T: serde::de::DeserializeOwned>(change: &KeyChange<'_>) -> Result<Option<T>, serde_json::Error> {
    change.value.map(serde_json::from_slice).transpose()
}

fn set_member<T: Ord>(set: &mut BTreeSet<T>, member: T, there: bool) {
    if there {
        set.insert(member);
    } else {
        set.remove(&member);
    }
}
