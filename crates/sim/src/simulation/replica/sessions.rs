//! The agents connected to a server: their incarnation, and the updates that they need.

use std::sync::Arc;

use jiff::Timestamp;
use muster_core::fleet::{Effects, Fleet};
use muster_core::lookup::Lookups;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::NodeName;
use muster_core::node::agent::AgentInfo;
use muster_core::node::pause::NodePause;
use muster_core::node::status::Activity;
use muster_core::replica::presence::EndedCall;
use muster_core::report::status_move;
use muster_core::txn::{Generation, Revision};
use muster_wire::sync::{DesiredState, SyncEvent, SyncOpen};

use super::ReplicaTask;
use super::calls::{Answer, Call, Failure, Request};
use crate::simulation::event::{ReplicaNumber, SessionNumber};
use crate::simulation::network::StreamMessage;
use crate::simulation::world::World;

/// As in the server.
const TRIES: u32 = 5;

/// A connected agent.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) session: SessionNumber,
    pub(crate) since: Timestamp,
    /// The revision of the view at the last message of the agent.
    pub(crate) heard_at: Revision,
    pub(crate) activity: Activity,
    /// The lookups of its last run, with the values that it has seen or was sent.
    pub(crate) seen: Lookups,
    generation: Option<Generation>,
    has_snapshot: bool,
    pause: Option<NodePause>,
    greeted: bool,
    pub(super) agent: Option<AgentInfo>,
    /// Another server claims the agent: the next answer to a ping decides.
    pub(super) pinged: bool,
}

impl Connection {
    pub(crate) fn is_accepted(&self) -> bool {
        self.greeted
    }
}

impl World {
    pub(super) fn opened(&mut self, replica: ReplicaNumber, session: SessionNumber, open: Box<SyncOpen>) {
        let Some(node) = self.sessions.get(&session).map(|session| self.machines[session.machine].name.clone()) else {
            return;
        };
        let since = self.clock_of(replica);
        let Some(fleet) = &self.replicas[replica].view else {
            // A server without a view accepts no agents.
            self.close_replica_end(session);
            self.notify_agent_of_loss(session);
            return;
        };
        let connection = Connection {
            session,
            since,
            heard_at: fleet.revision,
            activity: open.activity.clone(),
            seen: open.lookups.clone(),
            generation: open.generation,
            has_snapshot: open.has_snapshot,
            pause: open.pause.clone(),
            greeted: false,
            agent: open.agent(),
            pinged: false,
        };
        self.replicas[replica].agents.links.connection_changed(&node);
        if let Some(earlier) = self.replicas[replica].agents.connections.insert(node, connection) {
            self.close_replica_end(earlier.session);
            self.notify_agent_of_loss(earlier.session);
        }
        self.assign_incarnation(replica, session, open, 0);
    }

    pub(super) fn connected_as(&self, replica: ReplicaNumber, session: SessionNumber) -> Option<NodeName> {
        let name = &self.machines[self.sessions.get(&session)?.machine].name;
        let connection = self.replicas[replica].agents.connections.get(name)?;
        (connection.session == session).then(|| name.clone())
    }

    fn assign_incarnation(&mut self, replica: ReplicaNumber, session: SessionNumber, open: Box<SyncOpen>, tries: u32) {
        let Some(node) = self.connected_as(replica, session) else { return };
        let Some(fleet) = &self.replicas[replica].view else { return };
        let known = fleet.get(&node);
        if known.is_none_or(|known| known.record.is_none()) || tries >= TRIES {
            self.refuse_agent(replica, session, &node);
            return;
        }
        let observed = known.and_then(|known| known.observed.as_ref()).map(|(observed, at)| (observed, *at));
        let welcome =
            status_move::assign_incarnation(&self.keys, &node, observed, open.incarnation, open.boot.as_deref());
        let Ok(welcome) = welcome else { return };
        match welcome.txn {
            None => self.accept_agent(replica, session, welcome.incarnation),
            Some(txn) => {
                let call = Call::AssignIncarnation { session, open, incarnation: welcome.incarnation, tries };
                self.call(replica, call, Request::Commit(txn));
            }
        }
    }

