//! I9 and L3: whoever writes for a controller holds it, and somebody does.

use muster_core::names::ReplicaId;
use muster_core::replica::ControllerName;

use super::{Committed, Judge, Rule};
use crate::simulation::agenda::Moment;
use crate::simulation::store::Writer;

impl Judge {
    pub(super) fn judge_writer(&mut self, seen: &Committed<'_>) {
        let Writer::Controller { name, replica } = seen.writer else { return };
        let holder = self.fleet.controllers().get(name).map(|(record, _)| record.replica.clone());
        if holder.as_ref() != Some(replica) {
            let what = format!("{replica} writes for {name} at revision {}, which {holder:?} holds", seen.revision);
            self.accuse(Rule::OneHolder, what);
        }
    }

    /// A server is gone, or can do nothing for a while.
    pub(crate) fn replica_went(&mut self, id: &ReplicaId, now: Moment) {
        let holder = self.fleet.controllers().get(&ControllerName::Rollout).map(|(record, _)| &record.replica);
        if holder == Some(id) {
            self.orphaned = Some((id.clone(), now));
        }
    }

    pub(super) fn note_takeover(&mut self, now: Moment) {
        let Some((gone, since)) = &self.orphaned else { return };
        let holder = self.fleet.controllers().get(&ControllerName::Rollout).map(|(record, _)| &record.replica);
        if holder.is_some_and(|holder| holder != gone) {
            self.takeovers.push(now.saturating_sub(*since));
            self.orphaned = None;
        }
    }

    /// How long each takeover took.
    pub(crate) fn takeovers(&self) -> &[Moment] {
        &self.takeovers
    }
}
