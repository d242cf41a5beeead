//! Faults of a fleet. A fault begins, lasts and ends; other faults may happen in between.

use std::fmt;
use std::thread;
use std::time::Duration;

use muster_core::names::ReplicaId;
use muster_core::replica::ControllerName;
use muster_testkit::wait::{TIMEOUT, eventually};

use crate::cluster::fleet::{ClusterFleet, PREFIX};
use crate::cluster::proxy::Proxy;
use crate::http;
use crate::server::ENV;

/// Timeout for a stopped replica, which accepts connections and does not answer.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(5);

/// A fault and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9`, and a restart with the same disk.
    KillMember(Member),
    /// The same for all of them at once: there is no store for a while.
    KillEtcd,
    /// `SIGSTOP`, and `SIGCONT`.
    StopMember(Member),
    /// `kill -9`, and a member of the same name with an empty disk.
    WipeMember(Member),
    KillReplica(Replica),
    /// All replicas at once: there is no server for some time.
    KillReplicas,
    StopReplica(Replica),
    /// Stops a replica, cuts its connections to etcd, and compacts the revisions that it misses.
    CompactUnder(Replica),
    /// Fills etcd until it refuses writes; the operator frees it.
    ExhaustQuota,
    /// Ends every connection between agents and replicas. Before that, responses are lost for some time: reports are in
    /// the store, and their agents do not know.
    CutStreams,
}

/// Target member of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// The leader at that time.
    Leader,
    Number(usize),
}

/// Target replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replica {
    /// The holder of the controller `liveness` at that time.
    LivenessHolder,
    /// The holder of the controller `rollout` at that time.
    RolloutHolder,
    Number(usize),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillMember(member) => write!(f, "kill -9 of {member}"),
            Self::KillEtcd => f.write_str("kill -9 of all etcd members"),
            Self::StopMember(member) => write!(f, "SIGSTOP of {member}"),
            Self::WipeMember(member) => write!(f, "an empty disk for {member}"),
            Self::KillReplica(replica) => write!(f, "kill -9 of {replica}"),
            Self::KillReplicas => f.write_str("kill -9 of both replicas"),
            Self::StopReplica(replica) => write!(f, "SIGSTOP of {replica}"),
            Self::CompactUnder(replica) => write!(f, "compaction under the lagging watch of {replica}"),
            Self::ExhaustQuota => f.write_str("an exhausted quota"),
            Self::CutStreams => f.write_str("a cut of all streams"),
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader => f.write_str("the etcd leader"),
            Self::Number(index) => write!(f, "etcd member m{}", index + 1),
        }
    }
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LivenessHolder => f.write_str("the replica that holds the controllers"),
            Self::RolloutHolder => f.write_str("the replica that carries rollouts out"),
            Self::Number(index) => write!(f, "replica{}", index + 1),
        }
    }
}

/// A fault that has begun and has to be ended, with its target.
#[derive(Debug)]
#[must_use = "a fault that has begun has to be ended"]
pub struct BegunFault {
    fault: Fault,
    hit: usize,
}

impl ClusterFleet {
    pub fn begin(&mut self, fault: Fault) -> BegunFault {
        let hit = match fault {
            Fault::KillMember(member) | Fault::StopMember(member) | Fault::WipeMember(member) => self.member(member),
            Fault::KillReplica(replica) | Fault::StopReplica(replica) | Fault::CompactUnder(replica) => {
                self.replica(replica)
            }
            Fault::KillEtcd | Fault::KillReplicas | Fault::ExhaustQuota | Fault::CutStreams => 0,
        };
        match fault {
            // The disk is emptied when the time has passed: a member that is added while it is away takes part in
            // every count of votes.
            Fault::KillMember(_) | Fault::WipeMember(_) => self.etcd.member(hit).kill(),
            Fault::KillEtcd => self.etcd.members().iter().for_each(muster_etcd_rig::Member::kill),
            Fault::StopMember(_) => self.etcd.member(hit).stop(),
            Fault::KillReplica(_) => self.replicas[hit].program.kill(),
            Fault::KillReplicas => self.replicas.iter_mut().for_each(|replica| replica.program.kill()),
            Fault::StopReplica(_) | Fault::CompactUnder(_) => self.replicas[hit].program.stop(),
            Fault::ExhaustQuota => self.wait(self.etcd.exhaust_quota()),
            Fault::CutStreams => self.proxies.iter().for_each(Proxy::drop_responses),
        }
        println!("    {fault} has begun{}", self.whom(fault, hit));
        BegunFault { fault, hit }
    }