    pub(super) fn incarnation_assigned(
        &mut self,
        replica: ReplicaNumber,
        session: SessionNumber,
        open: Box<SyncOpen>,
        incarnation: u64,
        tries: u32,
        answer: Answer,
    ) {
        match answer {
            Answer::Committed { .. } => self.accept_agent(replica, session, incarnation),
            // Decided again when the view has caught up. If this incarnation was assigned, the next one is used: gaps
            // do no harm.
            Answer::Refused { .. } | Answer::Failed(Failure::Unknown) => {
                let call = Call::RetryIncarnation { session, open, tries: tries + 1 };
                self.call(replica, call, Request::revision());
            }
            Answer::Failed(Failure::Unavailable | Failure::Full | Failure::LeaseEnded)
            | Answer::Read { .. }
            | Answer::Joined { .. }
            | Answer::Kept => {
                if let Some(node) = self.connected_as(replica, session) {
                    self.refuse_agent(replica, session, &node);
                }
            }
        }
    }

    pub(super) fn retry_incarnation(
        &mut self,
        replica: ReplicaNumber,
        session: SessionNumber,
        open: Box<SyncOpen>,
        tries: u32,
        answer: Answer,
    ) {
        let view = self.replicas[replica].view.as_ref().map(|fleet| fleet.revision).unwrap_or_default();
        match answer {
            Answer::Read { revision, .. } if view >= revision => self.assign_incarnation(replica, session, open, tries),
            Answer::Read { .. } if tries < TRIES * 4 => {
                let call = Call::RetryIncarnation { session, open, tries: tries + 1 };
                self.call(replica, call, Request::revision());
            }
            Answer::Read { .. }
            | Answer::Failed(_)
            | Answer::Committed { .. }
            | Answer::Refused { .. }
            | Answer::Joined { .. }
            | Answer::Kept => {
                if let Some(node) = self.connected_as(replica, session) {
                    self.refuse_agent(replica, session, &node);
                }
            }
        }
    }

    fn refuse_agent(&mut self, replica: ReplicaNumber, session: SessionNumber, node: &NodeName) {
        self.replicas[replica].agents.connections.remove(node);
        self.replicas[replica].agents.links.connection_changed(node);
        self.close_replica_end(session);
        self.notify_agent_of_loss(session);
    }

    fn accept_agent(&mut self, replica: ReplicaNumber, session: SessionNumber, incarnation: u64) {
        let Some(node) = self.connected_as(replica, session) else { return };
        let now = self.clock_of(replica);
        let server = &mut self.replicas[replica];
        let Some(fleet) = &server.view else { return };
        let Some(role) = fleet.get(&node).and_then(|node| node.record.as_ref()).map(|record| record.role.clone())
        else {
            return;
        };
        if let Some(connection) = server.agents.connections.get_mut(&node) {
            connection.greeted = true;
            connection.heard_at = fleet.revision;
        }
        server.agents.silent_since.remove(&node);
        server.agents.links.connection_changed(&node);
        self.send(session, SyncEvent::Hello { incarnation, role, host_name: None, now, protocol: None });
        self.send_updates(replica, &node);
        self.connections_changed(replica);
    }

    fn connections_changed(&mut self, replica: ReplicaNumber) {
        self.schedule_task(replica, ReplicaTask::Presence, self.now);
        self.schedule_task(replica, ReplicaTask::Liveness, self.now + self.pace());
        self.reconcile_soon(replica);
    }

    pub(super) fn activity_reported(&mut self, replica: ReplicaNumber, session: SessionNumber, activity: Activity) {
        let Some(node) = self.connected_as(replica, session) else { return };
        let server = &mut self.replicas[replica];
        let view = server.view.as_ref().map(|fleet| fleet.revision).unwrap_or_default();
        if let Some(connection) = server.agents.connections.get_mut(&node) {
            connection.activity = activity;
            connection.heard_at = view;
            if std::mem::take(&mut connection.pinged) {
                self.schedule_task(replica, ReplicaTask::Presence, self.now);
            }
        }
        self.schedule_task(replica, ReplicaTask::Liveness, self.now + self.pace());
    }

