//! A server's view: built from all keys, and updated by a watch that is delayed, breaks, and may lag behind compaction.

use std::collections::BTreeSet;

use muster_core::fleet::{Effects, Fleet, KeyChange};
use muster_core::keys;
use muster_core::replica::links::LinkTracker;
use muster_core::txn::Revision;
use muster_store::WatchChange;

use crate::simulation::event::{Event, ReplicaEvent, ReplicaNumber};
use crate::simulation::faults::Fault;
use crate::simulation::replica::ReplicaTask;
use crate::simulation::replica::presence::Links;
use crate::simulation::replica::sessions::Snapshots;
use crate::simulation::world::World;

/// Applies the changes of a transaction to a fleet. Unknown keys are ignored.
pub(crate) fn apply_changes(fleet: &mut Fleet, revision: Revision, changes: &[WatchChange]) -> Effects {
    fleet.apply(revision, changes.iter().filter_map(|change| key_change(change, revision)))
}

fn key_change(change: &WatchChange, at: Revision) -> Option<(KeyChange<'_>, keys::Key)> {
    let (key, value, revision): (&str, Option<&[u8]>, Revision) = match change {
        WatchChange::Put(kv) => (&kv.key, Some(&kv.value), kv.revision),
        WatchChange::Delete { key } => (key, None, at),
    };
    keys::parse(key).map(|(_, parsed)| (KeyChange { key, value, revision }, parsed))
}

impl World {
    /// A fleet built from the current state of the store.
    pub(crate) fn read_view(&self) -> Fleet {
        let mut fleet = Fleet::new(self.env.clone());
        let history = &self.depot.history;
        let changes: Vec<WatchChange> = history.now().values().cloned().map(WatchChange::Put).collect();
        apply_changes(&mut fleet, history.head(), &changes);
        fleet
    }

    /// A server loses its watch, and reads everything again.
    pub(crate) fn lose_watch(&mut self, replica: ReplicaNumber) {
        self.count_fault(Fault::WatchLost);
        self.log_replica(replica, format_args!("loses its watch of the store, and reads all keys again"));
        self.replicas[replica].watch.number += 1;
        let at = self.now + self.random_between(100, 2_000);
        self.schedule_task(replica, ReplicaTask::Rebuild, at);
    }

    /// Notifies a server's watch of a new revision.
    pub(crate) fn notify_watch(&mut self, replica: ReplicaNumber, upto: Revision) {
        if !self.replicas[replica].up || self.replicas[replica].view.is_none() {
            return;
        }
        if self.fault_occurs(self.faults.rates.watch_interrupted) {
            self.count_fault(Fault::WatchInterrupted);
            let until = self.now + self.random_between(200, 4_000);
            let server = &mut self.replicas[replica];
            server.watch.until = server.watch.until.max(until);
        } else if self.fault_occurs(self.faults.rates.watch_lost) {
            self.count_fault(Fault::WatchLost);
            self.replicas[replica].watch.number += 1;
            let at = self.now + self.random_between(100, 2_000);
            self.schedule_task(replica, ReplicaTask::Rebuild, at);
            return;
        }
        let travel = self.latency();
        let server = &self.replicas[replica];
        let at = (self.now + travel).max(server.watch.until).max(server.cut_off_until.unwrap_or_default());
        let what = ReplicaEvent::WatchNotified { watch: server.watch.number, upto };
        self.queue.schedule(at, Event::Replica { replica, life: server.life, what });
    }

    pub(crate) fn watch_notified(&mut self, replica: ReplicaNumber, watch: u64, upto: Revision) {
        if self.replicas[replica].watch.number != watch {
            return;
        }
        let Some(mut fleet) = self.replicas[replica].view.take() else { return };
        let changes_after: Option<Vec<_>> = match self.depot.history.after(fleet.revision) {
            Ok(changes_after) => {
                let changes_after = changes_after.take_while(|(revision, _)| *revision <= upto);
                Some(changes_after.map(|(revision, changes)| (revision, changes.clone())).collect())
            }
            // The changes were compacted.
            Err(_) => None,
        };
        let Some(changes_after) = changes_after else {
            self.replicas[replica].view = Some(fleet);
            self.replicas[replica].watch.number += 1;
            self.schedule_task(replica, ReplicaTask::Rebuild, self.now);
            return;
        };
        let mut effects = Effects::default();
        for (revision, changes) in changes_after {
            let more = apply_changes(&mut fleet, revision, &changes);
            effects.lookups.extend(more.lookups);
            effects.roles.extend(more.roles);
            effects.nodes.extend(more.nodes);
            effects.addressed_nodes.extend(more.addressed_nodes);
            effects.desired |= more.desired;
            effects.rollouts |= more.rollouts;
            effects.servers |= more.servers;
            effects.records |= more.records;
        }
        self.replicas[replica].view = Some(fleet);
        self.view_moved(replica, &effects);
    }

    /// Reads everything again.
    pub(crate) fn rebuild(&mut self, replica: ReplicaNumber) {
        let now = self.now;
        if self.replicas[replica].cut_off_until.is_some_and(|until| now < until)
            || self.depot.leaderless_until.is_some_and(|until| now < until)
        {
            let again = self.now + self.random_between(300, 700);
            self.schedule_task(replica, ReplicaTask::Rebuild, again);
            return;
        }
        let fleet = self.read_view();
        let first = self.replicas[replica].agents.absences.is_none();
        let server = &mut self.replicas[replica];
        server.watch.number += 1;
        // Removed nodes are in no change.
        (server.agents.links, server.snapshots) = (Links::default(), Snapshots::default());
        if first {
            let absences = LinkTracker::new(server.id.clone(), server.agents.listening_since, fleet.revision, [&fleet]);
            server.agents.absences = Some(absences);
        }
        let everything = Effects {
            nodes: fleet.nodes().map(|(name, _)| name.clone()).collect(),
            desired: true,
            rollouts: true,
            servers: true,
            records: true,
            roles: fleet.roles().map(|(role, _)| role.clone()).collect(),
            ..Effects::default()
        };
        server.view = Some(fleet);
        self.view_moved(replica, &everything);
    }

    /// Notifies everything that depends on the view.
    fn view_moved(&mut self, replica: ReplicaNumber, effects: &Effects) {
        let (now, clock) = (self.now, self.clock_of(replica));
        let server = &mut self.replicas[replica];
        if let Some(fleet) = &server.view {
            let revision = fleet.revision;
            server.agents.links.view_moved(effects, fleet);
            server.snapshots.view_moved(effects);
            server.watch.ages.record(revision, now);
            if effects.servers
                && let Some(absences) = &mut server.agents.absences
            {
                let live: BTreeSet<_> = fleet.replicas().keys().cloned().collect();
                absences.observe_replicas(live, clock);
            }
        }
        if effects.servers || self.replicas[replica].awaits_the_view() {
            self.schedule_task(replica, ReplicaTask::Register, now);
            self.schedule_task(replica, ReplicaTask::ControllerLocks, now);
            self.schedule_task(replica, ReplicaTask::Presence, now);
            self.schedule_task(replica, ReplicaTask::Liveness, now + self.pace());
        }
        if effects.records {
            self.schedule_task(replica, ReplicaTask::Liveness, now + self.pace());
        }
        self.wake_agents(replica, effects);
        if let Some(view) = self.replicas[replica].view.as_ref().map(|fleet| fleet.revision) {
            self.view_reached(replica, view);
            self.reports_catch_up(replica);
        }
        if effects.rollouts || effects.desired || effects.servers || !effects.nodes.is_empty() {
            self.reconcile_soon(replica);
        }
    }
}
