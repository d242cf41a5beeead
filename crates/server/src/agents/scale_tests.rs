//! A large fleet on one server: memory of its lookups, and the sessions that one change wakes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{HashMap, HashSet};

use muster_core::keys::Keys;
use muster_core::lookup::Tag;
use muster_core::lookup::config_data::{DatumContent, DatumRecord, Layer};
use muster_core::names::{DataKey, Role};
use muster_core::node::leaders::LeaderRecord;
use muster_core::node::record::NodeRecord;
use muster_core::report::record::ActiveRole;
use muster_core::txn::{Op, Txn};
use muster_store::Store;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::*;

const SESSIONS: usize = 1000;

fn env() -> EnvName {
    EnvName::new("test").unwrap()
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn role(name: &str) -> Role {
    Role::new(name).unwrap()
}

/// Resident memory of the process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn many(keys: usize) -> Lookups {
    (0..keys).map(|number| (format!("data::some::module::parameter_{number}"), Tag::absent())).collect()
}

/// The same lookups without sharing: one map of tags for each session, and the nodes of each key.
fn unshared(keys: usize) -> (Vec<Lookups>, HashMap<String, HashSet<NodeName>>) {
    let mut index: HashMap<String, HashSet<NodeName>> = HashMap::new();
    let maps: Vec<Lookups> = (0..SESSIONS).map(|_| many(keys)).collect();
    for (number, map) in maps.iter().enumerate() {
        for key in map.keys() {
            index.entry(key.clone()).or_default().insert(node(&format!("web{}", number + 1)));
        }
    }
    (maps, index)
}

/// 1,000 nodes with the same 2,000 lookups take as much memory as a few nodes.
#[tokio::test]
async fn memory_of_a_session_does_not_grow_with_lookups() {
    let hub = Arc::new(Hub::new(Clock::system(), CancellationToken::new(), &View::default()));
    let before = resident();
    let sessions: Vec<SessionGuard> = (0..SESSIONS)
        .map(|number| {
            let request = JoinRequest { lookups: many(2000), ..JoinRequest::default() };
            hub.join(&env(), &node(&format!("web{}", number + 1)), request).unwrap()
        })
        .collect();
    let shared = resident().saturating_sub(before);
    let before = resident();
    let all = unshared(2000);
    let own = resident().saturating_sub(before);
    println!("1000 sessions x 2000 keys: {} KiB shared, {} KiB unshared", shared / 1024, own / 1024);
    assert!(shared < 16 * 1024 * 1024, "{shared} bytes");
    assert!(own > 10 * shared, "{own} bytes");
    drop(all);
    drop(sessions);
    assert!(hub.inner().lookups.is_empty(), "no lookups are left");
}

/// A store, its view, and a hub whose sessions all have a stream.
struct Rig {
    store: Arc<dyn Store>,
    view: Arc<View>,
    events: mpsc::Receiver<(NodeName, String)>,
    keys: Keys,
    _dir: tempfile::TempDir,
    _tasks: JoinSet<()>,
}