    pub(super) fn connection_lost(&mut self, replica: ReplicaNumber, session: SessionNumber) {
        let Some(node) = self.connected_as(replica, session) else { return };
        let now = self.clock_of(replica);
        let server = &mut self.replicas[replica];
        let connection = server.agents.connections.remove(&node);
        server.agents.links.connection_changed(&node);
        if let Some(agent) = connection.and_then(|connection| connection.agent).filter(|agent| agent.every.is_some()) {
            server.agents.ended_calls.insert(node.clone(), EndedCall { ended: now, agent });
        }
        server.agents.silent_since.insert(node, now);
        self.close_replica_end(session);
        self.connections_changed(replica);
    }

    /// Sends updates to the agents that a change affects.
    pub(super) fn wake_agents(&mut self, replica: ReplicaNumber, effects: &Effects) {
        let all_nodes = effects.desired || effects.records || !effects.roles.is_empty();
        if !all_nodes && effects.addressed_nodes.is_empty() && effects.lookups.is_empty() {
            return;
        }
        let connections = &self.replicas[replica].agents.connections;
        let concerned = |(name, connection): (&NodeName, &Connection)| {
            let wakes = all_nodes
                || effects.addressed_nodes.contains(name)
                || connection.seen.keys().any(|key| effects.lookups.contains(key));
            (wakes && connection.greeted).then(|| name.clone())
        };
        let names: Vec<NodeName> = if all_nodes || !effects.lookups.is_empty() {
            connections.iter().filter_map(concerned).collect()
        } else {
            // Usually few of the connected nodes are granted.
            effects
                .addressed_nodes
                .iter()
                .filter_map(|name| connections.get_key_value(name))
                .filter_map(concerned)
                .collect()
        };
        for name in names {
            self.send_updates(replica, &name);
        }
    }

    /// Sends an agent everything that it has not seen, in the order of the real stream.
    pub(super) fn send_updates(&mut self, replica: ReplicaNumber, node: &NodeName) {
        let now = self.clock_of(replica);
        let server = &mut self.replicas[replica];
        let (Some(fleet), Some(connection)) = (&server.view, server.agents.connections.get_mut(node)) else { return };
        let session = connection.session;
        let mut messages: Vec<StreamMessage> = Vec::new();
        let desired =
            DesiredState::for_node(fleet, node).filter(|desired| Some(desired.generation) > connection.generation);
        let tags: Lookups = connection.seen.keys().map(|key| (key.clone(), fleet.tag(key, Some(node)))).collect();
        let is_news = tags != connection.seen;
        // Another version may have other lookups: it starts with the newest snapshot.
        if is_news || desired.is_some() || !connection.has_snapshot {
            messages.push(StreamMessage::Snapshot(server.snapshots.snapshot_for(fleet, node)));
            connection.has_snapshot = true;
            connection.seen = tags;
        }
        let role = fleet.get(node).and_then(|node| node.record.as_ref()).map(|record| &record.role);
        if let Some(role) = role {
            let pause = fleet.pause_of(node, role, now);
            if pause != connection.pause {
                connection.pause.clone_from(&pause);
                messages.push(SyncEvent::Pause { pause }.into());
            }
        }
        if let Some(desired) = desired {
            connection.generation = Some(desired.generation);
            messages.push(SyncEvent::Desired(desired).into());
        }
        for event in messages {
            self.send(session, event);
        }
    }
}

/// The snapshot of all nodes without data of their own. It is kept until something changes that can be looked up.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshots(Option<Arc<Snapshot>>);

impl Snapshots {
    pub(super) fn snapshot_for(&mut self, fleet: &Fleet, node: &NodeName) -> Arc<Snapshot> {
        let shared = self.0.get_or_insert_with(|| Arc::new(fleet.snapshot()));
        let role = fleet.get(node).and_then(|node| node.record.as_ref()).map(|record| &record.role);
        match role.map(|role| fleet.data().unopened_for(node, role)).filter(|data| !data.is_empty()) {
            Some(data) => Arc::new(Snapshot { data, ..(**shared).clone() }),
            None => Arc::clone(shared),
        }
    }

    pub(super) fn view_moved(&mut self, effects: &Effects) {
        if !effects.lookups.is_empty() || !effects.roles.is_empty() {
            self.0 = None;
        }
    }
}
