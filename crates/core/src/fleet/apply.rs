//! Applies key changes to a fleet: one method for each kind of key, and the indexes that follow from them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::de::Error;

use crate::design::DesignRevision;
use crate::keys::Key;
use crate::lookup::config_data::Layer;
use crate::lookup::interface_in_key;
use crate::lookup::published::Publication;
use crate::lookup::self_values::SelfValues;
use crate::names::{DataKey, NodeName, Role, Version};
use crate::node::evidence::NotCounted;
use crate::node::pause::{PauseRecord, PauseScope};
use crate::node::policy::{NodePolicy, PolicyRecord};
use crate::node::record::NodeRecord;
use crate::node::service_state::ServiceState;
use crate::report::Interfaces;
use crate::report::record::{ActiveRole, ObservedRecord};
use crate::rollout::RolloutId;
use crate::txn::Revision;

use super::{DestroyRecord, Effects, Fleet, KeyChange, Node, RestoreRecord};

type Applied = Result<(), serde_json::Error>;

/// Active roles of the changed nodes before the transaction. What a lookup returns depends on all changes together.
type ActiveBefore = BTreeMap<NodeName, Option<ActiveRole>>;

impl Fleet {
    /// Applies the changes of one transaction.
    pub fn apply<'a>(
        &mut self,
        revision: Revision,
        changes: impl IntoIterator<Item = (KeyChange<'a>, Key)>,
    ) -> Effects {
        let mut effects = Effects::default();
        let (base, epoch) = (self.base(), self.epoch());
        let mut before = ActiveBefore::new();
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
        effects.nodes.iter().for_each(|name| self.changes.record(name.clone(), self.nodes.len()));
        // Only changed nodes can have become empty. Checking all nodes would make building a fleet quadratic.
        for name in &effects.nodes {
            if self.nodes.get(name).is_some_and(|node| *node == Node::default()) {
                self.nodes.remove(name);
            }
        }
        if self.epoch() == epoch {
            effects.nodes.iter().for_each(|name| self.update_unproven(name));
        } else {
            let all: Vec<NodeName> = self.nodes.keys().cloned().collect();
            all.iter().chain(&effects.nodes).for_each(|name| self.update_unproven(name));
        }
        if self.base() == base {
            effects.nodes.iter().for_each(|name| self.update_late(name));
        } else {
            self.rebuild_late();
        }
        self.revision = self.revision.max(revision);
        effects
    }

    fn change(
        &mut self,
        change: &KeyChange<'_>,
        key: Key,
        before: &mut ActiveBefore,
        effects: &mut Effects,
    ) -> Applied {
        match key {
            Key::StoreEpoch => self.change_epoch(change, effects)?,
            Key::Restoring => self.change_restoring(change, effects)?,
            Key::Destroying => self.change_destroying(change, effects)?,
            Key::DesignRevision { revision } => self.change_design_revision(change, revision, effects)?,
            Key::DesignHead => {
                effects.design = true;
                self.design.head = at(change, read(change)?);
            }
            Key::DesignApplied => {
                effects.design = true;
                self.design.applied = at(change, read(change)?);
            }
            Key::CurrentVersion => self.change_current_version(change, effects)?,
            Key::AllowOlder => {
                effects.desired = true;
                self.versions.allow_older = at(change, read(change)?);
            }
            Key::Trust => {
                effects.desired = true;
                self.versions.trust = at(change, read(change)?);
            }
            Key::Release { version } => {
                set_entry(&mut self.versions.releases, version, read(change)?);
                effects.desired = true;
            }
            Key::ActiveRollout => self.change_active_rollout(change, effects)?,
            Key::Rollout { id } => self.change_rollout(change, id, effects)?,
            Key::Leader { role } => self.change_leader(change, role, effects)?,
            Key::Published { node } => self.change_published(change, &node, effects)?,
            Key::Datum { layer, key } => self.change_datum(change, layer, key, effects)?,
            Key::Pause { scope } => self.change_pause(change, scope, effects)?,
            Key::RunRequest { node } => {
                let request = read(change)?;
                effects.addressed_nodes.insert(node.clone());
                self.node(&node, effects).run_request = at(change, request);
            }
            Key::Desired { node } => self.change_desired(change, &node, effects)?,
            Key::RunningVersion { version, node } => self.change_running(change, version, &node, effects),
            Key::Provisioned { success, node } => self.change_provisioned(change, success, &node, effects),
            Key::Status { state, node } => self.change_status(change, state, &node, effects)?,
            Key::ActiveRole { version, node } => self.change_active_role(change, version, node, before, effects)?,
            Key::Observed { node } => self.change_observed(change, &node, effects)?,
            Key::PastRun { node, run } => {
                self.node(&node, effects).history.set_run(&run, change.value, change.revision)?;
            }
            Key::RunList { node } => self.node(&node, effects).history.set_list(change.value),
            Key::Node { node } => self.change_node_record(change, &node, effects)?,
            Key::Machine { node } => self.node(&node, effects).machine = at(change, read(change)?),
            Key::Policy { node } => self.change_policy(change, &node, effects)?,
            Key::SelfValues { node } => self.change_self_values(change, &node, effects)?,
            Key::Presence { node } => {
                effects.servers = true;
                self.node(&node, effects).presence = at(change, read(change)?);
            }
            Key::Token { id } => set_entry(&mut self.tokens, id, at(change, read(change)?)),
            Key::Certificate { node } => self.change_certificate(change, &node, effects)?,
            Key::Replica { replica } => {
                effects.servers = true;
                self.changes.record_all();
                set_entry(&mut self.servers.replicas, replica, at(change, read(change)?));
            }
            Key::Controller { name } => {
                effects.servers = true;
                set_entry(&mut self.servers.controllers, name, at(change, read(change)?));
            }
            Key::Unknown => {}
        }
        Ok(())
    }

