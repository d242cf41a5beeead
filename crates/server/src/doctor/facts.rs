//! Facts about the store, the replicas and the environments, and the IO that collects them: requests to the store and to all
//! replicas at once, each with a timeout.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use muster_core::authority::AuthorityRecord;
use muster_core::fleet::{DestroyRecord, Fleet, Node, RestoreRecord};
use muster_core::names::{EnvName, NodeName, ReplicaId, Version};
use muster_core::node::record::MachinePhase;
use muster_core::replica::{ControllerName, ControllerRecord, RefusedAgent, ReplicaRecord};
use muster_store::{Sharing, Store, StoreHealth, Verification};
use muster_wire::doctor::{BlobVisibility, ReplicaReport};
use muster_wire::problem::ProblemCode;
use muster_wire::secrets::SecretsStatus;
use tokio::time::timeout;

use crate::App;
use crate::api::chain;

use super::bundles::{BundleFault, check_bundles};

/// All facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorFacts {
    pub store: StoreFacts,
    /// The replica that collects them.
    pub me: ReplicaId,
    pub replicas: Vec<ReplicaFacts>,
    /// The certificate authority; none if no server has TLS.
    pub authority: Option<AuthorityRecord>,
    pub environments: Vec<EnvironmentFacts>,
    /// Error if the blob directory is not writable.
    pub blobs: Result<(), String>,
    pub secrets: SecretsStatus,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFacts {
    pub name: String,
    pub sharing: Sharing,
    pub health: StoreHealth,
    pub integrity: IntegrityFacts,
}

/// Result of a request to verify the store's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntegrityFacts {
    Verified(Verification),
    /// The content is damaged or cannot be read.
    Failed(String),
    /// The verification continues, and the next request gets its result.
    InProgress {
        waited: Duration,
    },
    /// Not requested: the store did not answer reads.
    Skipped,
}

/// A replica and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFacts {
    pub id: ReplicaId,
    pub record: ReplicaRecord,
    /// Times of the collecting replica, just before and after the request.
    pub asked: Timestamp,
    pub answered: Timestamp,
    pub answer: Result<ReplicaReport, NoReplicaAnswer>,
}

/// Reason why a replica gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoReplicaAnswer {
    /// It has another token.
    RefusedToken,
    Unreachable(String),
}

/// An environment in the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentFacts {
    pub env: EnvName,
    pub nodes: usize,
    /// True if Muster has made machines for its nodes.
    pub has_machines: bool,
    /// True if its nodes follow a design, or if it is being destroyed.
    pub needs_design_controller: bool,
    pub destroying: Option<DestroyRecord>,
    pub controllers: BTreeMap<ControllerName, ControllerRecord>,
    pub restoring: Option<RestoreRecord>,
    /// Keys whose value cannot be read, and why.
    pub unreadable: BTreeMap<String, String>,
    /// The releases whose bundles are missing or damaged.
    pub bad_bundles: Vec<(Version, BundleFault)>,
    /// Bundles whose digests could not be verified in time.
    pub unverified_bundles: usize,
    /// Nodes with a machine whose agent is connected to no replica, the longest silent first.
    pub silent: Vec<(NodeName, Timestamp)>,
    /// Number of agents by version, of nodes whose agent has said it.
    pub agent_versions: BTreeMap<String, usize>,
    /// Nodes with a second agent, which is refused.
    pub refused_agents: Vec<(NodeName, RefusedAgent)>,
}

/// Timeout of the store, which requests each of its members with shorter timeouts.
const STORE_TIMEOUT: Duration = Duration::from_secs(15);

/// Time to wait for a verification. With the timeout above it is shorter than the 30 s after which clients give up.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a replica. A healthy one answers in milliseconds.
const REPLICA_TIMEOUT: Duration = Duration::from_secs(3);

/// Requests the health of a store.
pub async fn collect_store(store: &dyn Store) -> StoreFacts {
    let health = timeout(STORE_TIMEOUT, store.health()).await.unwrap_or_default();
    let integrity = match health.latency {
        None => IntegrityFacts::Skipped,
        Some(_) => match timeout(VERIFY_TIMEOUT, store.verify()).await {
            Ok(Ok(verified)) => IntegrityFacts::Verified(verified),
            Ok(Err(error)) => IntegrityFacts::Failed(chain(&error)),
            Err(_) => IntegrityFacts::InProgress { waited: VERIFY_TIMEOUT },
        },
    };
    StoreFacts { name: store.name().to_owned(), sharing: store.sharing(), health, integrity }
}

