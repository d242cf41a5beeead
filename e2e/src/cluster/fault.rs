//! Faults of a fleet. A fault begins, lasts and ends; other faults may happen in between.

use std::fmt;
use std::thread;
use std::time::Duration;

use muster_core::names::ReplicaId;
use muster_core::replica::ControllerName;
use muster_testkit::wait::{TIMEOUT, eventually};

use crate::cluster::fleet::{ClusterFleet, PREFIX, ServerReplica};
use crate::cluster::proxy::AgentProxy;
use crate::http::{self, Response};
use crate::server::ENV;

/// Timeout for a stopped replica, which accepts connections and does not answer.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(5);

/// A fault and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterFault {
    /// `kill -9`, and a restart with the same disk.
    KillMember(FaultyMember),
    /// The same for all of them at once: there is no store for a while.
    KillEtcd,
    /// `SIGSTOP`, and `SIGCONT`.
    StopMember(FaultyMember),
    /// `kill -9`, and a member of the same name with an empty disk.
    WipeMember(FaultyMember),
    KillReplica(FaultyReplica),
    /// All replicas at once: there is no server for some time.
    KillReplicas,
    StopReplica(FaultyReplica),
    /// Stops a replica, cuts its connections to etcd, and compacts the revisions that it misses.
    CompactUnder(FaultyReplica),
    /// Fills etcd until it refuses writes; the operator frees it.
    ExhaustQuota,
    /// Ends every connection between agents and replicas. Before that, responses are lost for some time: reports are in
    /// the store, and their agents do not know.
    CutStreams,
}

/// Target member of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultyMember {
    /// The leader at that time.
    Leader,
    Number(usize),
}

/// Target replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultyReplica {
    /// The holder of the controller `liveness` at that time.
    LivenessHolder,
    /// The holder of the controller `rollout` at that time.
    RolloutHolder,
    Number(usize),
}

impl fmt::Display for ClusterFault {
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

impl fmt::Display for FaultyMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader => f.write_str("the etcd leader"),
            Self::Number(index) => write!(f, "etcd member m{}", index + 1),
        }
    }
}

impl fmt::Display for FaultyReplica {
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
    fault: ClusterFault,
    hit: usize,
}

impl ClusterFleet {
    pub fn begin(&mut self, fault: ClusterFault) -> BegunFault {
        let hit = match fault {
            ClusterFault::KillMember(member) | ClusterFault::StopMember(member) | ClusterFault::WipeMember(member) => {
                self.member(member)
            }
            ClusterFault::KillReplica(replica)
            | ClusterFault::StopReplica(replica)
            | ClusterFault::CompactUnder(replica) => self.replica(replica),
            ClusterFault::KillEtcd
            | ClusterFault::KillReplicas
            | ClusterFault::ExhaustQuota
            | ClusterFault::CutStreams => 0,
        };
        match fault {
            // The disk is emptied when the time has passed: a member that is added while it is away takes part in
            // every count of votes.
            ClusterFault::KillMember(_) | ClusterFault::WipeMember(_) => self.etcd.member(hit).kill(),
            ClusterFault::KillEtcd => self.etcd.members().iter().for_each(muster_etcd_rig::Member::kill),
            ClusterFault::StopMember(_) => self.etcd.member(hit).stop(),
            ClusterFault::KillReplica(_) => self.replicas[hit].program.kill(),
            ClusterFault::KillReplicas => self.replicas.iter_mut().for_each(|replica| replica.program.kill()),
            ClusterFault::StopReplica(_) | ClusterFault::CompactUnder(_) => self.replicas[hit].program.stop(),
            ClusterFault::ExhaustQuota => {
                self.wait(self.etcd.exhaust_quota());
                self.wait_until_refused();
            }
            ClusterFault::CutStreams => self.proxies.iter().for_each(AgentProxy::drop_responses),
        }
        println!("    {fault} has begun{}", self.whom(fault, hit));
        BegunFault { fault, hit }
    }