impl Rig {
    /// Only the first ten web nodes and all db nodes have looked up anything.
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spec = format!("embedded:{}", dir.path().join("store").display());
        let store = muster_store::open(&spec, &muster_store::StoreAccess::default()).await.unwrap();
        let keys = Keys::new(&env());
        let names = |role: &str, count: usize| {
            let role = role.to_owned();
            (1..=count).map(move |number| (node(&format!("{role}{number}")), role.clone()))
        };
        let all: Vec<(NodeName, String)> = names("web", SESSIONS - 20).chain(names("db", 20)).collect();
        for part in all.chunks(100) {
            let puts = part.iter().map(|(name, of)| Op::put_json(keys.node(name), &record(of)).unwrap());
            store.commit(Txn { guards: Vec::new(), ops: puts.collect() }).await.unwrap();
        }
        let view = Arc::new(View::default());
        let hub = Arc::new(Hub::new(Clock::system(), CancellationToken::new(), &view));
        let (changed, changes) = mpsc::channel(64);
        let (following, from, waking) = (view.clone(), store.clone(), hub.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(following.follow(from.as_ref(), changed, &Clock::system()).await) });
        tasks.spawn(async move { waking.wake(changes).await });
        view.ready().await;
        // Room for all events of the test.
        let (send, received) = mpsc::channel(100 * SESSIONS);
        for (number, (name, of)) in all.into_iter().enumerate() {
            let looked_up = if of == "db" {
                vec!["data::port"]
            } else {
                vec!["data::port", "leader::db", "published::k", "active_roles::db"]
            };
            let lookups: Lookups = {
                let fleets = view.fleets();
                let tag = |key: &str| (key.to_owned(), fleets[&env()].tag(key, Some(&name)));
                if of == "web" && number >= 10 { Lookups::new() } else { looked_up.into_iter().map(tag).collect() }
            };
            let connected = hub.join(&env(), &name, JoinRequest { lookups, ..JoinRequest::default() }).unwrap();
            let init = crate::agents::stream::StreamInit {
                incarnation: 1,
                role: role(&of),
                host_name: None,
                generation: None,
                has_snapshot: true,
                snapshot: None,
                pause: None,
                asked: None,
                trust: 0,
                identity: None,
                permit: crate::agents::admission::Admission::default().enter().await.unwrap(),
            };
            let mut events = Box::pin(
                crate::agents::stream::SyncEvents::new(view.clone(), connected, init, Clock::system()).into_body(),
            );
            let send = send.clone();
            tasks.spawn(async move {
                while let Some(Ok(event)) = futures::StreamExt::next(&mut events).await {
                    let text = String::from_utf8(event.to_vec()).unwrap();
                    if !text.starts_with("event: hello") && !text.starts_with("event: ping") {
                        let _ = send.send((name.clone(), text)).await;
                    }
                }
            });
        }
        Self { store, view, events: received, keys, _dir: dir, _tasks: tasks }
    }

    async fn commit(&self, op: Op) {
        let muster_store::CommitOutcome::Committed { revision } = self.store.commit(Txn::new().op(op)).await.unwrap()
        else {
            panic!("the transaction has no guards")
        };
        self.view.reach(revision).await.unwrap();
    }

    async fn set(&self, layer: Layer, value: Value) {
        let at = Timestamp::UNIX_EPOCH;
        let datum =
            DatumRecord { content: DatumContent::Value(value), secret: false, by: "ada".into(), at, message: None };
        let key = self.keys.datum(&layer, &DataKey::new("port").unwrap());
        self.commit(Op::put_json(key, &datum).unwrap()).await;
    }

    /// The nodes that received an event, once `expected` events have arrived. The next change shows if more arrive later.
    async fn woken(&mut self, expected: usize) -> Vec<String> {
        let mut names = Vec::new();
        while names.len() < expected {
            let event = tokio::time::timeout(std::time::Duration::from_secs(20), self.events.recv()).await;
            let (name, _) = event.unwrap_or_else(|_| panic!("only {names:?}")).unwrap();
            names.push(name.to_string());
        }
        // Gives all woken tasks time to send: a further event would be one too many.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        while let Ok((name, _)) = self.events.try_recv() {
            names.push(name.to_string());
        }
        names.sort_unstable();
        names
    }
}

fn record(of: &str) -> NodeRecord {
    NodeRecord {
        role: role(of),
        profile: None,
        labels: Default::default(),
        failure_domain: "default".into(),
        position: 0,
        flavor: None,
        host_name: None,
        leaving: None,
        created: None,
    }
}

fn ten() -> Vec<String> {
    let mut names: Vec<String> = (1..=10).map(|number| format!("web{number}")).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn change_wakes_exactly_the_nodes_that_looked_it_up() {
    let mut rig = Rig::new().await;
    let db = || role("db");
    // Data, in each layer.
    rig.set(Layer::Role { role: role("web") }, json!(80)).await;
    assert_eq!(rig.woken(10).await, ten(), "no db node, though all of them looked up the key");
    rig.set(Layer::Role { role: role("web") }, json!(80)).await;
    assert_eq!(rig.woken(0).await, [""; 0], "the same value again");
    rig.set(Layer::Host { node: node("web3") }, json!(81)).await;
    assert_eq!(rig.woken(1).await, ["web3"]);
    rig.set(Layer::Host { node: node("web500") }, json!(81)).await;
    assert_eq!(rig.woken(0).await, [""; 0], "web500 looked up nothing");
    rig.set(Layer::Global, json!(79)).await;
    assert_eq!(rig.woken(20).await.len(), 20, "the db nodes: the web nodes have a value of higher precedence");
    rig.set(Layer::Role { role: db() }, json!(79)).await;
    assert_eq!(rig.woken(0).await, [""; 0], "another layer has the same value");

    // A leader, published values, and active nodes.
    let leader = LeaderRecord { node: Some(node("db1")), epoch: 1, since: Timestamp::UNIX_EPOCH };
    rig.commit(Op::put_json(rig.keys.leader(&db()), &leader).unwrap()).await;
    assert_eq!(rig.woken(10).await, ten());
    rig.commit(Op::put_json(rig.keys.published(&node("db1")), &json!({"k": 1})).unwrap()).await;
    assert_eq!(rig.woken(10).await, ten());
    rig.commit(Op::put_json(rig.keys.published(&node("db1")), &json!({"k": 1, "other": 2})).unwrap()).await;
    assert_eq!(rig.woken(0).await, [""; 0], "no node looked up the other key");
    let active = ActiveRole { role: db(), interfaces: Default::default(), services: Default::default() };
    let version = muster_core::names::Version::new("v1").unwrap();
    rig.commit(Op::put_json(rig.keys.active_role(&version, &node("db1")), &active).unwrap()).await;
    assert_eq!(rig.woken(10).await, ten());
}
