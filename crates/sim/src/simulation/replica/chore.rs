//! What a server does by itself, each in its turn: when something has changed, and when its time has come.

use std::collections::BTreeMap;

use crate::simulation::agenda::Moment;
use crate::simulation::event::{Event, ReplicaEvent, ReplicaNumber};
use crate::simulation::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Chore {
    Join,
    KeepLease,
    /// Put its own key where it is missing.
    Place,
    Tenures,
    Presence,
    Liveness,
    Rollout,
    /// Read all anew: the watch is lost.
    Rebuild,
}

/// When each is due; nothing is due twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chores(BTreeMap<Chore, Moment>);

impl Chores {
    pub(super) fn is_due(&self, chore: Chore, until: Moment) -> bool {
        self.0.get(&chore).is_some_and(|at| *at <= until)
    }
}

impl World {
    /// Has something done at a moment, unless it is done earlier anyway.
    pub(crate) fn due(&mut self, replica: ReplicaNumber, chore: Chore, at: Moment) {
        let known = self.replicas[replica].chores.0.get(&chore).copied();
        if known.is_some_and(|known| known <= at) {
            return;
        }
        self.replicas[replica].chores.0.insert(chore, at);
        let life = self.replicas[replica].life;
        self.agenda.put(at, Event::Replica { replica, life, what: ReplicaEvent::Due(chore) });
    }

    pub(crate) fn do_chore(&mut self, replica: ReplicaNumber, chore: Chore) {
        let chores = &mut self.replicas[replica].chores.0;
        match chores.get(&chore) {
            // Of one that was put off to an earlier moment, and is done.
            None => return,
            Some(at) if *at > self.now => return,
            Some(_) => chores.remove(&chore),
        };
        match chore {
            Chore::Join => self.join(replica),
            Chore::KeepLease => self.keep_lease(replica),
            Chore::Place => self.place(replica),
            Chore::Tenures => self.settle_tenures(replica),
            Chore::Presence => self.write_presence(replica),
            Chore::Liveness => self.look_after_liveness(replica),
            Chore::Rollout => self.look_after_rollouts(replica),
            Chore::Rebuild => self.rebuild(replica),
        }
    }
}
