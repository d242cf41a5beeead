//! Presence and liveness of agents: [`muster_core::replica::links`] decides which of them are connected to any server, and
//! which nodes are lost. Presence is written for the other servers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::fleet::changes::{ChangeLog, ChangePosition, ChangedNodes};
use muster_core::fleet::{Effects, Fleet};
use muster_core::names::{NodeName, ReplicaId};
use muster_core::node::liveness::{Link, LivenessInput, LivenessTimeouts, decide, may_be_active, transactions};
use muster_core::node::status::Activity;
use muster_core::replica::ControllerName;
use muster_core::replica::links::LocalLink;
use muster_core::replica::presence::{BATCH, LocalSession, plan, txn};
use muster_core::txn::Revision;
use muster_wire::sync::SyncEvent;

use crate::simulation::event::{Event, ReplicaEvent, ReplicaNumber, SessionNumber, SimTime};
use crate::simulation::world::World;

use super::calls::{Answer, Call, Request};
use super::membership::FencedOutcome;
use super::{Replica, ReplicaTask};

/// Connections that change within this time are written together.
const PACE: Duration = Duration::from_millis(250);
const AGAIN: Duration = Duration::from_secs(1);
/// The ping interval.
const PING: Duration = Duration::from_secs(10);

impl World {
    pub(super) fn write_presence(&mut self, replica: ReplicaNumber) {
        let server = &self.replicas[replica];
        if server.agents.presence_under_way || server.current(self.now).is_none() {
            return;
        }
        let Some(fleet) = &server.view else { return };
        let greeted = server.agents.connections.iter().filter(|(_, connection)| connection.is_accepted());
        let here: HashMap<_, _> = greeted
            .map(|(node, connection)| {
                (
                    node.clone(),
                    LocalSession {
                        since: connection.since,
                        heard_at: connection.heard_at,
                        holder: None,
                        agent: connection.agent.clone(),
                    },
                )
            })
            .collect();
        let silent = |node: &_| server.agents.silent_since.get(node).copied().unwrap_or(server.agents.listening_since);
        let plan = plan(fleet, &server.id, &here, silent, &server.agents.ended_calls);
        self.await_pings(replica, &plan.contested);
        let batch = &plan.writes[..plan.writes.len().min(BATCH)];
        if batch.is_empty() {
            return;
        }
        let Ok(txn) = txn(&self.env, batch) else { return };
        self.replicas[replica].agents.presence_under_way = true;
        self.call(replica, Call::Presence, Request::Commit(txn));
    }

    /// Every server pings its agents. Most answers change nothing, and only those are simulated that a presence
    /// decision waits for.
    fn await_pings(&mut self, replica: ReplicaNumber, contested: &[NodeName]) {
        for node in contested {
            let Some(connection) = self.replicas[replica].agents.connections.get_mut(node) else { continue };
            if std::mem::replace(&mut connection.pinged, true) {
                continue;
            }
            let session = connection.session;
            let at = self.now + self.random_between(0, 10_000);
            self.ping_at(replica, session, at);
        }
    }

    fn ping_at(&mut self, replica: ReplicaNumber, session: SessionNumber, at: SimTime) {
        let life = self.replicas[replica].life;
        self.queue.schedule(at, Event::Replica { replica, life, what: ReplicaEvent::Pings { session } });
    }

    pub(super) fn ping(&mut self, replica: ReplicaNumber, session: SessionNumber) {
        let Some(node) = self.connected_as(replica, session) else { return };
        if self.replicas[replica].agents.connections.get(&node).is_some_and(|connection| connection.pinged) {
            self.send(session, SyncEvent::Ping);
            self.ping_at(replica, session, self.now + PING);
        }
    }

    pub(super) fn presence_written(&mut self, replica: ReplicaNumber, answer: Answer) {
        self.replicas[replica].agents.presence_under_way = false;
        let again = match answer {
            Answer::Committed { .. } | Answer::Refused { .. } => PACE,
            Answer::Failed(_) | Answer::Read { .. } | Answer::Joined { .. } | Answer::Kept => AGAIN,
        };
        self.schedule_task(replica, ReplicaTask::Presence, self.now + again);
    }
}

impl World {
    /// Connections that change within this time are handled together.
    pub(super) fn pace(&self) -> Duration {
        Duration::from_secs(1)
    }

