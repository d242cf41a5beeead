//! Tests of a server that dies between the blob of a group and its transaction.

use std::time::{Duration, SystemTime};

use futures::future::join_all;
use muster_core::names::ReplicaId;
use muster_core::txn::{Op, Txn};
use muster_sim::{Faults, Model};
use muster_testkit::records::{env, node, node_record};
use prometheus_client::registry::Registry;

use super::*;

const NODES: [&str; 3] = ["web1", "web2", "web3"];

fn body(node: &str) -> Bytes {
    let time = "2027-01-15T08:00:00Z";
    let report = serde_json::json!({"node": node, "incarnation": 1, "seq": 1, "run": "r1", "phase": "validated",
        "result": "passed", "version": "v1", "digest": "", "generation": {"epoch": 1, "number": 1}, "causes": [],
        "started": time, "ended": time, "facts": {"interfaces": {}}, "log": format!("log of {node}")});
    Bytes::from(report.to_string())
}

/// A server's intake and view on a store, which end when this is dropped.
struct IntakeServer {
    reports: Reports,
    view: Arc<View>,
    blobs: Arc<Blobs>,
    _tasks: JoinSet<()>,
}

impl IntakeServer {
    async fn start(store: Arc<dyn Store>, root: &std::path::Path, replica: &str) -> Self {
        let (view, clock) = (Arc::new(View::default()), Clock::system());
        let blobs = Arc::new(Blobs::open(root, ReplicaId::new(replica).unwrap()).unwrap());
        let metrics = ReportMetrics::new(&mut Registry::default());
        let (reports, queue) = Reports::channel(metrics.clone());
        let mut tasks = JoinSet::new();
        let (following, from, (changed, mut changes)) = (view.clone(), store.clone(), mpsc::channel(16));
        tasks.spawn(async move { drop(following.follow(&*from, changed, &Clock::system()).await) });
        tasks.spawn(async move { while changes.recv().await.is_some() {} });
        view.ready().await;
        let host = IntakeHost { store, view: view.clone(), blobs: blobs.clone(), clock, metrics };
        tasks.spawn(IntakeTask::new(queue, host).run());
        Self { reports, view, blobs, _tasks: tasks }
    }

    async fn submit_all(&self) -> Vec<Result<ReportAck, ReportError>> {
        let submit = |name: &&str| {
            let body = body(name);
            self.reports.submit(env("test"), serde_json::from_slice(&body).unwrap(), body)
        };
        join_all(NODES.iter().map(submit)).await
    }
}

/// Blobs that the values in a store name.
async fn references(store: &dyn Store) -> Vec<String> {
    let values = store.range("", None).await.unwrap().kvs;
    let texts = values.iter().map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
    let words = texts.flat_map(|text| text.split('"').map(str::to_owned).collect::<Vec<_>>());
    words.map(|word| report_packs::blob_of(&word).to_owned()).filter(|word| crate::blobs::is_digest(word)).collect()
}

#[tokio::test]
async fn blob_of_an_interrupted_group_is_swept() {
    let (dir, model, faults) = (tempfile::tempdir().unwrap(), Model::default(), Faults::none());
    let outside: Arc<dyn Store> = Arc::new(model.client(Faults::none()));
    let keys = Keys::new(&env("test"));
    let put = |name: &&str| Op::put_json(keys.node(&node(name)), &node_record("web", "rack1", 1)).unwrap();
    outside.commit(Txn { guards: Vec::new(), ops: NODES.iter().map(put).collect() }).await.unwrap();

    let dying = IntakeServer::start(Arc::new(model.client(faults.clone())), dir.path(), "one-1").await;
    faults.cut_off(true);
    let written = async {
        while dying.blobs.written().0 == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answers = dying.submit_all() => panic!("the store is cut off: {answers:?}"),
        () = written => {}
    }
    let (orphans, _) = dying.blobs.written();
    assert_eq!(orphans, 1, "the reports of a group are one blob");
    drop(dying);
    model.settle();
    assert_eq!(references(&*outside).await, [] as [&str; 0], "nothing refers to a report that was not committed");

    let server = IntakeServer::start(outside.clone(), dir.path(), "two-2").await;
    #[expect(clippy::disallowed_methods, reason = "compared with file times, which come from the machine's clock")]
    let now = SystemTime::now();
    assert_eq!(server.blobs.sweep(now, 99, |_| false).unwrap(), 0, "another server may be about to commit");
    assert_eq!(server.blobs.sweep(now + Duration::from_secs(2 * 3600), 99, |_| false).unwrap() as u64, orphans);

    // The agents send their reports again.
    for answer in server.submit_all().await {
        assert_eq!(answer.unwrap().taken, ReportResult::Applied);
    }
    let needed = references(&*outside).await;
    assert!(!needed.is_empty() && needed.iter().all(|digest| server.blobs.get(digest).is_some()));
    server.view.reach(outside.revision().await.unwrap()).await.unwrap();
    let stored: Vec<String> = {
        let fleets = server.view.fleets();
        let last = |name: &&str| fleets[&env("test")].get(&node(name))?.observed.as_ref()?.0.last.as_ref()?.log.clone();
        NODES.iter().filter_map(last).collect()
    };
    let logs: Vec<String> = server.blobs.reports(stored).await.into_iter().map(|report| report.log).collect();
    assert_eq!(logs, NODES.map(|name| format!("log of {name}")));
}
