//! Two servers on a model store in which about every third request fails: no report is lost or applied twice.

use std::sync::Arc;
use std::time::Duration;

use muster_core::fleet::Fleet;
use muster_core::report::record::ObservedRecord;
use muster_server::{Clock, View};
use muster_sim::{Faults, Model, StoreFaultRates};
use muster_store::Store;
use muster_wire::sync::ReportResult;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cluster::{Cluster, Replica, env, keys, node, registration};
use crate::consistency::passed;

const NODES: [(&str, &str); 6] =
    [("web1", "web"), ("web2", "web"), ("web3", "web"), ("db1", "db"), ("db2", "db"), ("db3", "db")];
const REPORTS: u64 = 6;
/// Ends a test that hangs. No result depends on it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Seeds of the runs. `SEED=` in the environment repeats one.
fn seeds() -> Vec<u64> {
    std::env::var("SEED").map_or_else(|_| vec![1, 2, 3], |seed| vec![seed.parse().unwrap()])
}

#[tokio::test(flavor = "multi_thread")]
async fn store_faults_lose_no_report_and_views_equal_the_store() {
    for seed in seeds() {
        println!("SEED={seed}");
        tokio::time::timeout(TIMEOUT, bad_day(seed)).await.unwrap_or_else(|_| panic!("SEED={seed} does not end"));
    }
}

async fn bad_day(seed: u64) {
    let model = Model::default();
    let outside: Arc<dyn Store> = Arc::new(model.client(Faults::none()));
    let cluster = Cluster::on(outside.clone(), tempfile::tempdir().unwrap());
    let faults = [seed, seed + 1000].map(|seed| Faults::seeded(seed, StoreFaultRates::default()));
    let start = |faults: &Faults| cluster.start_on(Arc::new(model.client(faults.clone())), cluster.blobs());
    let replicas = [start(&faults[0]).await.unwrap(), start(&faults[1]).await.unwrap()];
    muster_server::register(&replicas[0].app, &registration(&NODES)).await.unwrap();
    for replica in &replicas {
        replica.sees("all nodes and both servers", is_complete).await;
    }

    faults.iter().for_each(|faults| faults.set(StoreFaultRates::harsh()));
    let replicas = Arc::new(replicas);
    let mut nodes = JoinSet::new();
    for (number, (name, _)) in NODES.into_iter().enumerate() {
        let replicas = replicas.clone();
        nodes.spawn(async move { report_all(&replicas, name, number).await });
    }
    nodes.join_all().await;
    faults.iter().for_each(|faults| faults.set(StoreFaultRates::default()));

    let end = model.settle();
    for (name, _) in NODES {
        assert_is_there_once(&*outside, name, seed).await;
    }
    let truth = read(&outside).await;
    for replica in &*replicas {
        replica.app.view.reach(end).await.unwrap();
        let (shown, truth) = (without_servers(replica.fleet()), without_servers(truth.clone()));
        assert_eq!(shown, truth, "SEED={seed}");
    }
    for replica in Arc::into_inner(replicas).unwrap() {
        replica.stop().await;
    }
}

fn is_complete(fleet: &Fleet) -> bool {
    fleet.replicas().len() == 2 && fleet.designed().count() == NODES.len() && fleet.desired().is_some()
}

/// Sends reports as an agent does: in order, each one retried at alternating servers until it is acknowledged.
async fn report_all(replicas: &[Replica; 2], name: &str, mut attempt: usize) {
    for seq in 1..=REPORTS {
        let report = passed(&replicas[0], name, seq);
        loop {
            attempt += 1;
            match replicas[attempt % 2].client.report(&env(), &report).await {
                Ok(answer) => {
                    assert!(matches!(answer.taken, ReportResult::Applied | ReportResult::AlreadyApplied), "{answer:?}");
                    break;
                }
                Err(error) => assert!(error.problem().is_some(), "{error}"),
            }
        }
    }
}

/// Checks in the store that a node has its last report, one state, and each run once in its history.
async fn assert_is_there_once(store: &dyn Store, name: &str, seed: u64) {
    let name = node(name);
    let observed = store.get(&keys().observed(&name)).await.unwrap().unwrap();
    let observed: ObservedRecord = serde_json::from_slice(&observed.value).unwrap();
    assert_eq!(observed.seq, REPORTS, "SEED={seed}: {name}");

    let all = store.range(keys().prefix(), None).await.unwrap().kvs;
    let of_node =
        |part: &str| all.iter().filter(|kv| kv.key.contains(part) && kv.key.ends_with(&format!("/{name}"))).count();
    let states = of_node("/status/configured/") + of_node("/status/validated/");
    assert_eq!((states, of_node("/running_version/")), (1, 1), "SEED={seed}: {name}");

    let prefix = keys().past_runs(&name);
    let ended = all.iter().filter_map(|kv| kv.key.strip_prefix(&prefix)).map(str::to_owned);
    let open = observed.open_run().map(|open| open.run.to_string());
    let runs: Vec<String> = ended.chain(open).collect();
    for seq in 1..=REPORTS {
        let count = runs.iter().filter(|run| **run == format!("r{seq}")).count();
        assert_eq!(count, 1, "SEED={seed}: run {seq} of {name} in {runs:?}");
    }
}

/// The fleet as a new server reads it from the store.
async fn read(store: &Arc<dyn Store>) -> Fleet {
    let view = Arc::new(View::default());
    let (changed, mut changes) = mpsc::channel(16);
    let mut tasks = JoinSet::new();
    let (following, from) = (view.clone(), store.clone());
    tasks.spawn(async move { drop(following.follow(from.as_ref(), changed, &Clock::system()).await) });
    tasks.spawn(async move { while changes.recv().await.is_some() {} });
    view.ready().await;
    tasks.shutdown().await;
    let fleets = view.fleets();
    fleets[&env()].clone()
}

/// The nodes of a fleet. Servers are not compared: they may still be acquiring leases and controllers.
fn without_servers(fleet: Fleet) -> Vec<String> {
    fleet
        .nodes()
        .map(|(name, node)| format!("{name}: {:?} {:?} {:?}", node.record, node.observed, node.history))
        .collect()
}