    pub(super) fn reconcile_liveness(&mut self, replica: ReplicaNumber) {
        let clock = self.clock_of(replica);
        let Some(held) = self.replicas[replica].held(ControllerName::Liveness, self.now) else { return };
        if self.replicas[replica].agents.liveness_under_way > 0 {
            return;
        }
        let listening = held.since.max(self.replicas[replica].agents.listening_since);
        let links = self.replicas[replica].links(clock);
        let server = &self.replicas[replica];
        let Some(fleet) = &server.view else { return };
        let seen = fleet.designed().filter_map(|(name, node, record)| {
            let activity = server.agents.connections.get(name).map(|connection| &connection.activity);
            let running = activity.is_some_and(|activity| match activity {
                Activity::Applying { .. } | Activity::Validating { .. } => true,
                Activity::Idle | Activity::Retrying { .. } | Activity::Blocked { .. } => false,
            });
            Some(LivenessInput {
                node: name,
                failure_domain: &record.failure_domain,
                link: *links.get(name)?,
                may_be_active: may_be_active(node) && !running,
                active: node.active().is_some(),
            })
        });
        let decision = decide(seen, LivenessTimeouts::default(), listening, clock);
        let changes = transactions(fleet, &decision);
        if let Some(at) = decision.recheck {
            let wait = Duration::try_from(at.duration_since(clock)).unwrap_or_default();
            self.schedule_task(replica, ReplicaTask::Liveness, self.now + wait.max(self.pace()));
        }
        for (node, txn) in changes {
            let Some((held, txn)) = self.fenced(replica, ControllerName::Liveness, txn) else { return };
            let back = decision.restore.contains(&node);
            let what = if back { "is back" } else { "is lost" };
            self.log_replica(replica, format_args!("{node} {what}"));
            self.replicas[replica].agents.liveness_under_way += 1;
            self.call(replica, Call::Liveness { held }, Request::Commit(txn));
        }
    }

    pub(super) fn liveness_written(&mut self, replica: ReplicaNumber, held: Revision, answer: Answer) {
        self.replicas[replica].agents.liveness_under_way -= 1;
        match self.outcome(replica, ControllerName::Liveness, held, &answer) {
            FencedOutcome::Committed | FencedOutcome::Deposed => {}
            FencedOutcome::Refused | FencedOutcome::Failed => {
                self.schedule_task(replica, ReplicaTask::Liveness, self.now + self.pace())
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Links {
    /// Shared with the readers.
    known: Arc<HashMap<NodeName, Link>>,
    /// Nodes whose link may have changed.
    stale: BTreeSet<NodeName>,
    /// All links are unknown: at the start, and when servers join or leave.
    all_stale: bool,
    /// The live servers, by the view.
    servers: BTreeSet<ReplicaId>,
    /// Nodes whose connection here began or ended last.
    changes: ChangeLog,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            known: Arc::default(),
            stale: BTreeSet::new(),
            all_stale: true,
            servers: BTreeSet::new(),
            changes: ChangeLog::default(),
        }
    }
}

impl Links {
    /// A connection here began or ended.
    pub(super) fn connection_changed(&mut self, node: &NodeName) {
        self.changes.record(node.clone(), self.known.len());
        self.invalidate(node);
    }

    /// As in the server: connections to other servers change with keys.
    pub(super) fn changes(&self, since: Option<&ChangePosition>) -> ChangedNodes {
        self.changes.read(since)
    }

    fn invalidate(&mut self, node: &NodeName) {
        if !self.all_stale {
            self.stale.insert(node.clone());
        }
    }

    /// Connections and live servers are also in the store.
    pub(super) fn view_moved(&mut self, effects: &Effects, fleet: &Fleet) {
        if effects.servers && !self.servers.iter().eq(fleet.replicas().keys()) {
            self.servers = fleet.replicas().keys().cloned().collect();
            self.all_stale = true;
        }
        effects.nodes.iter().for_each(|node| self.invalidate(node));
    }
}

impl Replica {
    fn here(&self, node: &NodeName) -> LocalLink {
        match self.agents.connections.get(node).filter(|connection| connection.is_accepted()) {
            Some(connection) => LocalLink::Connected { since: connection.since },
            None => LocalLink::Not {
                since: self.agents.silent_since.get(node).copied().unwrap_or(self.agents.listening_since),
            },
        }
    }

    /// The current links. Empty before the view is built.
    pub(crate) fn links(&mut self, now: Timestamp) -> Arc<HashMap<NodeName, Link>> {
        let mut links = std::mem::take(&mut self.agents.links);
        let (Some(fleet), Some(mut absences)) = (self.view.as_ref(), self.agents.absences.take()) else {
            return Arc::default();
        };
        let mut link = |name: &NodeName| absences.link(fleet, name, self.here(name), now).0;
        if std::mem::take(&mut links.all_stale) {
            links.stale.clear();
            links.known = Arc::new(fleet.nodes().map(|(name, _)| (name.clone(), link(name))).collect());
        } else if !links.stale.is_empty() {
            let known = Arc::make_mut(&mut links.known);
            for name in std::mem::take(&mut links.stale) {
                match fleet.get(&name) {
                    Some(_) => drop(known.insert(name.clone(), link(&name))),
                    None => drop(known.remove(&name)),
                }
            }
        }
        let known = Arc::clone(&links.known);
        self.agents.absences = Some(absences);
        self.agents.links = links;
        known
    }
}