    fn change_epoch(&mut self, change: &KeyChange<'_>, effects: &mut Effects) -> Applied {
        self.lifecycle.epoch_at = change.value.map(|_| change.revision);
        self.lifecycle.epoch = read(change)?.unwrap_or(0);
        effects.desired = true;
        // Servers discover environments by this key.
        effects.servers = true;
        Ok(())
    }

    /// An unreadable mark counts as a mark: the environment is not in order. Streams end and controllers stop until it is gone.
    fn change_restoring(&mut self, change: &KeyChange<'_>, effects: &mut Effects) -> Applied {
        self.lifecycle.restoring = change.value.map(|_| RestoreRecord::default());
        effects.desired = true;
        effects.servers = true;
        self.lifecycle.restoring = read(change)?;
        Ok(())
    }

    /// As for a restore: an unreadable mark counts as a mark.
    fn change_destroying(&mut self, change: &KeyChange<'_>, effects: &mut Effects) -> Applied {
        self.lifecycle.destroying = change.value.map(|_| (DestroyRecord::default(), change.revision));
        effects.design = true;
        effects.servers = true;
        self.lifecycle.destroying = at(change, read(change)?);
        Ok(())
    }

    fn change_design_revision(
        &mut self,
        change: &KeyChange<'_>,
        revision: DesignRevision,
        effects: &mut Effects,
    ) -> Applied {
        effects.design = true;
        set_entry(&mut self.design.revisions, revision, read(change)?);
        Ok(())
    }

    fn change_current_version(&mut self, change: &KeyChange<'_>, effects: &mut Effects) -> Applied {
        let text = change.value.map(|value| String::from_utf8_lossy(value).into_owned());
        let version: Option<Version> = text.map(Version::new).transpose().map_err(serde_json::Error::custom)?;
        effects.servers |= self.versions.current.is_none();
        self.versions.current = at(change, version);
        effects.desired = true;
        Ok(())
    }

    /// An unreadable record holds the whole fleet. Ignoring it would give all nodes without a grant the new
    /// version at once.
    fn change_active_rollout(&mut self, change: &KeyChange<'_>, effects: &mut Effects) -> Applied {
        effects.desired = true;
        effects.rollouts = true;
        self.rollouts.active = None;
        self.rollouts.active_unreadable = change.value.is_some();
        self.rollouts.active = at(change, read(change)?);
        self.rollouts.active_unreadable = false;
        Ok(())
    }

    /// An unreadable record removes the old one: no decision may rest on it.
    fn change_rollout(&mut self, change: &KeyChange<'_>, id: RolloutId, effects: &mut Effects) -> Applied {
        effects.rollouts = true;
        self.rollouts.records.remove(&id);
        set_entry(&mut self.rollouts.records, id, at(change, read(change)?));
        Ok(())
    }