/// Collects all facts concurrently.
pub(crate) async fn collect_facts(app: &App) -> DoctorFacts {
    let mut replicas: BTreeMap<ReplicaId, ReplicaRecord> = BTreeMap::new();
    let (mut environments, releases): (Vec<EnvironmentFacts>, Vec<_>) = {
        let fleets = app.view.fleets();
        for fleet in fleets.values() {
            replicas.extend(fleet.replicas().iter().map(|(id, (record, _))| (id.clone(), record.clone())));
        }
        fleets.values().map(|fleet| (environment(app, fleet), fleet.releases().clone())).unzip()
    };
    // This replica is not in the view before there is an environment.
    replicas.insert(app.replica.membership.id().clone(), app.replica.membership.record());
    let requests = join_all(replicas.into_iter().map(|(id, record)| collect_replica(app, id, record)));
    let (store, replicas, blobs, bundles) = futures::join!(
        collect_store(&*app.store),
        requests,
        can_write(app),
        check_bundles(app.blobs.clone(), releases)
    );
    for (environment, (bad, unverified)) in environments.iter_mut().zip(bundles) {
        (environment.bad_bundles, environment.unverified_bundles) = (bad, unverified);
    }
    let me = app.replica.membership.id().clone();
    let secrets = crate::secrets::status(&app.view, &me, &app.replica.secrets.path);
    let authority = app.view.server_records().authority().map(|(record, _)| record.clone());
    DoctorFacts { store, me, replicas, authority, environments, blobs, secrets }
}

async fn collect_replica(app: &App, id: ReplicaId, record: ReplicaRecord) -> ReplicaFacts {
    let asked = app.clock.now();
    let answer = if id == *app.replica.membership.id() {
        Ok(examine_self(app).await)
    } else {
        let asking = async { app.agents.peers.client(&record.url)?.self_examination(REPLICA_TIMEOUT).await };
        match asking.await {
            Ok(answer) if answer.replica != id => {
                Err(NoReplicaAnswer::Unreachable(format!("{} answers at its address", answer.replica)))
            }
            Err(error) if error.problem().is_some_and(|problem| problem.code == ProblemCode::Unauthenticated) => {
                Err(NoReplicaAnswer::RefusedToken)
            }
            answer => answer.map_err(|error| NoReplicaAnswer::Unreachable(chain(&error))),
        }
    };
    ReplicaFacts { id, record, asked, answered: app.clock.now(), answer }
}

/// Nodes that should be connected and are not, the longest silent first. A machine that is not provisioned yet has no agent.
fn silent_nodes(app: &App, fleet: &Fleet) -> Vec<(NodeName, Timestamp)> {
    let provisioned =
        |node: &Node| node.machine.as_ref().is_none_or(|(machine, _)| machine.phase == MachinePhase::Provisioned);
    let nodes = fleet.designed().filter(|(_, node, _)| provisioned(node));
    let mut silent: Vec<(NodeName, Timestamp)> = nodes
        .filter_map(|(name, ..)| Some((name.clone(), app.agents.links.link(fleet, name).silent_since()?)))
        .collect();
    silent.sort_by(|(a, x), (b, y)| x.cmp(y).then_with(|| a.natural().cmp(&b.natural())));
    silent
}

fn environment(app: &App, fleet: &Fleet) -> EnvironmentFacts {
    let controllers = fleet.controllers().iter();
    let now = app.clock.now();
    let refused = fleet.recorded().filter_map(|(name, node, _)| Some((name.clone(), node.refused_agent(now)?)));
    let mut agent_versions: BTreeMap<String, usize> = BTreeMap::new();
    for agent in fleet.recorded().filter_map(|(_, node, _)| node.agent()) {
        *agent_versions.entry(agent.version.clone()).or_default() += 1;
    }
    EnvironmentFacts {
        env: fleet.env.clone(),
        nodes: fleet.designed().count(),
        has_machines: fleet.recorded().any(|(_, node, _)| node.machine.is_some()),
        needs_design_controller: fleet.needs_design_controller(),
        destroying: fleet.destroying().map(|(destroying, _)| destroying.clone()),
        controllers: controllers.map(|(name, (record, _))| (*name, record.clone())).collect(),
        restoring: fleet.restoring().cloned(),
        unreadable: fleet.unreadable().clone(),
        bad_bundles: Vec::new(),
        unverified_bundles: 0,
        silent: silent_nodes(app, fleet),
        agent_versions,
        refused_agents: refused.collect(),
    }
}

