//! Periodic and triggered tasks of a server.

use std::collections::BTreeMap;

use crate::simulation::event::{Event, ReplicaEvent, ReplicaNumber};
use crate::simulation::event_queue::SimTime;
use crate::simulation::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReplicaTask {
    Join,
    KeepLease,
    /// Write its own key if it is missing.
    Register,
    ControllerLocks,
    Presence,
    Liveness,
    Rollout,
    /// Read all keys again after a lost watch.
    Rebuild,
}

/// When each task is due. A task is scheduled once.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskSchedule(BTreeMap<ReplicaTask, SimTime>);

impl TaskSchedule {
    pub(super) fn is_due(&self, chore: ReplicaTask, until: SimTime) -> bool {
        self.0.get(&chore).is_some_and(|at| *at <= until)
    }
}

impl World {
    /// Schedules a task, unless it is due earlier anyway.
    pub(crate) fn schedule_task(&mut self, replica: ReplicaNumber, chore: ReplicaTask, at: SimTime) {
        let known = self.replicas[replica].chores.0.get(&chore).copied();
        if known.is_some_and(|known| known <= at) {
            return;
        }
        self.replicas[replica].chores.0.insert(chore, at);
        let life = self.replicas[replica].life;
        self.queue.schedule(at, Event::Replica { replica, life, what: ReplicaEvent::Due(chore) });
    }

    pub(crate) fn run_task(&mut self, replica: ReplicaNumber, chore: ReplicaTask) {
        let chores = &mut self.replicas[replica].chores.0;
        match chores.get(&chore) {
            // It was moved to an earlier time, and is done.
            None => return,
            Some(at) if *at > self.now => return,
            Some(_) => chores.remove(&chore),
        };
        match chore {
            ReplicaTask::Join => self.join(replica),
            ReplicaTask::KeepLease => self.keep_lease(replica),
            ReplicaTask::Register => self.place(replica),
            ReplicaTask::ControllerLocks => self.update_controller_locks(replica),
            ReplicaTask::Presence => self.write_presence(replica),
            ReplicaTask::Liveness => self.reconcile_liveness(replica),
            ReplicaTask::Rollout => self.start_reconcile(replica),
            ReplicaTask::Rebuild => self.rebuild(replica),
        }
    }
}
