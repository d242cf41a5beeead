//! The lease of a server, its key in the store, and its controller locks: [`muster_core::replica::controller_lock`] decides.

use std::time::Duration;

use muster_core::replica::controller_lock::{ControllerLock, LockClaim, LockInput, LockStep, ReplicaLease, decide};
use muster_core::replica::{BlobsMark, ControllerName, ReplicaRecord};
use muster_core::txn::{Guard, LeaseId, Op, Revision, Txn};

use crate::simulation::event::{ReplicaNumber, SimTime};
use crate::simulation::world::World;

use super::calls::{Answer, Call, Failure, Request};
use super::{Replica, ReplicaTask};

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
        server.lease.current = Some(ReplicaLease { lease, after });
        server.lease.good_until = sent + TTL;
        self.schedule_task(replica, ReplicaTask::KeepLease, sent + KEEP_EVERY);
        self.schedule_task(replica, ReplicaTask::Register, self.now);
        self.schedule_task(replica, ReplicaTask::ControllerLocks, self.now);
    }

    pub(super) fn keep_lease(&mut self, replica: ReplicaNumber) {
        let Some(ReplicaLease { lease, .. }) = self.replicas[replica].lease.current else { return };
        let call = Call::KeepAlive { lease, sent: self.now };
        self.call(replica, call, Request::KeepAlive { lease });
    }

    pub(super) fn kept(&mut self, replica: ReplicaNumber, lease: LeaseId, sent: SimTime, answer: Answer) {
        if self.replicas[replica].lease.current.is_none_or(|current| current.lease != lease) {
            return;
        }
        match answer {
            Answer::Kept => {
                let was_cut_off = self.replicas[replica].lease.good_until <= self.now;
                self.replicas[replica].lease.good_until = sent + TTL;
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
                self.log_replica(replica, format_args!("its lease has expired, and it takes a new one"));
                self.replicas[replica].lease.current = None;
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
                let good_until = self.replicas[replica].lease.good_until;
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
            since: server.agents.listening_since,
            blobs: BlobsMark { directory: "blobs".into(), nonce: server.id.to_string() },
            secret_keys: Vec::new(),
            authorities: Vec::new(),
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

/// The controllers that simulated servers run.
pub(crate) const CONTROLLERS: [ControllerName; 2] = [ControllerName::Liveness, ControllerName::Rollout];
/// Replicas that see a free controller try to take it at different times within this.
const JITTER_MS: u64 = 200;

/// The outcome of a controller's write.
pub(super) enum FencedOutcome {
    Committed,
    /// A guard failed: decide again.
    Refused,
    /// Another server holds the controller: stop.
    Deposed,
    /// The write failed, or its outcome is unknown.
    Failed,
}

impl Replica {
    /// True if the view does not yet show why a write was refused.
    pub(super) fn awaits_the_view(&self) -> bool {
        !self.locks.refused.is_empty()
    }

    fn step(&self, name: ControllerName, now: std::time::Duration) -> LockStep {
        let fleet = self.view.as_ref();
        let holder = fleet.and_then(|fleet| fleet.controllers().get(&name));
        let lives = |id| fleet.is_some_and(|fleet| fleet.replicas().contains_key(id));
        decide(LockInput {
            me: &self.id,
            current: self.current(now),
            my_key: fleet.and_then(|fleet| fleet.replicas().get(&self.id)).map(|(_, at)| *at),
            holder: holder.map(|(record, at)| (&record.replica, *at)),
            holder_lives: holder.is_some_and(|(record, _)| lives(&record.replica)),
            held: self.locks.held.get(&name).map(|held| (held.lease, held.revision)),
            refused: self.locks.refused.get(&name).map(|(_, at)| *at),
            view: fleet.map(|fleet| fleet.revision).unwrap_or_default(),
        })
    }
}

impl World {
    pub(super) fn update_controller_locks(&mut self, replica: ReplicaNumber) {
        let server = &mut self.replicas[replica];
        let lease = server.current(self.now).map(|current| current.lease);
        let view = server.view.as_ref().map(|fleet| fleet.revision).unwrap_or_default();
        server.locks.refused.retain(|_, (under, at)| lease == Some(*under) && view < *at);
        if !server.view.as_ref().is_some_and(muster_core::fleet::Fleet::is_founded) {
            return;
        }
        for name in CONTROLLERS {
            let mut step = self.replicas[replica].step(name, self.now);
            if step == LockStep::Drop {
                self.replicas[replica].locks.held.remove(&name);
                self.log_replica(replica, format_args!("releases {name}"));
                step = self.replicas[replica].step(name, self.now);
            }
            match step {
                LockStep::Keep | LockStep::Wait | LockStep::Drop => {}
                LockStep::Adopt { at, lease } => {
                    self.replicas[replica].locks.refused.remove(&name);
                    self.holds(replica, name, at, lease);
                }
                LockStep::Take { over } => {
                    if self.replicas[replica].locks.taking.insert(name) {
                        self.acquire(replica, name, over);
                    }
                }
            }
        }
    }

    fn acquire(
        &mut self,
        replica: ReplicaNumber,
        name: ControllerName,
        over: Option<(muster_core::names::ReplicaId, Revision)>,
    ) {
        let (now, server) = (self.clock_of(replica), &self.replicas[replica]);
        let my_key = server.view.as_ref().and_then(|fleet| fleet.replicas().get(&server.id)).map(|(_, at)| *at);
        let (Some(current), Some(my_key)) = (server.current(self.now), my_key) else { return };
        let taking = LockClaim { env: &self.env, name, me: &server.id, lease: current.lease, my_key, over, now };
        let Ok(txn) = taking.txn() else { return };
        // The jitter is part of the request's latency.
        let jitter = std::time::Duration::from_millis(self.rng.below(JITTER_MS));
        self.now += jitter;
        self.call(replica, Call::TakeLock { name, lease: current.lease }, Request::Commit(txn));
        self.now -= jitter;
    }

    pub(super) fn taken(&mut self, replica: ReplicaNumber, name: ControllerName, lease: LeaseId, answer: Answer) {
        self.replicas[replica].locks.taking.remove(&name);
        match answer {
            Answer::Committed { revision } => self.holds(replica, name, revision, lease),
            // Another server was faster: the view shows which.
            Answer::Refused { .. } => {}
            Answer::Failed(_) | Answer::Read { .. } | Answer::Joined { .. } | Answer::Kept => {}
        }
        self.schedule_task(replica, ReplicaTask::ControllerLocks, self.now + AGAIN);
    }

    fn holds(&mut self, replica: ReplicaNumber, name: ControllerName, revision: Revision, lease: LeaseId) {
        let since = self.clock_of(replica);
        let held = ControllerLock { env: self.env.clone(), name, revision, lease, since };
        self.log_replica(replica, format_args!("holds {name} since revision {revision}"));
        self.replicas[replica].locks.held.insert(name, held);
        self.schedule_task(replica, ReplicaTask::Liveness, self.now);
        self.reconcile_soon(replica);
    }

    /// A controller's write with its fencing guard, if this server may act.
    pub(super) fn fenced(&self, replica: ReplicaNumber, name: ControllerName, txn: Txn) -> Option<(Revision, Txn)> {
        let held = self.replicas[replica].held(name, self.now)?;
        Some((held.revision, txn.guard(held.guard())))
    }

    /// The outcome of a fenced write.
    pub(super) fn outcome(
        &mut self,
        replica: ReplicaNumber,
        name: ControllerName,
        under: Revision,
        answer: &Answer,
    ) -> FencedOutcome {
        match answer {
            Answer::Committed { .. } => FencedOutcome::Committed,
            Answer::Refused { revision, failed } if failed.contains(&self.keys.controller(name)) => {
                let server = &mut self.replicas[replica];
                if let Some(held) = server.locks.held.get(&name).filter(|held| held.revision == under) {
                    server.locks.refused.insert(name, (held.lease, *revision));
                    server.locks.held.remove(&name);
                }
                self.log_replica(replica, format_args!("is fenced out of {name}"));
                self.schedule_task(replica, ReplicaTask::ControllerLocks, self.now);
                FencedOutcome::Deposed
            }
            Answer::Refused { .. } => FencedOutcome::Refused,
            Answer::Failed(_) | Answer::Read { .. } | Answer::Joined { .. } | Answer::Kept => FencedOutcome::Failed,
        }
    }
}
