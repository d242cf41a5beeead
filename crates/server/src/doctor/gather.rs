//! Collects the facts: requests to the store and to all replicas at once, each with a timeout.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use futures::future::join_all;
use muster_core::fleet::Fleet;
use muster_core::names::{ReplicaId, Version};
use muster_core::release::ReleaseRecord;
use muster_core::replica::ReplicaRecord;
use muster_store::{Store, StoreHealth};
use muster_wire::client::Client;
use muster_wire::doctor::{BlobVisibility, ReplicaReport};
use tokio::time::timeout;

use crate::App;
use crate::api::chain;

use super::facts::{EnvironmentFacts, Facts, ReplicaFacts, StoreFacts};

/// Timeout of the store, which requests each of its members with shorter timeouts.
const STORE_TIMEOUT: Duration = Duration::from_secs(15);

/// Timeout of a replica. A healthy one answers in milliseconds.
const REPLICA_TIMEOUT: Duration = Duration::from_secs(3);

/// Requests the health of a store.
pub async fn ask_store(store: &dyn Store) -> StoreFacts {
    let health = timeout(STORE_TIMEOUT, store.health()).await;
    StoreFacts {
        name: store.name().to_owned(),
        sharing: store.sharing(),
        health: health.unwrap_or_else(|_| StoreHealth::default()),
    }
}

/// Collects all facts concurrently.
pub(crate) async fn gather(app: &App) -> Facts {
    let mut replicas: BTreeMap<ReplicaId, ReplicaRecord> = BTreeMap::new();
    let (mut environments, releases): (Vec<EnvironmentFacts>, Vec<_>) = {
        let fleets = app.view.fleets();
        for fleet in fleets.values() {
            replicas.extend(fleet.replicas().iter().map(|(id, (record, _))| (id.clone(), record.clone())));
        }
        fleets.values().map(|fleet| (environment(fleet), fleet.releases().clone())).unzip()
    };
    // This replica is not in the view before there is an environment.
    replicas.insert(app.replica.membership.id().clone(), app.replica.membership.record().clone());
    let requests = join_all(replicas.into_iter().map(|(id, record)| ask_replica(app, id, record)));
    let (store, replicas, blobs, missing) =
        futures::join!(ask_store(app.store.as_ref()), requests, can_write(app), without_bundle(app, releases));
    for (environment, missing) in environments.iter_mut().zip(missing) {
        environment.without_bundle = missing;
    }
    Facts { store, me: app.replica.membership.id().clone(), replicas, environments, blobs }
}

async fn ask_replica(app: &App, id: ReplicaId, record: ReplicaRecord) -> ReplicaFacts {
    let asked = app.clock.now();
    let answer = if id == *app.replica.membership.id() {
        Ok(examine_self(app).await)
    } else {
        let asking = async { Client::new(&record.url)?.self_examination(REPLICA_TIMEOUT).await };
        match asking.await {
            Ok(answer) if answer.replica != id => Err(format!("{} answers at its address", answer.replica)),
            answer => answer.map_err(|error| chain(&error)),
        }
    };
    ReplicaFacts { id, record, asked, answered: app.clock.now(), answer }
}

/// The releases whose bundles are missing. An unreadable directory is another finding.
async fn without_bundle(app: &App, releases: Vec<BTreeMap<Version, ReleaseRecord>>) -> Vec<Vec<Version>> {
    let blobs = app.blobs.clone();
    let is_there = move |release: &ReleaseRecord| {
        let digest = release.digest.strip_prefix("sha256:").unwrap_or(&release.digest);
        blobs.stored(digest).map_or(true, |stored| stored.is_some())
    };
    let looked = tokio::task::spawn_blocking(move || {
        let missing = |releases: BTreeMap<Version, ReleaseRecord>| {
            releases.into_iter().filter(|(_, release)| !is_there(release)).map(|(version, _)| version).collect()
        };
        releases.into_iter().map(missing).collect()
    });
    timeout(REPLICA_TIMEOUT, looked).await.ok().and_then(Result::ok).unwrap_or_default()
}

fn environment(fleet: &Fleet) -> EnvironmentFacts {
    let controllers = fleet.controllers().iter();
    EnvironmentFacts {
        env: fleet.env.clone(),
        nodes: fleet.designed().count(),
        has_machines: fleet.recorded().any(|(_, node, _)| node.machine.is_some()),
        needs_design_controller: fleet.needs_design_controller(),
        destroying: fleet.destroying().map(|(destroying, _)| destroying.clone()),
        controllers: controllers.map(|(name, (record, _))| (*name, record.clone())).collect(),
        restoring: fleet.restoring().cloned(),
        unreadable: fleet.unreadable().clone(),
        without_bundle: Vec::new(),
    }
}

async fn can_write(app: &App) -> Result<(), String> {
    let blobs = app.blobs.clone();
    let spooled = tokio::task::spawn_blocking(move || blobs.spool().and_then(|mut file| file.write_all(b"muster")));
    // A directory on a dead network file system blocks for ever.
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
    let looked = tokio::task::spawn_blocking(move || {
        let sees =
            |(id, record): (ReplicaId, ReplicaRecord)| BlobVisibility { sees: marks.shows(&id, &record), replica: id };
        others.into_iter().map(sees).collect()
    });
    ReplicaReport {
        replica: app.replica.membership.id().clone(),
        version: app.replica.membership.record().version.clone(),
        agents: app.agents.hub.connected(),
        sees_blobs_of: timeout(REPLICA_TIMEOUT / 2, looked).await.ok().and_then(Result::ok).unwrap_or_default(),
        now: app.clock.now(),
    }
}