    fn change_leader(&mut self, change: &KeyChange<'_>, role: Role, effects: &mut Effects) -> Applied {
        effects.leaders = true;
        effects.lookups.insert(format!("leader::{role}"));
        set_entry(&mut self.leaders, role, at(change, read(change)?));
        Ok(())
    }

    fn change_published(&mut self, change: &KeyChange<'_>, node: &NodeName, effects: &mut Effects) -> Applied {
        let publication: Publication = read(change)?.unwrap_or_default();
        let changed = self.published.replace(node, publication);
        effects.lookups.extend(changed.iter().map(|key| format!("published::{key}")));
        Ok(())
    }

    fn change_datum(&mut self, change: &KeyChange<'_>, layer: Layer, key: DataKey, effects: &mut Effects) -> Applied {
        effects.lookups.insert(format!("data::{key}"));
        self.data.set(layer, key, at(change, read(change)?));
        Ok(())
    }

    /// An unreadable pause still holds its nodes. Only an operator may end it.
    fn change_pause(&mut self, change: &KeyChange<'_>, scope: PauseScope, effects: &mut Effects) -> Applied {
        effects.desired = true;
        let unreadable = change.value.map(|_| (unreadable_pause(), change.revision));
        set_entry(&mut self.pauses, scope.clone(), unreadable);
        if let Some(pause) = read(change)? {
            self.pauses.insert(scope, (pause, change.revision));
        }
        Ok(())
    }

    /// An unreadable record is no identity: its machine is refused until an operator has made a new token.
    fn change_certificate(&mut self, change: &KeyChange<'_>, node: &NodeName, effects: &mut Effects) -> Applied {
        effects.identities = true;
        let node = self.node(node, effects);
        node.certificate = None;
        node.certificate = at(change, read(change)?);
        Ok(())
    }

    fn change_desired(&mut self, change: &KeyChange<'_>, node: &NodeName, effects: &mut Effects) -> Applied {
        effects.addressed_nodes.insert(node.clone());
        let node = self.node(node, effects);
        node.desired = None;
        node.desired_unreadable = change.value.is_some();
        node.desired = at(change, read(change)?);
        node.desired_unreadable = false;
        Ok(())
    }

    /// An unreadable policy cordons the node. Only an operator may put it in service again.
    fn change_policy(&mut self, change: &KeyChange<'_>, name: &NodeName, effects: &mut Effects) -> Applied {
        effects.addressed_nodes.insert(name.clone());
        effects.leaders = true;
        effects.design = true;
        self.node(name, effects).policy = change.value.map(|_| (unreadable_policy(), change.revision));
        let policy = read(change)?;
        self.node(name, effects).policy = at(change, policy);
        Ok(())
    }

    /// Only the node itself can look these values up.
    fn change_self_values(&mut self, change: &KeyChange<'_>, name: &NodeName, effects: &mut Effects) -> Applied {
        effects.addressed_nodes.insert(name.clone());
        self.node(name, effects).self_text = None;
        let values: Option<SelfValues> = read(change)?;
        let text = change.value.filter(|_| values.is_some()).and_then(|text| std::str::from_utf8(text).ok());
        self.node(name, effects).self_text = text.map(Into::into);
        Ok(())
    }

    fn change_running(&mut self, change: &KeyChange<'_>, version: Version, name: &NodeName, effects: &mut Effects) {
        let exists = change.value.is_some();
        let node = self.node(name, effects);
        set_member(&mut node.running, version.clone(), exists);
        let counts = exists && !node.is_leaving();
        self.count_running(version, name, counts);
    }

    fn change_provisioned(&mut self, change: &KeyChange<'_>, success: bool, node: &NodeName, effects: &mut Effects) {
        let node = self.node(node, effects);
        if change.value.is_some() {
            node.provisioned = Some(success);
        } else if node.provisioned == Some(success) {
            node.provisioned = None;
        }
    }

    fn change_status(
        &mut self,
        change: &KeyChange<'_>,
        state: ServiceState,
        node: &NodeName,
        effects: &mut Effects,
    ) -> Applied {
        let leaf = read(change)?;
        let node = self.node(node, effects);
        if let Some(leaf) = leaf {
            node.states.insert(state, leaf);
            node.state_at = Some(change.revision);
        } else {
            node.states.remove(&state);
            node.state_at = node.state_at.filter(|_| !node.states.is_empty());
        }
        Ok(())
    }

