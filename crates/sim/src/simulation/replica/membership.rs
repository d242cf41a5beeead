//! The lease of a server, and its key in the store.

use std::time::Duration;

use muster_core::replica::controller_lock::ReplicaLease;
use muster_core::replica::{BlobsMark, ReplicaRecord};
use muster_core::txn::{Guard, LeaseId, Op, Txn};

use super::calls::{Answer, Call, Failure, Request};
use super::task::ReplicaTask;
use crate::simulation::event::ReplicaNumber;
use crate::simulation::event_queue::SimTime;
use crate::simulation::world::World;

/// The defaults of `serve`.
const TTL: Duration = Duration::from_secs(10);
const KEEP_EVERY: Duration = Duration::from_secs(3);
pub(super) const AGAIN: Duration = Duration::from_millis(500);

impl World {
    pub(super) fn join(&mut self, replica: ReplicaNumber) {
        let call = Call::Join { sent: self.now };
        self.call(replica, call, Request::Join { ttl: TTL });
    }

    pub(super) fn joined(&mut self, replica: ReplicaNumber, sent: SimTime, answer: Answer) {
        let Answer::Joined { lease, after } = answer else {
            self.schedule_task(replica, ReplicaTask::Join, self.now + AGAIN);
            return;
        };
        let server = &mut self.replicas[replica];
        server.current = Some(ReplicaLease { lease, after });
        server.good_until = sent + TTL;
        self.schedule_task(replica, ReplicaTask::KeepLease, sent + KEEP_EVERY);
        self.schedule_task(replica, ReplicaTask::Register, self.now);
        self.schedule_task(replica, ReplicaTask::ControllerLocks, self.now);
    }

    pub(super) fn keep_lease(&mut self, replica: ReplicaNumber) {
        let Some(ReplicaLease { lease, .. }) = self.replicas[replica].current else { return };
        let call = Call::KeepAlive { lease, sent: self.now };
        self.call(replica, call, Request::KeepAlive { lease });
    }

    pub(super) fn kept(&mut self, replica: ReplicaNumber, lease: LeaseId, sent: SimTime, answer: Answer) {
        if self.replicas[replica].current.is_none_or(|current| current.lease != lease) {
            return;
        }
        match answer {
            Answer::Kept => {
                let was_cut_off = self.replicas[replica].good_until <= self.now;
                self.replicas[replica].good_until = sent + TTL;
                self.schedule_task(replica, ReplicaTask::KeepLease, (sent + KEEP_EVERY).max(self.now));
                if was_cut_off {
                    // Tasks that were due without a valid lease were not done.
                    for chore in [
                        ReplicaTask::ControllerLocks,
                        ReplicaTask::Presence,
                        ReplicaTask::Liveness,
                        ReplicaTask::Rollout,
                    ] {
                        self.schedule_task(replica, chore, self.now);
                    }
                }
            }
            Answer::Failed(Failure::LeaseEnded) => {
                self.log_replica(replica, format_args!("its lease has ended, and it takes another"));
                self.replicas[replica].current = None;
                self.schedule_task(replica, ReplicaTask::ControllerLocks, self.now);
                self.schedule_task(replica, ReplicaTask::Join, self.now);
            }
            Answer::Failed(Failure::Unavailable | Failure::Full | Failure::Unknown)
            | Answer::Committed { .. }
            | Answer::Refused { .. }
            | Answer::Read { .. }
            | Answer::Joined { .. } => {
                // The lease may expire before the next try: the controller locks are dropped then.
                self.schedule_task(replica, ReplicaTask::KeepLease, self.now + AGAIN);
                let good_until = self.replicas[replica].good_until;
                if good_until > self.now {
                    self.schedule_task(replica, ReplicaTask::ControllerLocks, good_until);
                }
            }
        }
    }

    /// Writes the key of a server if it is missing.
    pub(super) fn place(&mut self, replica: ReplicaNumber) {
        let server = &self.replicas[replica];
        let (Some(current), Some(fleet)) = (server.current(self.now), &server.view) else { return };
        if fleet.replicas().contains_key(&server.id) || !fleet.is_founded() {
            return;
        }
        let record = ReplicaRecord {
            url: format!("http://{}", server.id),
            host: format!("ctl{}", replica + 1),
            pid: 1,
            version: "simulated".into(),
            since: server.listening_since,
            blobs: BlobsMark { directory: "blobs".into(), nonce: server.id.to_string() },
        };
        let key = self.keys.replica(&server.id);
        let Ok(value) = serde_json::to_vec(&record) else { return };
        let op = Op::Put { key: key.clone(), value, lease: Some(current.lease) };
        let txn = Txn::new().guard(Guard::Absent { key }).op(op);
        self.call(replica, Call::Register, Request::Commit(txn));
    }

    pub(super) fn placed(&mut self, replica: ReplicaNumber, answer: Answer) {
        if !matches!(answer, Answer::Committed { .. }) {
            self.schedule_task(replica, ReplicaTask::Register, self.now + AGAIN);
        }
    }
}
