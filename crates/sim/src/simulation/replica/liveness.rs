//! Takes lost nodes out of their roles, and puts them back: [`muster_core::node::liveness`] decides.

use std::time::Duration;

use muster_core::node::liveness::{LivenessInput, LivenessTimeouts, decide, is_fit, transactions};
use muster_core::node::status::Activity;
use muster_core::replica::ControllerName;
use muster_core::txn::Revision;

use super::calls::{Answer, Call, Request};
use super::chore::Chore;
use super::tenures::Fenced;
use crate::simulation::event::ReplicaNumber;
use crate::simulation::world::World;

impl World {
    /// Connections that come and go are looked at together.
    pub(super) fn pace(&self) -> Duration {
        Duration::from_secs(1)
    }

    pub(super) fn look_after_liveness(&mut self, replica: ReplicaNumber) {
        let clock = self.clock_of(replica);
        let Some(held) = self.replicas[replica].held(ControllerName::Liveness, self.now) else { return };
        if self.replicas[replica].liveness_under_way > 0 {
            return;
        }
        let listening = held.since.max(self.replicas[replica].listening_since);
        let links = self.replicas[replica].links(clock);
        let server = &self.replicas[replica];
        let Some(fleet) = &server.view else { return };
        let seen = fleet.designed().filter_map(|(name, node, record)| {
            let activity = server.connections.get(name).map(|connection| &connection.activity);
            let running = activity.is_some_and(|activity| match activity {
                Activity::Applying { .. } | Activity::Validating { .. } => true,
                Activity::Idle | Activity::Retrying { .. } | Activity::Blocked { .. } => false,
            });
            Some(LivenessInput {
                node: name,
                failure_domain: &record.failure_domain,
                link: *links.get(name)?,
                fit: is_fit(node) && !running,
                active: node.active().is_some(),
            })
        });
        let decision = decide(seen, LivenessTimeouts::default(), listening, clock);
        let changes = transactions(fleet, &decision);
        if let Some(at) = decision.recheck {
            let wait = Duration::try_from(at.duration_since(clock)).unwrap_or_default();
            self.due(replica, Chore::Liveness, self.now + wait.max(self.pace()));
        }
        for (node, txn) in changes {
            let Some((held, txn)) = self.fenced(replica, ControllerName::Liveness, txn) else { return };
            let back = decision.restore.contains(&node);
            let what = if back { "is back" } else { "is lost" };
            self.server_says(replica, format_args!("{node} {what}"));
            self.replicas[replica].liveness_under_way += 1;
            self.call(replica, Call::Liveness { held }, Request::Commit(txn));
        }
    }

    pub(super) fn liveness_written(&mut self, replica: ReplicaNumber, held: Revision, answer: Answer) {
        self.replicas[replica].liveness_under_way -= 1;
        match self.outcome(replica, ControllerName::Liveness, held, &answer) {
            Fenced::Committed | Fenced::Deposed => {}
            Fenced::Refused | Fenced::Failed => self.due(replica, Chore::Liveness, self.now + self.pace()),
        }
    }
}