    fn change_active_role(
        &mut self,
        change: &KeyChange<'_>,
        version: Version,
        name: NodeName,
        before: &mut ActiveBefore,
        effects: &mut Effects,
    ) -> Applied {
        let active: Option<ActiveRole> = read(change)?;
        let node = self.node(&name, effects);
        before.entry(name).or_insert_with(|| node.active().cloned());
        set_entry(&mut node.active, version, at(change, active));
        Ok(())
    }

    fn change_observed(&mut self, change: &KeyChange<'_>, node: &NodeName, effects: &mut Effects) -> Applied {
        let observed: Option<ObservedRecord> = read(change)?;
        self.index_lookups(node, observed.as_ref());
        self.note_leader_addresses(node, observed.as_ref(), effects);
        self.node(node, effects).observed = at(change, observed);
        Ok(())
    }

    fn change_node_record(&mut self, change: &KeyChange<'_>, name: &NodeName, effects: &mut Effects) -> Applied {
        effects.records = true;
        let record: Option<NodeRecord> = read(change)?;
        let old = self.node(name, effects).record.take();
        if let Some(old) = &old {
            self.count_member(&old.role, false, effects);
            self.index_host(old, name, false);
        }
        if let Some(new) = &record {
            self.count_member(&new.role, true, effects);
            self.index_host(new, name, true);
        }
        if let (Some(old), Some(new)) = (&old, &record)
            && (&old.role, &old.host_name) != (&new.role, &new.host_name)
        {
            effects.addressed_nodes.insert(name.clone());
            self.note_leader(name, effects);
        }
        let node = self.node(name, effects);
        node.record_at = record.is_some().then_some(change.revision);
        node.record = record;
        // A leaving node does not count as running a version.
        let (counts, running) = (!node.is_leaving(), node.running.clone());
        running.into_iter().for_each(|version| self.count_running(version, name, counts));
        Ok(())
    }

    fn index_host(&mut self, record: &NodeRecord, name: &NodeName, has_it: bool) {
        let Some(host) = &record.host_name else { return };
        if has_it {
            self.index.hosts.entry(host.clone()).or_default().insert(name.clone());
        } else if let Some(named) = self.index.hosts.get_mut(host) {
            named.remove(name);
            if named.is_empty() {
                self.index.hosts.remove(host);
            }
        }
    }

    fn node(&mut self, name: &NodeName, effects: &mut Effects) -> &mut Node {
        effects.nodes.insert(name.clone());
        self.nodes.entry(name.clone()).or_default()
    }

    fn count_running(&mut self, version: Version, node: &NodeName, counts: bool) {
        let nodes = self.index.running.entry(version).or_default();
        if counts {
            nodes.insert(node.clone());
        } else {
            nodes.remove(node);
        }
        self.index.running.retain(|_, nodes| !nodes.is_empty());
    }

    fn index_lookups(&mut self, name: &NodeName, now: Option<&ObservedRecord>) {
        let before = self.nodes.get(name).and_then(|node| node.observed.as_ref()).map(|(observed, _)| observed);
        let before = before.map(|observed| observed.looked_up.roles()).unwrap_or_default();
        let after = now.map(|observed| observed.looked_up.roles()).unwrap_or_default();
        let readers = &mut self.index.role_readers;
        for role in before.difference(&after) {
            if let Some(nodes) = readers.get_mut(role) {
                nodes.remove(name);
                if nodes.is_empty() {
                    readers.remove(role);
                }
            }
        }
        for role in after.difference(&before) {
            readers.entry(role.clone()).or_default().insert(name.clone());
        }
        let reads_all = now.is_some_and(|observed| observed.looked_up.is_wide());
        set_member(&mut self.index.wide_readers, name.clone(), reads_all);
    }

    /// A leader with other addresses is another value for nodes that look it up.
    fn note_leader_addresses(&self, name: &NodeName, now: Option<&ObservedRecord>, effects: &mut Effects) {
        let before = self.nodes.get(name).and_then(|node| node.observed.as_ref()).map(|(observed, _)| observed);
        if before.map(|observed| &observed.interfaces) == now.map(|observed| &observed.interfaces) {
            return;
        }
        self.note_leader(name, effects);
    }

    /// The lookups of the roles that a node leads have new values.
    fn note_leader(&self, name: &NodeName, effects: &mut Effects) {
        let led = self.leaders.iter().filter(|(_, (leader, _))| leader.node.as_ref() == Some(name));
        effects.lookups.extend(led.map(|(role, _)| format!("leader::{role}")));
    }