async fn can_write(app: &App) -> Result<(), String> {
    let blobs = app.blobs.clone();
    let spooled = tokio::task::spawn_blocking(move || blobs.check_writable());
    // A directory on a dead network file system blocks forever.
    match timeout(REPLICA_TIMEOUT, spooled).await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(error))) => Err(error.to_string()),
        Ok(Err(panicked)) => Err(panicked.to_string()),
        Err(_) => Err(format!("no answer within {} s", REPLICA_TIMEOUT.as_secs())),
    }
}

/// The answer of this replica about itself.
pub(crate) async fn examine_self(app: &App) -> ReplicaReport {
    let others: BTreeMap<ReplicaId, ReplicaRecord> = {
        let fleets = app.view.fleets();
        let all = fleets.values().flat_map(|fleet| fleet.replicas().iter());
        all.map(|(id, (record, _))| (id.clone(), record.clone())).collect()
    };
    let marks = app.blobs.marks();
    let checked = tokio::task::spawn_blocking(move || {
        // Of a mark that cannot be read now nothing is said.
        let sees = |(id, record): (ReplicaId, ReplicaRecord)| {
            Some(BlobVisibility { sees: marks.shows(&id, &record).ok()?, replica: id })
        };
        others.into_iter().filter_map(sees).collect()
    });
    ReplicaReport {
        replica: app.replica.membership.id().clone(),
        version: app.replica.membership.record().version,
        agents: app.agents.hub.connected(),
        sees_blobs_of: timeout(REPLICA_TIMEOUT / 2, checked).await.ok().and_then(Result::ok).unwrap_or_default(),
        now: app.clock.now(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use muster_core::replica::BlobsMark;
    use muster_core::txn::Revision;
    use muster_store::{MemberState, StoreMember};
    use muster_wire::doctor::BlobVisibility;

    use super::*;

    pub(crate) const MIB: u64 = 1024 * 1024;

    /// A healthy member.
    pub(crate) fn member(name: &str) -> StoreMember {
        let state = MemberState {
            latency: Duration::from_millis(2),
            version: "etcd 3.6.4".into(),
            is_leader: name == "etcd1",
            learner: false,
            bytes: 20 * MIB,
            bytes_in_use: 15 * MIB,
            quota: Some(2048 * MIB),
            behind: 0,
            errors: Vec::new(),
        };
        StoreMember { name: name.into(), endpoints: vec![format!("http://{name}:2379")], state: Ok(state) }
    }

    /// A healthy member with one change.
    pub(crate) fn member_with(name: &str, change: impl FnOnce(&mut MemberState)) -> StoreMember {
        let mut member = member(name);
        if let Ok(state) = &mut member.state {
            change(state);
        }
        member
    }

    pub(crate) fn dead(name: &str) -> StoreMember {
        StoreMember { state: Err("connection refused".into()), ..member(name) }
    }

    /// A store with these members, otherwise healthy.
    pub(crate) fn health(members: Vec<StoreMember>) -> StoreHealth {
        StoreHealth {
            members,
            latency: Some(Duration::from_millis(3)),
            alarms: Vec::new(),
            faults: Vec::new(),
            oldest: Some(Revision(1)),
            revision: Some(Revision(1_000)),
            verifying: None,
        }
    }

    /// A healthy replica that sees the blobs of `others`.
    pub(crate) fn replica(name: &str, others: &[&str]) -> ReplicaFacts {
        let id = |name: &str| ReplicaId::new(name).unwrap();
        let record = ReplicaRecord {
            url: format!("http://{name}:7300"),
            host: "ctl".into(),
            pid: 7,
            version: "0.1.0".into(),
            since: Timestamp::UNIX_EPOCH,
            blobs: BlobsMark { directory: "/blobs".into(), nonce: "n".into() },
            secret_keys: Vec::new(),
            authorities: vec!["a1".into()],
        };
        let answer = ReplicaReport {
            replica: id(name),
            version: "0.1.0".into(),
            now: Timestamp::UNIX_EPOCH,
            agents: 10,
            sees_blobs_of: others.iter().map(|other| BlobVisibility { replica: id(other), sees: true }).collect(),
        };
        let (asked, answered) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        ReplicaFacts { id: id(name), record, asked, answered, answer: Ok(answer) }
    }

    /// Findings as lines, for tables in tests.
    pub(crate) fn lines(findings: impl IntoIterator<Item = muster_wire::doctor::DoctorFinding>) -> Vec<String> {
        let line = |finding: muster_wire::doctor::DoctorFinding| {
            let subject = finding.subject.map(|subject| format!(" {subject}")).unwrap_or_default();
            let advice = finding.advice.map(|advice| format!(" → {advice}")).unwrap_or_default();
            format!("{}{subject} {}: {}{advice}", finding.check.word(), finding.verdict.word(), finding.detail)
        };
        findings.into_iter().map(line).collect()
    }
}
