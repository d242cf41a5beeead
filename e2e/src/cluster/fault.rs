//! What is done to the fleet. A fault begins, lasts, and ends; between two of these anything else may happen, another
//! fault as well.

use std::fmt;
use std::thread;
use std::time::Duration;

use muster_core::names::ReplicaId;
use muster_core::replica::ControllerName;
use muster_testkit::wait::{TIMEOUT, eventually};

use crate::cluster::fleet::{Fleet, PREFIX};
use crate::cluster::proxy::Proxy;
use crate::http;
use crate::server::ENV;

/// For a replica that is there and says nothing, because it is stopped.
const SILENT: Duration = Duration::from_secs(5);

/// What is done, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9`, and a start with the same disk.
    KillMember(Member),
    /// The same for all of them at once: there is no store for a while.
    KillEtcd,
    /// `SIGSTOP`, and `SIGCONT`.
    StopMember(Member),
    /// `kill -9`, and a member of the same name with an empty disk.
    WipeMember(Member),
    KillReplica(Replica),
    /// All of them at once: there is no server for a while.
    KillReplicas,
    StopReplica(Replica),
    /// A replica is stopped; meanwhile its connections to etcd are lost, and what it has missed is compacted away.
    CompactUnder(Replica),
    /// Somebody else fills etcd until it refuses to write; its operator brings that in order.
    ExhaustQuota,
    /// Every connection between agents and replicas ends at once; before that, answers are lost for a while: what was
    /// reported is in the store, and the agent cannot know.
    CutStreams,
}

/// Which member of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// Whoever leads at that moment.
    Leader,
    Number(usize),
}

/// Which replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replica {
    /// Whoever holds the controller `liveness` at that moment.
    Holder,
    /// Whoever holds the controller `rollout`, and so carries one out.
    Acting,
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
            Self::Holder => f.write_str("the replica that holds the controllers"),
            Self::Acting => f.write_str("the replica that carries rollouts out"),
            Self::Number(index) => write!(f, "replica{}", index + 1),
        }
    }
}

/// What has begun, and has to be ended: with the one whom it hit.
#[derive(Debug)]
#[must_use = "a fault that has begun has to be ended"]
pub struct Begun {
    fault: Fault,
    hit: usize,
}

impl Fleet {
    pub fn begin(&mut self, fault: Fault) -> Begun {
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
            Fault::CutStreams => self.proxies.iter().for_each(Proxy::lose_answers),
        }
        println!("    {fault} has begun{}", self.whom(fault, hit));
        Begun { fault, hit }
    }

    pub fn end(&mut self, begun: Begun) {
        let Begun { fault, hit } = begun;
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
                let stage = &self.stage;
                self.replicas[hit].start_again(stage);
            }
            Fault::KillReplicas => {
                let stage = &self.stage;
                self.replicas.iter_mut().for_each(|replica| replica.start_again(stage));
            }
            Fault::StopReplica(_) => self.replicas[hit].program.cont(),
            Fault::CompactUnder(_) => {
                // Its connections end while it cannot notice, one member at a time: the others go on.
                for member in self.etcd.members() {
                    member.kill();
                    self.wait(self.etcd.leader());
                    member.start();
                    self.wait(self.etcd.wait_healthy());
                }
                // There is more that it has missed than what it may have had on its way.
                let missed = if self.load.is_on() { self.load_goes_on() } else { self.somebody_writes() };
                self.wait(async {
                    self.changes.catch_up(&self.etcd).await;
                    let compacted = self.etcd.compact().await;
                    assert!(compacted > missed, "nothing was compacted");
                });
                let said = self.replicas[hit].program.said().len();
                self.replicas[hit].program.cont();
                // It must have noticed: otherwise this was no lagging watch, and has shown nothing.
                eventually("the replica has found the gap", TIMEOUT, || {
                    let said = self.replicas[hit].program.said().split_off(said);
                    if said.contains("the store's history has a gap") { Ok(()) } else { Err(said) }
                });
            }
            Fault::ExhaustQuota => self.wait(async {
                // Nobody can write, so this is the last revision; after the compaction it would be too late to see it.
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

    /// Takes away what nobody needs any more of etcd's history, as operators let it do by itself; the follower has all of it.
    pub fn compact(&self) {
        self.wait(async {
            self.changes.catch_up(&self.etcd).await;
            self.etcd.compact().await;
        });
    }

    /// Writes something that concerns nobody, through whoever is there. Gives the revision before.
    fn somebody_writes(&self) -> i64 {
        let before = self.wait(self.etcd.revision());
        let body = serde_json::json!({"value": before});
        let path = format!("/v1/envs/{ENV}/data/concerns_nobody");
        eventually("a replica writes something", TIMEOUT, || {
            let mut answers = self
                .replicas
                .iter()
                .map(|replica| http::try_with("PUT", &replica.api.to, &path, Some(&body), &[], SILENT));
            let taken = answers.any(|answer| answer.is_ok_and(|answer| answer.status == 200));
            if taken { Ok(()) } else { Err("nobody takes it".to_owned()) }
        });
        before
    }

    /// Waits until the version has been changed once more, by whoever is there: agents are being told, run and report.
    /// Gives the revision before.
    pub fn load_goes_on(&self) -> i64 {
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
            Replica::Holder => self.holder(ControllerName::Liveness).0,
            Replica::Acting => self.holder(ControllerName::Rollout).0,
            Replica::Number(index) => index,
        }
    }

    /// Who holds a controller, by the store: the replica whose record has the address of one of ours, and what it calls
    /// itself.
    pub fn holder(&self, controller: ControllerName) -> (usize, ReplicaId) {
        eventually(&format!("somebody holds the controller {controller}"), TIMEOUT, || {
            let dump = self.wait(self.etcd.dump(PREFIX));
            let json = |suffix: &str| -> Option<serde_json::Value> {
                let entry = dump.entries.iter().find(|entry| entry.key.ends_with(suffix))?;
                serde_json::from_slice(&entry.value).ok()
            };
            let holder = json(&format!("/controllers/{controller}")).ok_or("nobody holds it")?;
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
            Fault::KillReplica(Replica::Holder | Replica::Acting)
            | Fault::StopReplica(Replica::Holder | Replica::Acting)
            | Fault::CompactUnder(Replica::Holder | Replica::Acting) => format!(" ({})", self.replicas[hit].name),
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
pub fn last_for(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "no event is waited for: time itself is what hurts")]
    thread::sleep(time);
}