    fn count_member(&mut self, role: &Role, joins: bool, effects: &mut Effects) {
        let members = self.index.roles.entry(role.clone()).or_default();
        let existed = !members.is_empty();
        members.members = if joins { members.members + 1 } else { members.members.saturating_sub(1) };
        self.drop_empty_role(role, existed, effects);
    }

    /// Removes a role without members. Adding or removing a role changes the result of its lookups.
    fn drop_empty_role(&mut self, role: &Role, existed: bool, effects: &mut Effects) {
        let exists = self.index.roles.get(role).is_some_and(|members| !members.is_empty());
        if !exists {
            self.index.roles.remove(role);
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
            let role = self.index.roles.entry(before.role.clone()).or_default();
            role.active.remove(node);
            role.tags.remove(node, &before.interfaces);
            self.drop_empty_role(&before.role, true, effects);
        }
        if let Some(after) = &after {
            let role = self.index.roles.entry(after.role.clone()).or_default();
            let existed = !role.is_empty();
            role.active.insert(node.clone());
            role.tags.add(node, &after.interfaces);
            self.drop_empty_role(&after.role, existed, effects);
        }
        let services =
            |active: &Option<ActiveRole>| active.as_ref().map(|active| active.services.clone()).unwrap_or_default();
        let changed = self.index.services.replace(node, &services(&before), &services(&after));
        effects.lookups.extend(changed.iter().map(|name| format!("services::{name}")));
        let place = |active: &Option<ActiveRole>| {
            active.as_ref().map(|active| (active.role.clone(), active.interfaces.clone()))
        };
        if place(&before) == place(&after) {
            return;
        }
        effects.lookups.insert("active_roles".to_owned());
        let none = Interfaces::new();
        let interfaces = |active: &Option<ActiveRole>, role: &Role| match active {
            Some(active) if active.role == *role => active.interfaces.clone(),
            Some(_) | None => none.clone(),
        };
        for role in [&before, &after].into_iter().flatten().map(|active| &active.role) {
            effects.lookups.insert(format!("active_roles::{role}"));
            let (old, new) = (interfaces(&before, role), interfaces(&after, role));
            for name in old.names().chain(new.names()).filter(|name| old.get(name) != new.get(name)) {
                effects.lookups.insert(format!("active_roles::{role}::{}", interface_in_key(name)));
            }
        }
    }

    fn update_unproven(&mut self, name: &NodeName) {
        let observed = self.nodes.get(name).and_then(|node| node.observed.as_ref());
        let is_unproven = observed.is_some_and(|(observed, _)| NotCounted::of_record(observed, self.epoch()).is_some());
        set_member(&mut self.index.unproven, name.clone(), is_unproven);
    }

    fn update_late(&mut self, name: &NodeName) {
        let is_late = self.nodes.get(name).is_some_and(|node| self.is_late(node, self.base().as_ref()));
        set_member(&mut self.index.late, name.clone(), is_late);
    }

    /// Needed when the desired version of nodes without a grant changes: any node may be late then.
    fn rebuild_late(&mut self) {
        let base = self.base();
        let late = self.nodes.iter().filter(|(_, node)| self.is_late(node, base.as_ref()));
        self.index.late = late.map(|(name, _)| name.clone()).collect();
    }
}

fn unreadable_pause() -> PauseRecord {
    PauseRecord {
        by: "unknown".into(),
        reason: "the pause in the store cannot be read".into(),
        since: Timestamp::UNIX_EPOCH,
        until: None,
    }
}

fn unreadable_policy() -> PolicyRecord {
    PolicyRecord {
        policy: NodePolicy::Cordoned,
        by: "unknown".into(),
        reason: "the policy in the store cannot be read".into(),
        since: Timestamp::UNIX_EPOCH,
        keeps: None,
    }
}

fn read<T: serde::de::DeserializeOwned>(change: &KeyChange<'_>) -> Result<Option<T>, serde_json::Error> {
    change.value.map(serde_json::from_slice).transpose()
}

/// A value with the revision of its key.
fn at<T>(change: &KeyChange<'_>, value: Option<T>) -> Option<(T, Revision)> {
    value.map(|value| (value, change.revision))
}

fn set_entry<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

fn set_member<T: Ord>(set: &mut BTreeSet<T>, member: T, is_member: bool) {
    if is_member {
        set.insert(member);
    } else {
        set.remove(&member);
    }
}