    pub fn end(&mut self, begun: BegunFault) {
        let BegunFault { fault, hit } = begun;
        match fault {
            ClusterFault::KillMember(_) => {
                self.etcd.member(hit).start();
                self.wait(self.etcd.wait_healthy());
            }
            ClusterFault::KillEtcd => {
                self.etcd.members().iter().for_each(muster_etcd_rig::Member::start);
                self.wait(self.etcd.wait_healthy());
            }
            ClusterFault::StopMember(_) => {
                self.etcd.member(hit).cont();
                self.wait(self.etcd.wait_healthy());
            }
            ClusterFault::WipeMember(_) => self.wait(self.etcd.wipe_and_rejoin(hit)),
            ClusterFault::KillReplica(_) => {
                let sandbox = &self.sandbox;
                self.replicas[hit].start_again(sandbox);
            }
            ClusterFault::KillReplicas => {
                let sandbox = &self.sandbox;
                self.replicas.iter_mut().for_each(|replica| replica.start_again(sandbox));
            }
            ClusterFault::StopReplica(_) => self.replicas[hit].program.cont(),
            ClusterFault::CompactUnder(_) => {
                // Cuts its connections one member at a time, so that the other replica continues.
                for member in self.etcd.members() {
                    member.kill();
                    self.wait(self.etcd.leader());
                    member.start();
                    self.wait(self.etcd.wait_healthy());
                }
                // It has missed more than the events that may have been in flight.
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
            ClusterFault::ExhaustQuota => self.wait(async {
                // Writes are refused, so this is the last revision. It has to be recorded before the compaction.
                let revision = self.etcd.revision().await;
                self.changes.wait_for(revision).await;
                self.etcd.relieve_quota().await;
            }),
            ClusterFault::CutStreams => {
                let cut: usize = self.proxies.iter().map(AgentProxy::cut).sum();
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
        eventually("a replica commits a write", TIMEOUT, || {
            let mut answers = self.replicas.iter().map(|replica| write_key(replica, before));
            let taken = answers.any(|answer| answer.is_ok_and(|answer| answer.status == 200));
            if taken { Ok(()) } else { Err("no replica accepts it".to_owned()) }
        });
        before
    }

    /// Waits until every replica refuses a write because the store is full.
    fn wait_until_refused(&self) {
        let before = self.wait(self.etcd.revision());
        for replica in &self.replicas {
            eventually(&format!("{} refuses a write", replica.name), TIMEOUT, || match write_key(replica, before) {
                Ok(answer) if answer.status == 507 && answer.json()["code"] == "store_full" => Ok(()),
                answer => Err(format!("{answer:?}")),
            });
        }
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

    fn member(&self, member: FaultyMember) -> usize {
        match member {
            FaultyMember::Leader => self.wait(self.etcd.leader()),
            FaultyMember::Number(index) => index,
        }
    }

    fn replica(&self, replica: FaultyReplica) -> usize {
        match replica {
            FaultyReplica::LivenessHolder => self.holder(ControllerName::Liveness).0,
            FaultyReplica::RolloutHolder => self.holder(ControllerName::Rollout).0,
            FaultyReplica::Number(index) => index,
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

    fn whom(&self, fault: ClusterFault, hit: usize) -> String {
        match fault {
            ClusterFault::KillMember(FaultyMember::Leader)
            | ClusterFault::StopMember(FaultyMember::Leader)
            | ClusterFault::WipeMember(FaultyMember::Leader) => {
                format!(" ({})", self.etcd.member(hit).name())
            }
            ClusterFault::KillReplica(FaultyReplica::LivenessHolder | FaultyReplica::RolloutHolder)
            | ClusterFault::StopReplica(FaultyReplica::LivenessHolder | FaultyReplica::RolloutHolder)
            | ClusterFault::CompactUnder(FaultyReplica::LivenessHolder | FaultyReplica::RolloutHolder) => {
                format!(" ({})", self.replicas[hit].name)
            }
            ClusterFault::KillMember(_)
            | ClusterFault::KillEtcd
            | ClusterFault::StopMember(_)
            | ClusterFault::WipeMember(_)
            | ClusterFault::KillReplica(_)
            | ClusterFault::KillReplicas
            | ClusterFault::StopReplica(_)
            | ClusterFault::CompactUnder(_)
            | ClusterFault::ExhaustQuota
            | ClusterFault::CutStreams => String::new(),
        }
    }
}

/// Writes an irrelevant key through this replica.
fn write_key(replica: &ServerReplica, value: i64) -> std::io::Result<Response> {
    let (path, body) = (format!("/v1/envs/{ENV}/data/concerns_nobody"), serde_json::json!({"value": value}));
    http::try_request_with("PUT", &replica.api.to, &path, Some(&body), &[], STOPPED_TIMEOUT)
}

/// The time that a fault lasts is part of it.
pub fn pause_for(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "no event is waited for: time itself is what hurts")]
    thread::sleep(time);
}