    pub fn end(&mut self, begun: BegunFault) {
        let BegunFault { fault, hit } = begun;
        match fault {
            Fault::KillMember(_) => {
                self.etcd.member(hit).start();
                self.wait(self.etcd.wait_healthy());
            }
            Fault::KillEtcd => {
                self.etcd.members().iter().for_each(muster_etcd_rig::Member::start);
                self.wait(self.etcd.wait_healthy());
            }
            Fault::StopMember(_) => {
                self.etcd.member(hit).cont();
                self.wait(self.etcd.wait_healthy());
            }
            Fault::WipeMember(_) => self.wait(self.etcd.wipe_and_rejoin(hit)),
            Fault::KillReplica(_) => {
                let sandbox = &self.sandbox;
                self.replicas[hit].start_again(sandbox);
            }
            Fault::KillReplicas => {
                let sandbox = &self.sandbox;
                self.replicas.iter_mut().for_each(|replica| replica.start_again(sandbox));
            }
            Fault::StopReplica(_) => self.replicas[hit].program.cont(),
            Fault::CompactUnder(_) => {
                // Cuts its connections one member at a time, so that the other replica continues.
                for member in self.etcd.members() {
                    member.kill();
                    self.wait(self.etcd.leader());
                    member.start();
                    self.wait(self.etcd.wait_healthy());
                }
                // There is more that it has missed than what it may have had on its way.
                let missed = if self.load.is_on() { self.wait_for_load() } else { self.write_any_key() };
                self.wait(async {
                    self.changes.catch_up(&self.etcd).await;
                    let compacted = self.etcd.compact().await;
                    assert!(compacted > missed, "nothing was compacted");
                });
                let said = self.replicas[hit].program.output().len();
                self.replicas[hit].program.cont();
                // The replica must have found the gap, or this test has shown nothing.
                eventually("the replica has found the gap", TIMEOUT, || {
                    let said = self.replicas[hit].program.output().split_off(said);
                    if said.contains("the watch of the store has a gap") { Ok(()) } else { Err(said) }
                });
            }
            Fault::ExhaustQuota => self.wait(async {
                // Writes are refused, so this is the last revision. It has to be recorded before the compaction.
                let revision = self.etcd.revision().await;
                self.changes.wait_for(revision).await;
                self.etcd.relieve_quota().await;
            }),
            Fault::CutStreams => {
                let cut: usize = self.proxies.iter().map(Proxy::cut).sum();
                assert!(cut > 0, "there was no connection to cut");
            }
        }
        println!("    {fault} has ended");
    }

    /// Compacts etcd, as its own periodic compaction does. The recorder has all changes.
    pub fn compact(&self) {
        self.wait(async {
            self.changes.catch_up(&self.etcd).await;
            self.etcd.compact().await;
        });
    }

    /// Writes an irrelevant key through any replica. Returns the revision before.
    fn write_any_key(&self) -> i64 {
        let before = self.wait(self.etcd.revision());
        let body = serde_json::json!({"value": before});
        let path = format!("/v1/envs/{ENV}/data/concerns_nobody");
        eventually("a replica commits a write", TIMEOUT, || {
            let mut answers = self.replicas.iter().map(|replica| {
                http::try_request_with("PUT", &replica.api.to, &path, Some(&body), &[], STOPPED_TIMEOUT)
            });
            let taken = answers.any(|answer| answer.is_ok_and(|answer| answer.status == 200));
            if taken { Ok(()) } else { Err("no replica accepts it".to_owned()) }
        });
        before
    }

    /// Waits for one more change of the version through any replica, so that agents run and report. Returns the
    /// revision before.
    pub fn wait_for_load(&self) -> i64 {
        let before = self.wait(self.etcd.dump(PREFIX));
        let version = |dump: &muster_etcd_rig::Dump| {
            dump.entries.iter().find(|entry| entry.key.ends_with("/current_version")).map(|entry| entry.mod_revision)
        };
        eventually("the version changes", TIMEOUT * 2, || {
            let now = self.wait(self.etcd.dump(PREFIX));
            if version(&now) > version(&before) { Ok(()) } else { Err(format!("{:?}", version(&now))) }
        });
        before.revision
    }

    fn member(&self, member: Member) -> usize {
        match member {
            Member::Leader => self.wait(self.etcd.leader()),
            Member::Number(index) => index,
        }
    }

    fn replica(&self, replica: Replica) -> usize {
        match replica {
            Replica::LivenessHolder => self.holder(ControllerName::Liveness).0,
            Replica::RolloutHolder => self.holder(ControllerName::Rollout).0,
            Replica::Number(index) => index,
        }
    }

    /// The replica that holds a controller, according to the store, and its id.
    pub fn holder(&self, controller: ControllerName) -> (usize, ReplicaId) {
        eventually(&format!("a replica holds the controller {controller}"), TIMEOUT, || {
            let dump = self.wait(self.etcd.dump(PREFIX));
            let json = |suffix: &str| -> Option<serde_json::Value> {
                let entry = dump.entries.iter().find(|entry| entry.key.ends_with(suffix))?;
                serde_json::from_slice(&entry.value).ok()
            };
            let holder = json(&format!("/controllers/{controller}")).ok_or("it has no holder")?;
            let id = holder["replica"].as_str().ok_or("it names no replica")?.to_owned();
            let record = json(&format!("/replicas/{id}")).ok_or("its replica has gone")?;
            let url = record["url"].as_str().ok_or("it has no address")?;
            let found = self.replicas.iter().position(|replica| url.ends_with(&replica.address.to_string()));
            let found = found.ok_or_else(|| format!("{url} is none of ours"))?;
            Ok((found, ReplicaId::new(id).map_err(|error| error.to_string())?))
        })
    }

    fn whom(&self, fault: Fault, hit: usize) -> String {
        match fault {
            Fault::KillMember(Member::Leader)
            | Fault::StopMember(Member::Leader)
            | Fault::WipeMember(Member::Leader) => {
                format!(" ({})", self.etcd.member(hit).name())
            }
            Fault::KillReplica(Replica::LivenessHolder | Replica::RolloutHolder)
            | Fault::StopReplica(Replica::LivenessHolder | Replica::RolloutHolder)
            | Fault::CompactUnder(Replica::LivenessHolder | Replica::RolloutHolder) => {
                format!(" ({})", self.replicas[hit].name)
            }
            Fault::KillMember(_)
            | Fault::KillEtcd
            | Fault::StopMember(_)
            | Fault::WipeMember(_)
            | Fault::KillReplica(_)
            | Fault::KillReplicas
            | Fault::StopReplica(_)
            | Fault::CompactUnder(_)
            | Fault::ExhaustQuota
            | Fault::CutStreams => String::new(),
        }
    }
}

/// The time that a fault lasts is part of it.
pub fn pause_for(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "no event is waited for: time itself is what hurts")]
    thread::sleep(time);
}
