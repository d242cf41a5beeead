//! Which agents are connected to a server, in the store for the others: [`muster_core::presence`] says what is to be written.

use std::collections::HashMap;
use std::time::Duration;

use muster_core::presence::{BATCH, Here, plan, txn};

use super::calls::{Answer, Call, Request};
use super::chore::Chore;
use crate::simulation::event::ReplicaNumber;
use crate::simulation::world::World;

/// One round takes in all that came and went within this.
const PACE: Duration = Duration::from_millis(250);
const AGAIN: Duration = Duration::from_secs(1);

impl World {
    pub(super) fn write_presence(&mut self, replica: ReplicaNumber) {
        let server = &self.replicas[replica];
        if server.presence_under_way || server.current(self.now).is_none() {
            return;
        }
        let Some(fleet) = &server.view else { return };
        let greeted = server.connections.iter().filter(|(_, connection)| connection.is_greeted());
        let here: HashMap<_, _> = greeted
            .map(|(node, connection)| (node.clone(), Here { since: connection.since, heard_at: connection.heard_at }))
            .collect();
        let silent = |node: &_| server.silent_since.get(node).copied().unwrap_or(server.listening_since);
        let plan = plan(fleet, &server.id, &here, silent);
        let batch = &plan.writes[..plan.writes.len().min(BATCH)];
        if batch.is_empty() {
            return;
        }
        let Ok(txn) = txn(&self.env, batch) else { return };
        self.replicas[replica].presence_under_way = true;
        self.call(replica, Call::Presence, Request::Commit(txn));
    }

    pub(super) fn presence_written(&mut self, replica: ReplicaNumber, answer: Answer) {
        self.replicas[replica].presence_under_way = false;
        let again = match answer {
            Answer::Committed { .. } | Answer::Refused { .. } => PACE,
            Answer::Failed(_) | Answer::Read { .. } | Answer::Joined { .. } | Answer::Kept => AGAIN,
        };
        self.due(replica, Chore::Presence, self.now + again);
    }
}
